"""A distribution over token ids, held on the host: look up, sample, subtract."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Distribution:
    """Probabilities of tokens, summing to 1; tokens not listed have probability 0.

    ``ids``: int64 [k]; ``probs``: float64 [k]. Sparse ones come sorted by falling probability, then id
    (except from ``residual``, which keeps the order it was given). Dense ones list the whole vocabulary by
    id. The arrays must not be changed: look-ups are cached.
    """

    def __init__(self, ids: Ints | None, probs: Floats) -> None:
        """``ids`` None means dense: token i has probability ``probs[i]``."""
        self._ids = ids
        self.probs = probs

    @classmethod
    def point(cls, token: int) -> Distribution:
        """All mass on one token."""
        return cls(np.array([token], dtype=np.int64), np.ones(1))

    @property
    def dense(self) -> bool:
        return self._ids is None

    @cached_property
    def ids(self) -> Ints:
        return np.arange(len(self.probs), dtype=np.int64) if self._ids is None else self._ids

    @cached_property
    def _cumulative(self) -> Floats:
        return np.cumsum(self.probs)

    def __len__(self) -> int:
        return len(self.probs)

    def prob_of(self, token: int) -> float:
        """Probability of one token; 0 if it is not listed."""
        if self._ids is None:
            return float(self.probs[token]) if 0 <= token < len(self.probs) else 0.0
        hits = np.flatnonzero(self._ids == token)
        return float(self.probs[hits[0]]) if len(hits) else 0.0

    def probs_at(self, ids: Ints) -> Floats:
        """Probabilities of many tokens at once, [n] → [n]."""
        if self._ids is None:
            return self.probs[ids]
        order = np.argsort(self._ids)
        ranked = self._ids[order]
        slot = np.minimum(np.searchsorted(ranked, ids), len(ranked) - 1)
        return np.where(ranked[slot] == ids, self.probs[order[slot]], 0.0)

    def sample(self, u: float) -> int:
        """The token at quantile ``u`` in (0, 1) of the cumulative probabilities, in the order of ``ids``.

        Never a token of probability 0.
        """
        cumulative = self._cumulative
        # The first entry that reaches u · total > 0 has added something, so its probability is not 0. Scaling
        # by the rounded total keeps the last entries reachable and the search inside the array.
        slot = int(cumulative.searchsorted(u * cumulative[-1]))
        return slot if self._ids is None else int(self._ids[slot])

    def residual(self, q: Distribution) -> Distribution:
        """Normalised max(p − q, 0), p being this one: what a rejected draft from ``q`` is replaced from.

        p itself if nothing is left, which happens only where p = q up to rounding and rejection is all but
        impossible.
        """
        if self._ids is None:
            left = self.probs.copy()
            inside = q.ids < len(left)  # a drafter may know padded ids that the target does not
            left[q.ids[inside]] -= q.probs[inside]
        else:
            left = self.probs - q.probs_at(self._ids)
        np.maximum(left, 0.0, out=left)
        total = float(left.sum())
        return Distribution(self._ids, left / total) if total > 0.0 else self

    def __repr__(self) -> str:
        kind = "dense" if self.dense else "sparse"
        return f"Distribution({kind}, {len(self)} tokens)"
