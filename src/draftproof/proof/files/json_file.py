"""JSON from disk, with the line each key stands on."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftproof.drafters.values import show
from draftproof.errors import CheckpointError, SpecError

MAX_CONFIG = 4 << 20  # real ones are a few kilobytes
MAX_TOKENIZER = 64 << 20
MAX_DIGITS = 30
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],]|\n', re.DOTALL)
_NOT_JSON = re.compile(r'"(?:[^"\\]|\\.)*"|\b(NaN|Infinity)\b', re.DOTALL)


@dataclass(frozen=True)
class JsonFile:
    """``lines``: dotted path of a key → line number, from 1."""

    path: Path
    data: dict[str, Any]
    lines: dict[str, int] = field(default_factory=dict)

    def origins(self, prefix: str) -> dict[str, str]:
        """Origins of a case's facts that were read from this file."""
        name = printable(self.path)
        found = {prefix: name}
        found.update({f"{prefix}.{key}": f"{name}, line {line}" for key, line in self.lines.items()})
        return found


def printable(path: object) -> str:
    """A path on one line, whatever its name is made of."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(path))[:300]


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of a regular file. Pipes and devices are refused: they would block or never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise CheckpointError(f"{printable(path)}: not a regular file")
            if found.st_size > limit:
                raise CheckpointError(
                    f"{printable(path)}: {found.st_size} bytes, more than the {limit} such a file has"
                )
            return file.read(limit + 1)
    except OSError as error:
        raise CheckpointError(f"{printable(path)} cannot be read: {error.strerror or error}") from None
    except ValueError:  # a null byte in the name
        raise CheckpointError(f"{printable(path)}: not a usable file name") from None


def read_json(path: Path, limit: int = MAX_CONFIG) -> JsonFile:
    """A JSON object. Raises CheckpointError or SpecError with line and column."""
    name = printable(path)
    text = decoded(read_bytes(path, limit), name)
    try:
        data = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refused, parse_int=_whole, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        reason = f"not JSON: {error.msg}" if text.strip() else "is empty"
        raise SpecError(f"{name}, line {error.lineno}, column {error.colno}: {reason}") from None
    except _NotANumber as error:
        raise SpecError(f"{name}, {_place(text, str(error))}: {error} is no JSON number") from None
    except SpecError as error:
        raise SpecError(f"{name}: {error}") from None
    except RecursionError:
        raise SpecError(f"{name}: nested too deeply for a config") from None
    except ValueError:
        raise SpecError(f"{name}: holds a number too large to be meant") from None
    if not isinstance(data, dict):
        raise SpecError(f"{name}: a {type(data).__name__} where an object with settings is needed: {show(data)}")
    return JsonFile(path, data, _key_lines(text))


def decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SpecError(f"{name}, line {line}: not UTF-8 text (byte {error.start})") from None


class _NotANumber(Exception):
    """NaN and Infinity are Python's extension of JSON; no size or id can be one."""


def _refused(word: str) -> Any:
    raise _NotANumber(word)


def _whole(digits: str) -> int:
    """No size or id of a model has more digits; longer ones overflow in later arithmetic."""
    if len(digits) > MAX_DIGITS:
        raise ValueError
    return int(digits)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise SpecError(f"key {show(key)} appears twice in one object")
        found[key] = value
    return found


def _place(text: str, word: str) -> str:
    for match in _NOT_JSON.finditer(text):
        if match[1] and word.endswith(match[1]):
            line = text.count("\n", 0, match.start()) + 1
            return f"line {line}, column {match.start() - text.rfind(chr(10), 0, match.start())}"
    return "somewhere"


def _key_lines(text: str) -> dict[str, int]:
    """Line of every key outside of lists, by dotted path; ``text`` is known to be JSON."""
    lines: dict[str, int] = {}
    path: list[str] = []
    stack: list[bool] = []  # is it an object?
    key, line, expects_key = "", 1, False
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
        elif token in "{[":
            stack.append(token == "{")
            path.append(key)
            key, expects_key = "", token == "{"
        elif token in "}]":
            stack.pop()
            key = path.pop()
            expects_key = False
        elif token == ",":
            expects_key = bool(stack) and stack[-1]
        elif expects_key and all(stack):
            key, expects_key = json.loads(token), False
            lines[".".join([*filter(None, path), key])] = line
    return lines
