"""How much to draft: each round the lengths that promise most tokens a second for the whole batch, down to none.

Two decisions, both by the same search. Before the draft: which requests draft how many tokens, from the acceptance
they showed lately. After it: how much of each draft is worth verifying, from the drafter's own confidence. Both
weigh expected tokens against measured seconds (``cost``). A rank's expected gain is the probability that it is
accepted; ranks are taken best first, so the best batch is among the prefixes of one sorted list.

Cutting a draft by confidence keeps sampling exact because the cut looks at the drafter's distributions, never at
the tokens drawn from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from draftproof.engine.acceptance import EngineAcceptance
from draftproof.engine.cost import CostCurve
from draftproof.engine.request import Request

_HYSTERESIS = 1.02  # another choice must promise this much more than going on as before
_MARGIN = 1.04  # drafting must promise so much more than not drafting: costs and acceptance are estimates
_PLAIN_EVERY = 64  # rounds of drafting after which one goes without, or what that costs would never be learned again
_EXPLORE_SHARE = 0.01  # of the time may go into drafts that do not promise to pay
_EXPLORE_MOST = 0.25  # seconds of it that can be saved up
_EXPLORE_FIRST = 0.15  # seconds of it at the start, when nothing is known of the drafter
_OPTIMISM = 0.95  # acceptance of each further token by the best drafter there could be
_REST_ROUNDS = 8  # rounds for which "no drafts" is not questioned while the batch stays the same
_EXPLORE_TESTED = 2  # tokens put to the test even if they are unlikely


@dataclass
class Costs:
    """Seconds of a target pass by rows and of a draft by block rows; ``host_s``: all else, per request and round."""

    target: CostCurve = field(default_factory=CostCurve)
    draft: CostCurve = field(default_factory=CostCurve)
    host_s: float = 0.0

    def learn_host(self, seconds: float, requests: int) -> None:
        self.host_s += 0.05 * (seconds / max(requests, 1) - self.host_s)


@dataclass(frozen=True)
class Batch:
    """What a choice is made for. ``most[i]``: ranks that request i may have; ``prompt_rows`` share the pass;
    ``draft_rows``: ranks that all drafts together may add.

    Time is valued as in a pass without prompts. A long prompt makes a pass long, but does not make time cheap: what
    drafts add to it keeps everybody waiting, those whose prompt is being read included.
    """

    requests: Sequence[Request]
    most: Sequence[int]
    prompt_rows: int
    draft_rows: int


@dataclass(frozen=True)
class Choice:
    """Ranks per request, and the reason, as words with numbers."""

    lengths: list[int]
    reason: str
    exploring: int = -1  # index of the request that drafts to learn
    plain_test: bool = False  # nobody drafts, to learn what that costs


class _Times:
    """Seconds of a round of a batch by what is drafted; see ``Batch`` for what its prompts count."""

    def __init__(self, costs: Costs, batch: Batch) -> None:
        self._costs = costs
        self._rows = len(batch.requests) + batch.prompt_rows
        self._rest = costs.host_s * len(batch.requests)
        if batch.prompt_rows:
            self._rest += costs.target(len(batch.requests)) - costs.target(self._rows)
        self.plain = len(batch.requests) / self(0)

    def __call__(self, ranks: int, block_rows: int = 0) -> float:
        return self._costs.target(self._rows + ranks) + self._costs.draft(block_rows) + self._rest

    def worth_weighing(self, gains: Sequence[Sequence[float]]) -> list[tuple[float, int]]:
        """(gain, request) of all ranks, best first, without those that can never pay: that bring less in the time
        of the cheapest further row than the target alone does in it. In a large batch most cannot."""
        most = sum(map(len, gains))
        sizes = {1 << k for k in range(most.bit_length())} | {most}
        row_s = min(((self(n) - self(0)) / n for n in sizes if n), default=0.0)
        ranks = ((g, i) for i, each in enumerate(gains) for g in each if g > self.plain * row_s)
        return sorted(ranks, key=lambda pair: -pair[0])


class FixedLengths:
    """Always as many as allowed: what was asked for, or what the row budget leaves."""

    adaptive = False

    def choose(self, batch: Batch) -> Choice:
        left = batch.draft_rows
        lengths = list(batch.most)
        while sum(lengths) > left and any(lengths):
            longest = max(lengths)
            lengths = [min(n, longest - 1) for n in lengths]
        return Choice(lengths, "fixed length")


class AdaptiveLengths:
    """See the module's docstring. ``depth``: rows a tree's block has beside its anchor; None: chains, whose block
    is as long as what is verified. ``credit``: seconds that drafts of which nothing is known yet may cost."""

    adaptive = True

    def __init__(
        self, costs: Costs, acceptance: EngineAcceptance, depth: int | None = None, credit: float = _EXPLORE_FIRST
    ) -> None:
        self.costs = costs
        self.acceptance = acceptance
        self._depth = depth
        self._credit = credit
        self._round = 0
        self._drafting = 0  # rounds with drafts since the last without
        self._rest_until = 0
        self._rested: list[int] = []  # of which requests, by identity
        self._worth_exploring = False

    # -- before the draft ---------------------------------------------------------------------------------

    def choose(self, batch: Batch) -> Choice:
        self._round += 1
        times = _Times(self.costs, batch)
        lengths, rate, explorer = [0] * len(batch.requests), times.plain, -1
        if self._resting(batch):
            explorer = self._explorer(batch, lengths, times) if self._worth_exploring else -1
        elif self._could_pay(batch, times):
            lengths, rate = self._settle(batch, times)
            explorer = self._explorer(batch, lengths, times)
            self._rest(batch, lengths, worth_exploring=True)
        else:
            self._rest(batch, lengths, worth_exploring=False)
        if explorer >= 0:
            self._rest_until = 0  # something is about to be learned
        for request, length in zip(batch.requests, lengths, strict=True):
            request.drafted_last = length
        if explorer >= 0:
            lengths[explorer] = batch.most[explorer]
        drafting = any(lengths)
        self._drafting = self._drafting + 1 if drafting else 0
        test = drafting and self._drafting % _PLAIN_EVERY == 0
        for request, length in zip(batch.requests, lengths, strict=True):
            request.last_draft = self._round if length else request.last_draft
        if test:
            lengths, explorer = [0] * len(lengths), -1
        return Choice(lengths, self._reason(batch, rate / times.plain), explorer, test)

    def _resting(self, batch: Batch) -> bool:
        """Was it found for these very requests, a few rounds ago, that nothing pays? Without drafts nothing has been
        learned since that could change it."""
        return self._round < self._rest_until and self._rested == [id(r) for r in batch.requests]

    def _rest(self, batch: Batch, lengths: Sequence[int], *, worth_exploring: bool) -> None:
        self._rest_until = 0 if any(lengths) else self._round + _REST_ROUNDS
        self._rested = [id(r) for r in batch.requests]
        self._worth_exploring = worth_exploring

    def _could_pay(self, batch: Batch, times: _Times) -> bool:
        """Would a drafter that is nearly always right be worth its time, for one request or for all? In a large
        batch none is, and nothing more needs to be weighed."""
        deepest = min(max(batch.most), batch.draft_rows)
        for n in {1, 2, 4, deepest} if deepest > 0 else ():
            gained = sum(_OPTIMISM**k for k in range(1, n + 1))
            for many in {1, sum(most > 0 for most in batch.most)}:
                seconds = times(many * n, many * self._draft_rows(n))
                if (len(batch.requests) + many * gained) / seconds > times.plain:
                    return True
        return False

    def _settle(self, batch: Batch, times: _Times) -> tuple[list[int], float]:
        """The best lengths, or those of the last round if they are about as good."""
        prior = self.acceptance.prior()
        gains = [self._gains(r, most, prior) for r, most in zip(batch.requests, batch.most, strict=True)]
        lengths, rate = self._search(gains, times, batch.draft_rows)
        kept = [min(r.drafted_last, most) for r, most in zip(batch.requests, batch.most, strict=True)]
        if kept != lengths and sum(kept) <= batch.draft_rows:
            as_before = self._rate(gains, kept, times)
            worth_it = not any(kept) or as_before > times.plain * _HYSTERESIS
            if worth_it and rate < as_before * _HYSTERESIS:
                return kept, as_before
        return lengths, rate

    def _gains(self, request: Request, most: int, prior: Sequence[float]) -> list[float]:
        if most == 0:
            return []
        if request.acceptance is None:
            request.acceptance = self.acceptance.new()
        return _falling(request.acceptance.rates(prior)[:most])

    def _draft_rows(self, length: int) -> int:
        """Rows of the drafter's block for a request."""
        return 0 if length == 0 else 1 + (length if self._depth is None else self._depth)

    def _search(self, gains: Sequence[Sequence[float]], times: _Times, most_rows: int) -> tuple[list[int], float]:
        """Best-first through all ranks; the prefix with the highest rate of expected tokens wins."""
        order = times.worth_weighing(gains)
        lengths = [0] * len(gains)
        tokens, block_rows = float(len(gains)), 0
        best, best_rate = 0, times.plain * _MARGIN
        for taken, (gain, i) in enumerate(order[:most_rows], start=1):
            block_rows += self._draft_rows(lengths[i] + 1) - self._draft_rows(lengths[i])
            lengths[i] += 1
            tokens += gain
            rate = tokens / times(taken, block_rows)
            if rate > best_rate:
                best, best_rate = taken, rate
        return _counted(order[:best], len(gains)), best_rate if best else times.plain

    def _rate(self, gains: Sequence[Sequence[float]], lengths: Sequence[int], times: _Times) -> float:
        tokens = len(gains) + sum(sum(g[:n]) for g, n in zip(gains, lengths, strict=True))
        return tokens / times(sum(lengths), sum(self._draft_rows(n) for n in lengths))

    def _explorer(self, batch: Batch, lengths: Sequence[int], times: _Times) -> int:
        """Who drafts although it does not promise to pay: the one not looked at for longest, if time was saved."""
        able = [i for i, most in enumerate(batch.most) if most and not lengths[i]]
        if not able:
            return -1
        i = min(able, key=lambda i: batch.requests[i].last_draft)
        rows = batch.most[i]
        if rows + sum(lengths) > batch.draft_rows:
            return -1
        extra = times(min(rows, _EXPLORE_TESTED), self._draft_rows(rows)) - times(0)
        if extra > self._credit:
            return -1
        self._credit -= extra
        return i

    def _reason(self, batch: Batch, gain: float) -> str:
        streams = len(batch.requests)
        if gain <= 1.0:
            return f"no draft promises to pay at {streams} streams"
        return f"{gain:.2f} times the target alone expected at {streams} streams"

    # -- after the draft ----------------------------------------------------------------------------------

    def trim(self, batch: Batch, choice: Choice, drafts: Sequence[Sequence[float]]) -> list[int]:
        """Ranks to verify. ``drafts[i]``: for each of request i's drafted ranks the probability that it is
        accepted; empty if nothing was drafted."""
        times = _Times(self.costs, batch)
        gains = [_falling(p) for p in drafts]
        order = times.worth_weighing(gains)
        tokens, best, best_rate = float(len(gains)), 0, times.plain
        for taken, (gain, _) in enumerate(order[: batch.draft_rows], start=1):
            tokens += gain
            rate = tokens / times(taken)
            if rate > best_rate:
                best, best_rate = taken, rate
        lengths = _counted(order[:best], len(gains))
        if choice.exploring >= 0:
            at = choice.exploring
            lengths[at] = max(lengths[at], min(_EXPLORE_TESTED, len(gains[at])))
        return lengths

    # -- afterwards ---------------------------------------------------------------------------------------

    def spent(self, seconds: float) -> None:
        """A step took this long: a share of it may be explored with."""
        self._credit = min(self._credit + _EXPLORE_SHARE * seconds, _EXPLORE_MOST)


def _counted(chosen: Sequence[tuple[float, int]], requests: int) -> list[int]:
    lengths = [0] * requests
    for _, i in chosen:
        lengths[i] += 1
    return lengths


def _falling(values: Sequence[float]) -> list[float]:
    """No rank is worth more than the one before it, which must be accepted first."""
    out: list[float] = []
    for value in values:
        out.append(min(value, out[-1]) if out else value)
    return out
