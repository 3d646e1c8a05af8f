"""Lines of SGLang: "Decode batch" with the accept length of the last logging interval.

The line gives an average and no counts. Each interval is ``decode_log_interval`` decode steps (40 unless the server's
arguments say otherwise) of every running request, so the number of drafts is an estimate and is marked as one.
"""

from __future__ import annotations

import math
import re

from draftproof.proof.runtime.windows import Window

MARK = "accept len:"
INTERVAL = 40
_FIELD = re.compile(r"(#running-req|accept len|accept rate|gen throughput \(token/s\)):\s*(-?[\d.]+|nan)")
_STAMP = re.compile(r"\[?(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2})")
_RANK = re.compile(r"\b(DP\d+)?\s*(TP\d+)?\s*(?:EP\d+|PP\d+)?\]")
_SERVICE = re.compile(r"^\s*([\w.-]+)\s*\|\s")
_INTERVAL = re.compile(r"decode_log_interval=(\d+)")


def interval(line: str) -> int | None:
    found = _INTERVAL.search(line)
    return int(found.group(1)) if found else None


def windows(line: str, steps: int = INTERVAL) -> list[Window | str]:
    """One window per "Decode batch" line. The accept length counts the bonus token, as mean acceptance length does."""
    if MARK not in line:
        return []
    got: dict[str, float] = {}
    for name, text in _FIELD.findall(line):
        got.setdefault(name, float(text))
    length, running = got.get("accept len"), got.get("#running-req")
    if length is None:
        return ["the line is cut: no accept length"]
    if not math.isfinite(length) or length < 0:
        return [f"an accept length of {length:g}"]
    if length == 0:
        return []  # nothing was decoded in this interval
    drafts = float(steps * max(running or 1.0, 1.0))
    accepted = max(0.0, length - 1.0) * drafts
    rate = got.get("accept rate")
    drafted = accepted / rate if rate else None
    stamp = _STAMP.search(line)
    made = Window(
        drafts,
        drafted,
        accepted,
        replica=_replica(line),
        stamp=stamp.group(1) if stamp else None,
        running=running,
        tok_s=got.get("gen throughput (token/s)"),
        length=length,
        rate=rate,
        estimated=True,
    )
    return [made]


def _replica(line: str) -> str:
    service, rank = _SERVICE.match(line), _RANK.search(line)
    parts = [service.group(1) if service else None, *(rank.groups() if rank else ())]
    return " ".join(part for part in parts if part)
