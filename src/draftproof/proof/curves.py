"""Healthy and faulty per-position curves to set an observed one against."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from draftproof.proof.published import rows
from draftproof.proof.quantities import low_line

_FLOOR = 1e-3  # a posted 0.000 is a rounded figure, not an impossibility
_HEALTHY_ROWS_BELOW = {"before v2"}  # published beside a better revision of the same drafter


@dataclass(frozen=True)
class FaultCurve:
    code: str
    label: str
    rates: tuple[float, ...]
    source: str


@lru_cache(maxsize=1)
def fault_curves() -> tuple[FaultCurve, ...]:
    text = resources.files("draftproof.proof").joinpath("data/fault_curves.toml").read_text(encoding="utf-8")
    return tuple(FaultCurve(**{**row, "rates": tuple(row["rates"])}) for row in tomllib.loads(text)["curve"])


def band(method: str | None, positions: int) -> tuple[list[float], list[float]] | None:
    """(lower, upper) edge of healthy rates by position: the low line's own terms, and the best published curve.

    Beyond the published positions the best curve goes on with its last conditional rate. None for methods without a
    low line."""
    lengths = [low_line(method, n) for n in range(1, positions + 1)]
    if any(length is None for length in lengths):
        return None
    known = [1.0, *(length for length in lengths if length is not None)]
    lower = [after - before for before, after in itertools.pairwise(known)]
    curves = [row.curve for row in rows() if row.curve and row.revision not in _HEALTHY_ROWS_BELOW]
    return lower, [max(_at(curve, n) for curve in curves) for n in range(positions)]


def _at(curve: Sequence[float], n: int) -> float:
    if n < len(curve):
        return curve[n]
    return curve[-1] * (curve[-1] / curve[-2]) ** (n - len(curve) + 1)


def nearest(observed: Sequence[float], drafts: float | None, most: int = 2) -> list[tuple[FaultCurve, float]]:
    """Posted fault curves by likelihood of the observed stops, with their share among all of these (1 in sum).

    A draft stops after 0, 1, … accepted tokens; a curve gives the probability of each. Posted curves come from other
    models and texts, so at most 200 drafts are counted: more would turn likeness into certainty."""
    weight = min(drafts or 50.0, 200.0)
    scored = []
    for curve in fault_curves():
        shared = min(len(curve.rates), len(observed))
        seen, model = _stops(observed[:shared]), _stops(curve.rates[:shared])
        divergence = sum(o * math.log(max(o, _FLOOR) / max(m, _FLOOR)) for o, m in zip(seen, model, strict=True))
        scored.append((curve, math.exp(-weight * max(divergence, 0.0) / 10)))
    total = sum(score for _, score in scored)
    shares = [(curve, score / total if total else 0.0) for curve, score in scored]
    return sorted(shares, key=lambda pair: -pair[1])[:most]


def _stops(rates: Sequence[float]) -> list[float]:
    steps = [1.0, *rates, 0.0]
    return [max(before - after, 0.0) for before, after in itertools.pairwise(steps)]
