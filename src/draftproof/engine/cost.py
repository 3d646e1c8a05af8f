"""What a pass costs: seconds by number of rows, measured once at the start and corrected by every pass since."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate

_SLOWER = 0.1  # weight of a new measurement near a point
_FASTER = 0.4  # nothing makes a pass faster than it is, so this is believed sooner
_DRIFT = 0.05  # weight of a new measurement for the curve as a whole
_MOST = 4.0  # one pass counts at most as this many times dearer or cheaper than expected: it may have been disturbed


class CostCurve:
    """Seconds of a pass by its rows: straight lines between measured points, the first and last one prolonged.

    ``learn`` moves the points next to a new measurement, and the whole curve a little: longer contexts and a busier
    machine make every pass dearer. Before the first measurement every row costs the same.
    """

    def __init__(self, points: Sequence[tuple[int, float]] = ()) -> None:
        self._rows = [rows for rows, _ in sorted(points)]
        self._seconds = [seconds for _, seconds in sorted(points)]
        self._scale = 1.0
        self._rising = list(self._seconds)

    @property
    def measured(self) -> bool:
        return bool(self._rows)

    def points(self) -> list[tuple[int, float]]:
        """(rows, seconds) as they stand now."""
        return [(r, s * self._scale) for r, s in zip(self._rows, self._rising, strict=True)]

    def __call__(self, rows: int) -> float:
        if rows <= 0:
            return 0.0
        if len(self._rows) < 2:
            return self._rising[0] * self._scale * rows / self._rows[0] if self._rows else float(rows)
        i = min(max(bisect_left(self._rows, rows), 1), len(self._rows) - 1)
        r0, r1, s0, s1 = self._rows[i - 1], self._rows[i], self._rising[i - 1], self._rising[i]
        return max(s0 + (rows - r0) / (r1 - r0) * (s1 - s0), 0.5 * s0) * self._scale

    def learn(self, rows: int, seconds: float) -> None:
        """A pass of ``rows`` rows took ``seconds``."""
        if rows <= 0 or seconds <= 0.0:
            return
        if not self._rows:
            self._rows, self._seconds, self._rising = [rows], [seconds], [seconds]
            return
        ratio = min(max(seconds / self(rows), 1 / _MOST), _MOST)
        self._scale *= ratio**_DRIFT
        left = ratio ** ((1 - _DRIFT) * (_SLOWER if ratio > 1 else _FASTER))
        i = bisect_left(self._rows, rows)
        near = [j for j in (i - 1, i) if 0 <= j < len(self._rows)]
        span = abs(self._rows[near[-1]] - self._rows[near[0]]) or 1
        for j in near:
            closeness = 1.0 - min(abs(self._rows[j] - rows) / span, 1.0) if len(near) > 1 else 1.0
            self._seconds[j] *= left**closeness
        # More rows never cost less, whatever a disturbed measurement says.
        self._rising = list(accumulate(self._seconds, max))


def measure(run: Callable[[int], float], rows: Sequence[int], *, budget_s: float) -> CostCurve:
    """A curve from ``run(rows) -> seconds``: up to three sweeps over the sizes, of which the fastest counts, since
    what disturbs a pass only makes it slower; from the smallest size on as many as fit into ``budget_s``."""
    run(rows[0])  # the first pass of all takes memory and fills caches
    best: dict[int, float] = {}
    spent = 0.0
    for _ in range(3):
        for size in rows:
            known = best.get(size) or max((s * size / r for r, s in best.items()), default=0.0)
            if spent + known > budget_s and len(best) > 1:
                break
            seconds = run(size)
            spent += seconds
            best[size] = min(seconds, best.get(size, seconds))
    sizes = sorted(best)
    # Fewer rows never cost more: where they seem to, they were disturbed.
    fastest = list(accumulate((best[size] for size in reversed(sizes)), min))
    return CostCurve(list(zip(sizes, reversed(fastest), strict=True)))
