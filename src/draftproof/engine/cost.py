"""What a pass costs: seconds by number of rows, measured once at the start and corrected by every pass since."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

_RATE = 0.1  # weight of a new measurement near a point
_DRIFT = 0.05  # weight of a new measurement for the curve as a whole
_MOST = 3.0  # one pass counts at most as this many times dearer or cheaper than expected: it may have been disturbed


class CostCurve:
    """Seconds of a pass by its rows: straight lines between measured points, the first and last one prolonged.

    ``learn`` moves the points next to a new measurement, and the whole curve a little: longer contexts and a busier
    machine make every pass dearer. Before the first measurement every row costs the same.
    """

    def __init__(self, points: Sequence[tuple[int, float]] = ()) -> None:
        self._rows = [rows for rows, _ in sorted(points)]
        self._seconds = [seconds for _, seconds in sorted(points)]
        self._scale = 1.0

    @property
    def measured(self) -> bool:
        return bool(self._rows)

    def points(self) -> list[tuple[int, float]]:
        """(rows, seconds) as they stand now."""
        return [(r, s * self._scale) for r, s in zip(self._rows, self._seconds, strict=True)]

    def __call__(self, rows: int) -> float:
        if rows <= 0:
            return 0.0
        if len(self._rows) < 2:
            return self._seconds[0] * self._scale * rows / self._rows[0] if self._rows else float(rows)
        i = min(max(bisect_left(self._rows, rows), 1), len(self._rows) - 1)
        r0, r1, s0, s1 = self._rows[i - 1], self._rows[i], self._seconds[i - 1], self._seconds[i]
        along = (rows - r0) / (r1 - r0)
        return max(s0 + along * (s1 - s0), 0.5 * min(s0, s1)) * self._scale

    def learn(self, rows: int, seconds: float) -> None:
        """A pass of ``rows`` rows took ``seconds``."""
        if rows <= 0 or seconds <= 0.0:
            return
        if not self._rows:
            self._rows, self._seconds = [rows], [seconds]
            return
        ratio = min(max(seconds / self(rows), 1 / _MOST), _MOST)
        self._scale *= ratio**_DRIFT
        left = ratio ** (1 - _DRIFT)
        i = bisect_left(self._rows, rows)
        near = [j for j in (i - 1, i) if 0 <= j < len(self._rows)]
        span = abs(self._rows[near[-1]] - self._rows[near[0]]) or 1
        for j in near:
            closeness = 1.0 - min(abs(self._rows[j] - rows) / span, 1.0) if len(near) > 1 else 1.0
            self._seconds[j] *= left ** (_RATE * closeness)
        self._keep_rising()

    def _keep_rising(self) -> None:
        """More rows never cost less; a noisy measurement must not say so."""
        for j in range(1, len(self._seconds)):
            self._seconds[j] = max(self._seconds[j], self._seconds[j - 1])


def measure(run: Callable[[int], float], rows: Sequence[int], *, budget_s: float) -> CostCurve:
    """A curve from ``run(rows) -> seconds``: each size twice, the faster one counts; as many sizes as fit into
    ``budget_s``, the outermost first, since lines in between are better than lines beyond."""
    points: list[tuple[int, float]] = []
    spent = 0.0
    order = [rows[0], rows[-1], *rows[1:-1]] if len(rows) > 1 else list(rows)
    for size in order:
        if points and spent + 2.2 * max(s for _, s in points) > budget_s and len(points) > 1:
            break
        times = [run(size)]
        if spent + 2 * times[0] < budget_s:
            times.append(run(size))
        spent += sum(times)
        points.append((size, min(times)))
    return CostCurve(points)
