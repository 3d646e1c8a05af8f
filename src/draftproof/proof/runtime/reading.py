"""The few interesting lines of a log of any size.

Whole blocks are searched for the handful of words that every interesting line holds (a memory scan, far faster than
splitting lines), and only the lines around a hit are decoded. Memory is bounded by the block, whatever the file holds.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from draftproof.errors import UnavailableError, UsageError

BLOCK = 4 << 20
LONGEST_LINE = 1 << 14  # longer ones are cut: no engine prints such a line, a binary file is one
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


@dataclass
class Seen:
    """What reading met, for the report: ``lines`` and ``bytes`` read, ``nul_bytes`` (a sign of a binary file)."""

    lines: int = 0
    bytes: int = 0
    nul_bytes: int = 0
    cut: bool = False  # the stream ended inside a compressed block
    notes: list[str] = field(default_factory=list)


def interesting_lines(stream: IO[bytes], words: Sequence[bytes], seen: Seen) -> Iterator[tuple[int, str]]:
    """(line number from 1, text without colours) of every line that holds one of ``words``, in order."""
    rest = b""
    encoding: str | None = None
    for block in _blocks(stream, seen):
        if seen.bytes == len(block) and (encoding := _UTF16.get(block[:2])):
            block = block[2:]
        if encoding is not None:  # as PowerShell writes what is redirected
            whole = rest + block
            even = len(whole) & ~1
            rest, block = whole[even:], whole[:even].decode(encoding, "replace").encode()
            yield from _hits(block, words, seen)  # a line on the border of two blocks is lost; rare and harmless
            continue
        seen.nul_bytes += block.count(0)
        block = rest + block
        end = block.rfind(b"\n") + 1
        if not end and len(block) > LONGEST_LINE:
            end = len(block)
        rest = block[end:]
        yield from _hits(block[:end], words, seen)
    if rest:
        yield from _hits(rest + b"\n", words, seen)


def _hits(block: bytes, words: Sequence[bytes], seen: Seen) -> Iterator[tuple[int, str]]:
    starts: set[int] = set()
    for word in words:
        at = block.find(word)
        while at >= 0:
            starts.add(block.rfind(b"\n", 0, at) + 1)
            after = block.find(b"\n", at)
            at = -1 if after < 0 else block.find(word, after)
    number, counted = seen.lines + 1, 0
    for start in sorted(starts):
        number += block.count(b"\n", counted, start)
        counted = start
        stop = block.find(b"\n", start)
        line = block[start : stop if stop >= 0 else len(block)][:LONGEST_LINE]
        plain = _ANSI.sub(b"", line) if b"\x1b" in line else line
        yield number, plain.decode("utf-8", "replace").strip()
    seen.lines += block.count(b"\n")


def _blocks(stream: IO[bytes], seen: Seen) -> Iterator[bytes]:
    while True:
        try:
            block = stream.read(BLOCK)
        except (EOFError, gzip.BadGzipFile, OSError) as error:
            seen.cut = True
            seen.notes.append(f"ends early: {error}")
            return
        if not block:
            return
        seen.bytes += len(block)
        yield block


def open_log(name: str) -> IO[bytes]:
    """A file, a compressed one (``.gz``), or ``-`` for standard input. Raises with name and remedy."""
    if name == "-":
        return sys.stdin.buffer
    path = Path(name)
    try:
        if path.is_dir():
            raise UsageError(f"--log {name}: a folder; name the files in it")
        stream = path.open("rb")
        if stream.peek(2)[:2] != b"\x1f\x8b":
            return stream
        stream.close()
        return gzip.open(path)  # type: ignore[return-value]
    except FileNotFoundError:
        raise UsageError(f"--log {name}: no such file") from None
    except OSError as error:
        raise UnavailableError(f"--log {name}: cannot be read ({error.strerror})") from None
