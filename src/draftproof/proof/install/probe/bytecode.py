"""Bytecode that would run in place of a source it does not belong to (layout of .pyc files: PEP 552)."""

from __future__ import annotations

import importlib.util
import marshal
import os
import struct
from types import CodeType
from typing import Any, Iterable

MOST = 50


def check(sources: Iterable[str], compare: Iterable[str] = ()) -> dict[str, Any]:
    """``sources``: files whose bytecode headers are read; ``compare``: those that are compiled and compared too.

    ``stale`` is harmless (the interpreter sees another time or size and compiles anew); ``wrong`` runs although it
    is not what the source says: an unchecked hash, or the same time and size with other code.
    """
    compared = set(compare)
    found: dict[str, Any] = {"checked": 0, "stale": 0, "wrong": []}
    for source in sources:
        try:
            says = _one(source, source in compared)
        except (OSError, ValueError, struct.error, EOFError, TypeError):
            continue
        if says is None:
            continue
        found["checked"] += 1
        if says == "stale":
            found["stale"] += 1
        elif says:
            found["wrong"] = [*found["wrong"], {"path": source, "says": says}][:MOST]
    return found


def _one(source: str, compare: bool) -> str | None:
    """None: no bytecode that this interpreter would use; "": right; "stale": not used; else what is wrong."""
    cached = importlib.util.cache_from_source(source)
    if not os.path.exists(cached):
        return None
    with open(cached, "rb") as file:
        data = file.read()
    if len(data) < 16 or data[:4] != importlib.util.MAGIC_NUMBER:
        return "stale"
    (flags,) = struct.unpack_from("<I", data, 4)
    with open(source, "rb") as file:
        text = file.read()
    if flags & 1:  # named by a digest of the source; without bit 1 nobody compares it
        if data[8:16] == importlib.util.source_hash(text):
            return ""
        return "stale" if flags & 2 else "an unchecked hash of another source: it runs in place of this file"
    changed, size = struct.unpack_from("<II", data, 8)
    status = os.stat(source)
    if changed != int(status.st_mtime) & 0xFFFFFFFF or size != status.st_size & 0xFFFFFFFF:
        return "stale"
    return "same time and size, other code: it runs in place of this file" if compare and _differs(text, data) else ""


def _differs(text: bytes, data: bytes) -> bool:
    loaded = marshal.loads(data[16:])
    try:
        return not _same(compile(text, loaded.co_filename, "exec", dont_inherit=True), loaded)
    except SyntaxError:
        return True


def _same(a: CodeType, b: CodeType) -> bool:
    """Instructions, names and constants; line tables and optimised-away docstrings are no difference in behaviour."""
    if (a.co_code, a.co_names, a.co_varnames, a.co_argcount) != (b.co_code, b.co_names, b.co_varnames, b.co_argcount):
        return False
    if len(a.co_consts) != len(b.co_consts):
        return False
    for left, right in zip(a.co_consts, b.co_consts):
        if isinstance(left, CodeType) or isinstance(right, CodeType):
            if not (isinstance(left, CodeType) and isinstance(right, CodeType) and _same(left, right)):
                return False
        elif left != right or type(left) is not type(right):
            return False
    return True
