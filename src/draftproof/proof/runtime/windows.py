"""One statement of an engine about its drafts, whoever prints it: raw counts as far as it gives them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_ROUNDING = 0.006  # lengths are printed with two decimals


@dataclass
class Window:
    """``drafts``: verify steps with at least one drafted token, None if the line does not settle it; ``estimated``:
    the number of drafts follows from an interval of the engine, not from counts. ``hits``: drafts that accepted at
    least 1, 2, … tokens. ``replica``: which process, as the line names it. ``running``: requests in flight."""

    drafts: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    hits: tuple[float, ...] | None = None
    replica: str = ""
    stamp: str | None = None
    running: float | None = None
    tok_s: float | None = None
    length: float | None = None
    rate: float | None = None
    cumulative: bool = False
    estimated: bool = False
    line: int = 0


def window_of(
    *,
    accepted: float,
    drafted: float,
    length: float | None = None,
    rates: Sequence[float] | None = None,
    **rest: object,
) -> Window | str:
    """A window from printed figures, or the sentence that says why it is none."""
    figures = [accepted, drafted, *([length] if length is not None else []), *(rates or ())]
    if not all(map(math.isfinite, figures)):
        return "a number that is none (nan, inf)"
    if min(figures) < 0:
        return "a negative count"
    if accepted > drafted:
        return f"more accepted than drafted tokens ({accepted:g} of {drafted:g})"
    if any(rate > 1.0 for rate in rates or ()):
        return "a rate above 1"
    drafts = drafts_of(accepted, drafted, length, len(rates) if rates else None)
    hits = None if drafts is None or not rates else tuple(round(rate * drafts) for rate in rates)
    return Window(drafts, drafted, accepted, hits, length=length, **rest)  # type: ignore[arg-type]


def drafts_of(accepted: float, drafted: float, length: float | None, k: int | None) -> float | None:
    """How many drafts printed figures stand for: drafted / k where the printed length agrees (full drafts), else
    what the length says (drafts were cut, by a grammar or an adaptive length). None: not settled."""
    if drafted == 0:
        return 0.0
    full = drafted / k if k else None
    if length is None or length <= 1.0:
        return None if full is None else float(round(full))
    if full is not None and abs(length - 1.0 - accepted / full) <= _ROUNDING:
        return float(round(full))
    return float(round(accepted / (length - 1.0))) if accepted else (None if full is None else float(round(full)))
