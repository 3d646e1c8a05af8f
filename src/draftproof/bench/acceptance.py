"""How many drafted tokens stood: raw counts per round in, every published figure derived from them.

The engines count alike but print different things. Here τ, the mean acceptance length, includes the bonus
token and averages ``accepted + 1`` over rounds in which something was drafted, as vLLM does. It uses
``accepted``, not ``produced``: where a stop or a length limit cuts a request's last round, the verifier had
still accepted those tokens, and what cut them says nothing about the drafter. Rounds without drafts are
counted beside, since leaving them out makes τ exceed tokens per target forward.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from draftproof.engine.types import RoundStats
from draftproof.intervals import Interval, wilson

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_RESAMPLES = 4000
_SEED = 20260206


@dataclass(frozen=True)
class PositionRate:
    """Acceptance at one position of the block, 1-based.

    ``rate`` is vLLM's: rounds accepting at least this many, of all rounds. ``conditional`` is of the rounds
    that accepted everything before and had a draft here; None if there were none.
    """

    position: int
    proposed: int
    at_least: int
    rate: float
    rate_ci95: Interval | None
    conditional: float | None
    conditional_ci95: Interval | None


@dataclass(frozen=True, eq=False)
class AcceptanceCounts:
    """Per-round counts, all arrays of equal length, one entry per round, in order.

    ``depths``: longest proposed continuation (0: nothing drafted); ``accepted``: drafted tokens that stood;
    ``nodes``: drafted tokens, equal to the depth except in trees; ``groups``: the request or prompt each
    round belongs to, or None.
    """

    depths: Ints
    accepted: Ints
    nodes: Ints
    groups: tuple[Hashable, ...] | None = None

    @classmethod
    def from_rounds(
        cls, rounds: Iterable[RoundStats | tuple[int, int]], groups: Iterable[Hashable] | None = None
    ) -> AcceptanceCounts:
        """``rounds``: statistics or (drafted depth, accepted) pairs. ``groups``: one label per round."""
        triples = [
            (r.depth, r.accepted, r.drafted) if isinstance(r, RoundStats) else (r[0], r[1], r[0]) for r in rounds
        ]
        labels = None if groups is None else tuple(groups)
        if labels is not None and len(labels) != len(triples):
            raise ValueError(f"{len(triples)} rounds, but {len(labels)} group labels")
        table = np.array(triples, dtype=np.int64).reshape(-1, 3)
        bad = np.flatnonzero((table[:, 1] < 0) | (table[:, 1] > table[:, 0]))
        if len(bad):
            depth, accepted, _ = triples[bad[0]]
            raise ValueError(f"round {bad[0]}: accepted {accepted} tokens of a draft {depth} deep")
        return cls(table[:, 0], table[:, 1], table[:, 2], labels)

    def merge(self, other: AcceptanceCounts) -> AcceptanceCounts:
        """Both together. Equal group labels mean the same cluster; both sides have labels or neither has."""
        if (self.groups is None) != (other.groups is None):
            raise ValueError("cannot merge counts with group labels and counts without")
        return AcceptanceCounts(
            np.concatenate([self.depths, other.depths]),
            np.concatenate([self.accepted, other.accepted]),
            np.concatenate([self.nodes, other.nodes]),
            None if self.groups is None or other.groups is None else self.groups + other.groups,
        )

    @property
    def all_rounds(self) -> int:
        return len(self.depths)

    @cached_property
    def rounds(self) -> int:
        """Rounds with at least one drafted token; the denominator of τ and of the unconditional rates."""
        return int(np.count_nonzero(self.depths))

    @property
    def undrafted_share(self) -> float:
        """Share of all rounds in which nothing was drafted; 0 without rounds."""
        return 1.0 - self.rounds / self.all_rounds if self.all_rounds else 0.0

    @cached_property
    def drafted(self) -> int:
        """Drafted tokens; tree: nodes."""
        return int(self.nodes.sum())

    @cached_property
    def accepted_tokens(self) -> int:
        return int(self.accepted.sum())

    @cached_property
    def at_least(self) -> list[int]:
        """``at_least[k]``: rounds with drafts that accepted k or more; ``at_least[0]`` is ``rounds``."""
        return _exceeding(self.accepted[self.depths > 0], self.max_depth)

    @cached_property
    def proposed(self) -> list[int]:
        """``proposed[k]``: rounds whose draft was k or more deep."""
        return _exceeding(self.depths[self.depths > 0], self.max_depth)

    @property
    def max_depth(self) -> int:
        return int(self.depths.max()) if self.all_rounds else 0

    @property
    def tau(self) -> float | None:
        """Mean acceptance length, bonus included; None if no round drafted anything."""
        return 1.0 + self.accepted_tokens / self.rounds if self.rounds else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted tokens per drafted token; None if nothing was drafted."""
        return self.accepted_tokens / self.drafted if self.drafted else None

    def positions(self) -> list[PositionRate]:
        """Rates at positions 1 to the deepest draft."""
        rates = []
        for k in range(1, self.max_depth + 1):
            hits = self.at_least[k]
            tried = int(np.count_nonzero((self.accepted >= k - 1) & (self.depths >= k)))
            rates.append(
                PositionRate(
                    position=k,
                    proposed=self.proposed[k],
                    at_least=hits,
                    rate=hits / self.rounds,
                    rate_ci95=wilson(hits, self.rounds),
                    conditional=hits / tried if tried else None,
                    conditional_ci95=wilson(hits, tried),
                )
            )
        return rates

    def tau_ci95(self, resamples: int = _RESAMPLES, seed: int = _SEED) -> Interval | None:
        """95 % percentile bootstrap interval of τ; None with fewer than two clusters.

        Clusters are groups if there are any, because rounds of one answer resemble each other; else rounds.
        The seed is fixed, so the same counts give the same interval.
        """
        drafted = self.depths > 0
        accepted = self.accepted[drafted]
        if self.groups is None:
            # Rounds with the same count are interchangeable, so drawing how often each count occurs is the
            # same as drawing rounds, at a cost that does not grow with their number.
            sums, multiplicity = np.unique(accepted, return_counts=True)
            sizes = np.ones_like(sums)
        else:
            index = _codes([g for g, d in zip(self.groups, drafted, strict=True) if d])
            table = np.stack([np.bincount(index, weights=accepted), np.bincount(index)], axis=1).astype(np.int64)
            table, multiplicity = np.unique(table, axis=0, return_counts=True)
            sums, sizes = table[:, 0], table[:, 1]
        clusters = int(multiplicity.sum())
        if clusters < 2:
            return None
        rng = np.random.default_rng(seed)
        chunk = max(1, 2_000_000 // len(sums))  # bounds memory when there are many different clusters
        taus: list[Floats] = []
        for start in range(0, resamples, chunk):
            size = min(chunk, resamples - start)
            draws = rng.multinomial(clusters, multiplicity / clusters, size=size)
            taus.append(1.0 + (draws @ sums) / (draws @ sizes))
        low, high = np.quantile(np.concatenate(taus), [0.025, 0.975])
        return float(low), float(high)

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types: raw counts first, then what follows from them."""
        return {
            "rounds": self.rounds,
            "rounds_without_draft": self.all_rounds - self.rounds,
            "undrafted_share": self.undrafted_share,
            "drafted": self.drafted,
            "accepted": self.accepted_tokens,
            "at_least": self.at_least,
            "proposed": self.proposed,
            "tau": self.tau,
            "tau_ci95": _listed(self.tau_ci95()),
            "acceptance_rate": self.acceptance_rate,
            "positions": [
                {
                    "position": p.position,
                    "rate": p.rate,
                    "rate_ci95": _listed(p.rate_ci95),
                    "conditional": p.conditional,
                    "conditional_ci95": _listed(p.conditional_ci95),
                }
                for p in self.positions()
            ],
        }


def _exceeding(values: Ints, top: int) -> list[int]:
    """How many values are ≥ k, for k = 0 … top."""
    counts = np.bincount(values, minlength=top + 1)
    return [int(n) for n in np.cumsum(counts[::-1])[::-1]]


def _codes(labels: Sequence[Hashable]) -> Ints:
    """Each label's index among the distinct ones, in order of appearance."""
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(label, len(seen)) for label in labels], dtype=np.int64)


def _listed(interval: Interval | None) -> list[float] | None:
    return None if interval is None else list(interval)
