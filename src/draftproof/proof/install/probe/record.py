"""Integrity: every file of RECORD present with its size and digest, in parallel; files that RECORD does not know.

RECORD after the packaging specification "Recording installed projects": path, ``algorithm=urlsafe base64``, size.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

CHUNK = 1 << 20
MOST = 50  # files named per kind; the counts are complete
EXECUTED = (".py", ".so", ".pyd", ".pth")


def entries(info: str) -> list[tuple[str, str, int | None]]:
    """(path relative to the site folder, digest or "", size or None) of each line; unreadable lines have no digest."""
    with open(os.path.join(info, "RECORD"), encoding="utf-8", errors="surrogateescape", newline="") as file:
        rows = [row for row in csv.reader(file) if row and row[0]]
    return [
        (row[0], row[1] if len(row) > 1 else "", int(row[2]) if len(row) > 2 and row[2].isdigit() else None)
        for row in rows
    ]


def verify(
    info: str, out_of_time: Callable[[], bool], progress: Callable[[int, int, int], None] = lambda *_: None
) -> dict[str, Any]:
    """Compare a distribution's files with its RECORD. hashlib releases the interpreter's lock, so threads do.

    ``progress``: files done, files in all, bytes done. ``finished`` is False when time ran out: then the rest is not
    known, and nothing may be concluded from its silence.
    """
    site = os.path.dirname(info)
    own = f"{os.path.basename(info)}/RECORD"  # cannot hold its own digest
    rows = [row for row in entries(info) if not row[0].endswith(".pyc") and row[0] != own]
    found: dict[str, Any] = {kind: [] for kind in ("missing", "emptied", "modified", "unreadable")}
    counts = dict.fromkeys(found, 0)
    done = {"files": 0, "bytes": 0, "skipped": 0}

    def one(row: tuple[str, str, int | None]) -> tuple[str, str | None, str]:
        if out_of_time():
            return row[0], "skipped", ""
        return (row[0], *_judge(located(site, row[0]), row[1], row[2], done))

    # Largest first: the last thread must not be left with half a gigabyte when the others are done.
    rows.sort(key=lambda row: -(row[2] or 0))
    with ThreadPoolExecutor(max_workers=workers()) as pool:
        for index, (path, kind, says) in enumerate(pool.map(one, rows)):
            if kind == "skipped":
                done["skipped"] += 1
            elif kind is None:
                done["files"] += 1
            else:
                counts[kind] += 1
                found[kind] = [*found[kind], {"path": path, "says": says}][:MOST]
            if index % 64 == 0:
                progress(index, len(rows), done["bytes"])
    return {
        **found,
        "counts": counts,
        "listed": len(rows),
        "verified": done["files"],
        "bytes": done["bytes"],
        "finished": done["skipped"] == 0,
    }


def workers() -> int:
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:
        return os.cpu_count() or 1


def located(site: str, path: str) -> str:
    """Where a line's file lies. ``pip install --target`` moves ``../../bin`` into the folder and leaves RECORD so."""
    plain = os.path.normpath(os.path.join(site, path))
    if path.startswith("../") and not os.path.lexists(plain):
        inside = os.path.join(site, *[part for part in path.split("/") if part != ".."])
        if os.path.lexists(inside):
            return inside
    return plain


def _judge(file: str, digest: str, size: int | None, done: dict[str, int]) -> tuple[str | None, str]:
    try:
        actual = os.stat(file).st_size
        if size is not None and actual != size:
            kind = "emptied" if actual == 0 else "modified"
            return kind, f"{actual} bytes instead of {size}"
        if digest:
            algorithm, _, wanted = digest.partition("=")
            if algorithm not in hashlib.algorithms_available:
                return "unreadable", f"digest {algorithm!r} is unknown here"
            if _digest(file, algorithm) != wanted.rstrip("="):
                return "modified", f"same size, other {algorithm}"
        done["bytes"] += actual
    except FileNotFoundError:
        return "missing", "not there"
    except OSError as error:
        return "unreadable", error.strerror or "cannot be read"
    return None, ""


def _digest(file: str, algorithm: str) -> str:
    state = hashlib.new(algorithm)
    buffer = memoryview(bytearray(CHUNK))
    with open(file, "rb", buffering=0) as stream:
        while True:
            count = stream.readinto(buffer)
            if not count:
                break
            state.update(buffer[:count])
    return base64.urlsafe_b64encode(state.digest()).decode("ascii").rstrip("=")


def extras(info: str, packages: list[str], others: list[str]) -> dict[str, Any]:
    """Files in the distribution's packages that no RECORD knows. ``others``: the site's other dist-info folders (two
    distributions may share a package's folder). Bytecode of known sources is no extra."""
    site = os.path.dirname(info)
    known = {os.path.normpath(path) for path, _, _ in entries(info)}
    unknown = [path for path in _walk(site, packages) if path not in known]
    for other in others if unknown else []:
        if os.path.exists(os.path.join(other, "RECORD")):
            theirs = {os.path.normpath(path) for path, _, _ in entries(other)}
            unknown = [path for path in unknown if path not in theirs]
    executed = [path for path in unknown if path.endswith(EXECUTED) or _sourceless(path)]
    return {"files": len(unknown), "executed": executed[:MOST], "count": len(executed)}


def _sourceless(path: str) -> bool:
    """``mod.pyc`` beside where ``mod.py`` would be runs in its place; those in __pycache__ never run alone."""
    return path.endswith(".pyc") and os.path.basename(os.path.dirname(path)) != "__pycache__"


def _walk(site: str, packages: list[str]) -> Iterator[str]:
    for package in packages:
        for folder, folders, files in os.walk(os.path.join(site, package)):
            folders[:] = [f for f in folders if f != "__pycache__" and not os.path.islink(os.path.join(folder, f))]
            for name in files:
                yield os.path.relpath(os.path.join(folder, name), site)
