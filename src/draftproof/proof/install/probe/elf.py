"""A reader for what matters of an ELF file: is it whole, for which machine, and which libraries does it need.

Layout after the System V ABI (ELF header, program and section headers, dynamic section); see elf(5).
"""

from __future__ import annotations

import os
import struct
from typing import Any, BinaryIO

MACHINES = {3: "i686", 8: "mips", 20: "ppc", 21: "ppc64le", 22: "s390x", 40: "armv7l", 62: "x86_64", 183: "aarch64"}
MACHINES.update({243: "riscv64", 258: "loongarch64"})
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64", "i386": "i686", "i586": "i686", "ppc64": "ppc64le"}
_NOBITS, _DYNAMIC, _LOAD = 8, 2, 1
_NEEDED, _STRTAB, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29


class Broken(Exception):
    """Not a whole ELF file; the text says what is wrong."""


def machine_name(name: str) -> str:
    """A machine as ELF headers and ``platform.machine()`` agree on it."""
    return _ALIASES.get(name.lower(), name.lower())


def read(path: str) -> dict[str, Any]:
    """``{"machine", "needed": [...], "search": [...], "soname"}``. Raises Broken, with what is wrong, and OSError.

    ``search``: RUNPATH or RPATH as written, ``$ORIGIN`` included.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        try:
            return _read(file, size)
        except (struct.error, IndexError, UnicodeDecodeError):
            raise Broken("its headers are cut off or damaged") from None


def _read(file: BinaryIO, size: int) -> dict[str, Any]:
    ident = file.read(16)
    if not ident:
        raise Broken("it is empty")
    if ident[:4] != b"\x7fELF":
        raise Broken(f"it is no ELF file (begins with {ident[:4]!r})")
    wide, order = ident[4] == 2, "<" if ident[5] == 1 else ">"
    head = order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH")
    _, machine, _, _, phoff, shoff, _, _, phentsize, phnum, shentsize, shnum, _ = struct.unpack(
        head, _exactly(file, struct.calcsize(head))
    )
    _inside("the program headers", phoff, phentsize * phnum, size)
    _inside("the section headers", shoff, shentsize * shnum, size)
    segments = [_segment(file, order, wide, phoff + i * phentsize) for i in range(phnum)]
    for kind, offset, _, length in segments:
        if kind in (_LOAD, _DYNAMIC):
            _inside("a segment", offset, length, size)
    for index in range(shnum if shoff else 0):
        kind, offset, length = _section(file, order, wide, shoff + index * shentsize)
        if kind not in (0, _NOBITS):
            _inside(f"section {index}", offset, length, size)
    found: dict[str, Any] = {
        "machine": MACHINES.get(machine, f"machine {machine}"),
        "needed": [],
        "search": [],
        "soname": None,
    }
    return _dynamic(file, order, wide, segments, found)


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise Broken("it ends within a header")
    return data


def _inside(what: str, offset: int, length: int, size: int) -> None:
    if offset + length > size:
        raise Broken(f"it is truncated: {what} should end at byte {offset + length}, the file ends at {size}")


def _segment(file: BinaryIO, order: str, wide: bool, at: int) -> tuple[int, int, int, int]:
    """(kind, offset in the file, address, length in the file)"""
    file.seek(at)
    if wide:
        kind, _, offset, address, _, length = struct.unpack(order + "IIQQQQ", _exactly(file, 40))
    else:
        kind, offset, address, _, length = struct.unpack(order + "IIIII", _exactly(file, 20))
    return kind, offset, address, length


def _section(file: BinaryIO, order: str, wide: bool, at: int) -> tuple[int, int, int]:
    """(kind, offset, length)"""
    file.seek(at)
    fields = struct.unpack(order + ("IIQQQQ" if wide else "IIIIII"), _exactly(file, 40 if wide else 24))
    return fields[1], fields[4], fields[5]


def _dynamic(
    file: BinaryIO, order: str, wide: bool, segments: list[tuple[int, int, int, int]], found: dict[str, Any]
) -> dict[str, Any]:
    entry = struct.Struct(order + ("qQ" if wide else "iI"))
    for kind, offset, _, length in segments:
        if kind != _DYNAMIC:
            continue
        file.seek(offset)
        pairs = list(entry.iter_unpack(_exactly(file, length - length % entry.size)))
        tables = [value for tag, value in pairs if tag == _STRTAB]
        if not tables:
            continue
        strings = _offset(segments, tables[0])
        texts = {tag: [_text(file, strings + value) for t, value in pairs if t == tag] for tag, _ in pairs}
        found["needed"] = texts.get(_NEEDED, [])
        found["soname"] = next(iter(texts.get(_SONAME, [])), None)
        paths = texts.get(_RUNPATH) or texts.get(_RPATH) or []
        found["search"] = [part for path in paths for part in path.split(":") if part]
    return found


def _offset(segments: list[tuple[int, int, int, int]], address: int) -> int:
    for kind, offset, start, length in segments:
        if kind == _LOAD and start <= address < start + length:
            return offset + address - start
    raise Broken("its string table lies outside the file")


def _text(file: BinaryIO, at: int) -> str:
    file.seek(at)
    return file.read(4096).split(b"\0", 1)[0].decode("utf-8", "replace")
