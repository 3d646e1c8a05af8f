"""Windows added up, per replica and over time, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from draftproof.proof.runtime.windows import Window

_POINTS = 2048  # of the series over time; neighbours are joined when there are more
_ZERO = 1.02  # a mean acceptance length below this is an exact zero in practice
_ENOUGH = 200.0  # drafts on both sides of a step


@dataclass
class Sum:
    """Sums over windows. ``drafts``: of the windows that settle it, with the accepted tokens of the same windows in
    ``accepted_of_drafts``. ``hits``: likewise by position, over ``drafts_of_hits`` drafts."""

    windows: int = 0
    drafts: float = 0.0
    accepted_of_drafts: float = 0.0
    drafted: float = 0.0
    accepted: float = 0.0
    hits: list[float] = field(default_factory=list)
    drafts_of_hits: float = 0.0
    estimated: bool = False
    first_line: int = 0
    last_line: int = 0

    def add(self, window: Window) -> None:
        self.windows += 1
        self.first_line = self.first_line or window.line
        self.last_line = window.line
        self.estimated |= window.estimated
        accepted = window.accepted or 0.0
        self.drafted += window.drafted or 0.0
        self.accepted += accepted
        if window.drafts is not None:
            self.drafts += window.drafts
            self.accepted_of_drafts += accepted
        if window.hits is not None and window.drafts:
            self.drafts_of_hits += window.drafts
            if len(window.hits) > len(self.hits):
                self.hits += [0.0] * (len(window.hits) - len(self.hits))
            for position, count in enumerate(window.hits):
                self.hits[position] += count

    @property
    def length(self) -> float | None:
        return 1.0 + self.accepted_of_drafts / self.drafts if self.drafts else None

    def metrics(self) -> dict[str, object]:
        """In the words of a case; only what was counted."""
        found: dict[str, object] = {}
        if self.drafts:
            whole = self.accepted_of_drafts == self.accepted
            found["num_drafts"] = round(self.drafts)
            found["mean_acceptance_length"] = round(1.0 + self.accepted_of_drafts / self.drafts, 4)
            if whole:
                found["num_accepted_tokens"] = round(self.accepted)
        elif self.windows:
            found["num_accepted_tokens"] = round(self.accepted)
        if self.drafted:
            found["num_draft_tokens"] = round(self.drafted)
            found["acceptance_rate"] = round(self.accepted / self.drafted, 5)
        if self.hits and self.drafts_of_hits:
            found["accepted_per_position"] = [round(count / self.drafts_of_hits, 4) for count in self.hits]
        return found


@dataclass
class Tally:
    """All windows of a log: in total, by replica, over time, with one and with several requests in flight."""

    total: Sum = field(default_factory=Sum)
    replicas: dict[str, Sum] = field(default_factory=dict)
    alone: Sum = field(default_factory=Sum)
    together: Sum = field(default_factory=Sum)
    series: list[tuple[float, float]] = field(default_factory=list)  # (drafts, accepted), in order
    totals: dict[str, Window] = field(default_factory=dict)  # latest running totals by source
    running_most: float = 0.0
    tok_s: list[float] = field(default_factory=lambda: [0.0, 0.0])  # sum and number of speeds seen
    _last_running: dict[str, float] = field(default_factory=dict)
    _stride: int = 1
    _held: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    def add(self, window: Window) -> None:
        if window.cumulative:
            self.totals[window.replica] = window
            return
        self.total.add(window)
        self.replicas.setdefault(window.replica, Sum()).add(window)
        running = window.running if window.running is not None else self._last_running.get(_engine(window.replica))
        if running is not None:
            (self.alone if running <= 1 else self.together).add(window)
        if window.running is not None:
            self.running_most = max(self.running_most, window.running)
        if window.tok_s:
            self.speed(window.tok_s)
        if window.drafts:
            self._point(window.drafts, window.accepted or 0.0)

    def load(self, replica: str, running: float, tok_s: float) -> None:
        """What the engine's own line says just before or after its window."""
        self._last_running[_engine(replica)] = running
        self.running_most = max(self.running_most, running)
        if tok_s:
            self.speed(tok_s)

    def speed(self, tok_s: float) -> None:
        self.tok_s[0] += tok_s
        self.tok_s[1] += 1

    def finish(self) -> None:
        """Running totals count where no single windows were printed."""
        if not self.total.windows:
            for window in self.totals.values():
                self.total.add(window)
        elif not self.total.drafts and self.totals:  # requests without the number of steps: the totals know it
            steps = sum(window.drafts or 0.0 for window in self.totals.values())
            accepted = sum(window.accepted or 0.0 for window in self.totals.values())
            if accepted == self.total.accepted:
                self.total.drafts, self.total.accepted_of_drafts = steps, accepted

    def step_to_zero(self) -> tuple[Sum, Sum] | None:
        """(before, after) if acceptance fell to zero at some point and never came back; None otherwise."""
        after = Sum()
        points = list(self.series)
        while points:
            drafts, accepted = points[-1]
            if 1.0 + (after.accepted + accepted) / max(after.drafts + drafts, 1.0) >= _ZERO:
                break
            after.add(Window(drafts, None, accepted))
            points.pop()
        before = Sum()
        for drafts, accepted in points:
            before.add(Window(drafts, None, accepted))
        worked = before.length is not None and before.length >= 1.3
        return (before, after) if worked and before.drafts >= _ENOUGH and after.drafts >= _ENOUGH else None

    def _point(self, drafts: float, accepted: float) -> None:
        held = self._held
        held[0] += drafts
        held[1] += accepted
        held[2] += 1
        if held[2] < self._stride:
            return
        self.series.append((held[0], held[1]))
        self._held = [0.0, 0.0, 0.0]
        if len(self.series) > _POINTS:
            pairs = zip(self.series[::2], self.series[1::2], strict=False)
            self.series = [(a[0] + b[0], a[1] + b[1]) for a, b in pairs]
            self._stride *= 2


def _engine(replica: str) -> str:
    """Windows and load lines of one process share this part of their name."""
    return replica.split(" engine")[0]
