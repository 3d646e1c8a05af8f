"""Confidence intervals that need nothing but arithmetic, shared by measurements and by the judging of reports."""

from __future__ import annotations

import math

Interval = tuple[float, float]

_Z95 = 1.959963984540054  # 97.5 % quantile of the standard normal


def wilson(successes: float, trials: float, z: float = _Z95) -> Interval | None:
    """Wilson score interval (1927) of a rate; None without trials. Takes trials as independent."""
    if trials < 1e-9:
        return None
    rate, z2 = min(max(successes / trials, 0.0), 1.0), z * z  # counters of a broken log may contradict each other
    centre = rate + z2 / (2 * trials)
    spread = z * math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials * trials))
    scale = 1 + z2 / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
