"""How far drafts are accepted lately: per request, over the whole engine, and by the drafter's own confidence.

Everything is kept as decayed counts of raw outcomes; rates are derived when asked for. *Rank* is the place of a
drafted node in the order of verification: 0 for a chain's first token or a tree's likeliest node.
"""

from __future__ import annotations

from collections.abc import Sequence

_REQUEST_DECAY = 0.93  # about the last fourteen drafted rounds of a request count
_ENGINE_DECAY = 0.99
_PRIOR_WEIGHT = 3.0  # rounds of its own after which a request outweighs what others showed
_FIRST_GUESS = 0.6  # conditional acceptance before anything is known: high enough to try
_GUESS_WEIGHT = 6.0  # drafted rounds until what was seen outweighs the guess
_BINS = 12
_BIN_WEIGHT = 4.0
_BIN_DECAY = 0.997


class RunningAcceptance:
    """Decayed counts of one request (or of the engine): of the rounds that drafted, how many accepted rank k."""

    def __init__(self, ranks: int, decay: float = _REQUEST_DECAY) -> None:
        self._decay = decay
        self._hits = [0.0] * ranks
        self._rounds = [0.0] * ranks

    def learn(self, outcomes: Sequence[float]) -> None:
        """``outcomes[k]``: 1 if rank k was accepted, 0 if not, a probability if it was not put to the test."""
        decay = self._decay
        for k, outcome in enumerate(outcomes):
            self._hits[k] = self._hits[k] * decay + outcome
            self._rounds[k] = self._rounds[k] * decay + 1.0

    def rates(self, prior: Sequence[float], weight: float = _PRIOR_WEIGHT) -> list[float]:
        """Unconditional acceptance by rank, shrunk towards ``prior`` while there is little to go by."""
        return [
            (hits + weight * before) / (rounds + weight)
            for hits, rounds, before in zip(self._hits, self._rounds, prior, strict=True)
        ]


def first_guess(ranks: int) -> list[float]:
    return [_FIRST_GUESS ** (k + 1) for k in range(ranks)]


class EngineAcceptance:
    """What all requests showed: the prior of a new one, and what the drafter's confidence is worth."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._counts = RunningAcceptance(ranks, _ENGINE_DECAY)
        self._guess = first_guess(ranks)
        self.confidence = {True: Calibration(), False: Calibration()}  # by greedy verification or not

    def learn(self, own: RunningAcceptance, outcomes: Sequence[float]) -> None:
        own.learn(outcomes)
        self._counts.learn(outcomes)

    def prior(self) -> list[float]:
        return self._counts.rates(self._guess, _GUESS_WEIGHT)

    def new(self) -> RunningAcceptance:
        return RunningAcceptance(self._ranks)


class Calibration:
    """From the probability that the drafter gives a token to the share of such tokens that are accepted.

    Bins of equal width with decayed counts; each starts at its own probability, as if the drafter were right.
    """

    def __init__(self) -> None:
        self._hits = [_BIN_WEIGHT * (b + 0.5) / _BINS for b in range(_BINS)]
        self._seen = [_BIN_WEIGHT] * _BINS

    def __call__(self, probability: float) -> float:
        """Between the middles of bins on a line, so that a more confident token never ranks far below."""
        low, high, share = self._place(probability)
        left, right = self._hits[low] / self._seen[low], self._hits[high] / self._seen[high]
        return left + share * (right - left)

    def learn(self, probability: float, accepted: bool) -> None:
        low, high, share = self._place(probability)
        for b, weight in ((low, 1.0 - share), (high, share)):
            decay = _BIN_DECAY**weight
            self._hits[b] = self._hits[b] * decay + weight * accepted
            self._seen[b] = self._seen[b] * decay + weight

    @staticmethod
    def _place(probability: float) -> tuple[int, int, float]:
        """The bins on both sides, and how far along from one middle to the other."""
        at = min(max(probability * _BINS - 0.5, 0.0), _BINS - 1.0)
        low = int(at)
        return low, min(low + 1, _BINS - 1), at - low
