"""How likely observed acceptance is under each explanation of a fingerprint file, and under none of them.

The rates of acceptance by position and condition are one vector. Under an explanation it scatters about the
fingerprint's by chance: per prompt as the laboratory saw, divided by the number of prompts that the observed rounds
stand for, plus the fingerprint's own error. A multivariate Student distribution is taken instead of a normal one, since
the scatter itself is an estimate. What is none of these is taken to come from a kernel density of the known faults:
another fault, about as far from them as they are from each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from draftproof.proof.fingerprints import HEALTHY, NONE, FingerprintError, Fingerprints

PRIOR_HEALTHY, PRIOR_NONE = 0.5, 0.05  # the rest is shared by the faults
SHARES = ((1.0, 0.9), (0.5, 0.1))  # of the rounds a fault was at work in, and how often that is; else healthy ones
FREEDOM = 12.0  # of the Student distribution
MOST_PROMPTS = 250.0  # beyond, what separates the user's texts from the laboratory's counts for more than chance
NUGGET = 0.1  # share of the scatter that is each rate's own: correlations are estimates too
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Match:
    """``probability``: posterior of this explanation; ``share``: of rounds it was at work in, where that fits best.
    ``alike``: other explanations that counts do not tell from this one, by the fingerprints."""

    name: str
    code: str
    probability: float
    share: float = 1.0
    alike: tuple[str, ...] = ()


def match(
    prints: Fingerprints,
    observed: Mapping[str, Sequence[int]],
    *,
    paired: bool = False,
    without: Sequence[str] = (),
) -> list[Match]:
    """Explanations of ``observed`` (condition → rounds by accepted tokens 0 … k), most probable first; ``paired``:
    the conditions come from the same prompts. ``without``: explanations taken as unknown. Raises FingerprintError for
    a condition that the laboratory did not run and for longer blocks than its own."""
    space = Space(prints, observed, paired)
    names = [n for n in prints.accepted if n != HEALTHY and n not in without]
    scores = {HEALTHY: (math.log(PRIOR_HEALTHY) + space.score(HEALTHY), 1.0)}
    prior = math.log((1.0 - PRIOR_HEALTHY - PRIOR_NONE) / max(len(names), 1))
    for name in names:
        each = [(prior + math.log(often) + space.score(name, share), share) for share, often in SHARES]
        scores[name] = (_log_sum([score for score, _ in each]), max(each)[1])
    scores[NONE] = (math.log(PRIOR_NONE) + space.unknown(names), 1.0)
    total = _log_sum([score for score, _ in scores.values()])
    found = [
        Match(name, prints.codes.get(name, ""), math.exp(score - total), share, tuple(prints.alike.get(name, ())))
        for name, (score, share) in scores.items()
    ]
    return sorted(found, key=lambda m: -m.probability)


class Space:
    """The rates of an observation and what each explanation expects of them."""

    def __init__(self, prints: Fingerprints, observed: Mapping[str, Sequence[int]], paired: bool) -> None:
        self.prints = prints
        self.conditions = [c for c in prints.conditions if sum(observed.get(c, ()))]
        unknown = sorted(set(observed) - set(prints.conditions))
        if unknown or not self.conditions:
            known = ", ".join(prints.conditions)
            raise FingerprintError(f"condition {'/'.join(unknown)!r} has no fingerprints; there are some for: {known}")
        most = max(len(observed[c]) for c in self.conditions) - 1
        if most > prints.positions:
            raise FingerprintError(f"{most} positions observed, the fingerprints have {prints.positions}")
        self.positions = min(len(observed[c]) for c in self.conditions) - 1
        self.rates = np.concatenate([rates(observed[c], self.positions) for c in self.conditions])
        per_prompt = [sum(prints.counts(HEALTHY, c)) / prints.prompts for c in self.conditions]
        stands_for = [sum(observed[c]) / n for c, n in zip(self.conditions, per_prompt, strict=True)]
        self.prompts = np.repeat(np.clip(stands_for, 0.05, MOST_PROMPTS), self.positions)
        self.correlation = self._correlation(paired)
        self.healthy = self.mean(HEALTHY)

    def _correlation(self, paired: bool) -> Floats:
        every, whole = self.prints.positions, np.array(self.prints.correlation)
        at = [list(self.prints.conditions).index(c) * every + k for c in self.conditions for k in range(self.positions)]
        part = whole[np.ix_(at, at)]
        if not paired:
            block = np.arange(len(at)) // self.positions
            part = part * (block[:, None] == block[None, :])
        return (1 - NUGGET) * part + NUGGET * np.eye(len(at))

    def mean(self, name: str) -> Floats:
        return np.concatenate([rates(self.prints.counts(name, c), self.positions) for c in self.conditions])

    def covariance(self, name: str) -> Floats:
        """Of the observed rates about the fingerprint's: chance on both sides."""
        each = np.concatenate([np.array(self.prints.spread(name, c))[: self.positions] for c in self.conditions])
        scale = each * np.sqrt(1.0 / self.prompts + 1.0 / self.prints.prompts)
        return self.correlation * np.outer(scale, scale)

    def score(self, name: str, share: float = 1.0) -> float:
        mean, covariance = self.mean(name), self.covariance(name)
        if share < 1.0:
            mean = share * mean + (1 - share) * self.healthy
            covariance = share * covariance + (1 - share) * self.covariance(HEALTHY)
        return student(self.rates - mean, covariance)

    def unknown(self, names: Sequence[str]) -> float:
        """The kernel density of ``names``."""
        if len(names) < 2:
            return student(self.rates - self.healthy, self.covariance(HEALTHY) + np.eye(len(self.rates)) / 12)
        between = kernel(np.stack([self.mean(n) for n in names]), self.prints.breadth)
        each = [student(self.rates - self.mean(n), self.covariance(n) + between) for n in names]
        return _log_sum(each) - math.log(len(each))


def kernel(means: Floats, breadth: float) -> Floats:
    """Covariance of the step from a known fault to an unknown one: that between faults, partly without its
    correlations, since an unknown fault may do what no known one does."""
    between = np.cov(means.T).reshape(means.shape[1], means.shape[1])
    own = np.diag(np.diag(between) + 1e-5)
    return np.asarray(breadth**2 * (0.8 * between + 0.2 * own))


def rates(exact: Sequence[float], positions: int) -> Floats:
    """Rounds by accepted tokens → share of rounds that accepted at least 1, 2, … ``positions``."""
    counts = np.array(exact, dtype=float)
    at_least = counts[::-1].cumsum()[::-1]
    return np.asarray(at_least[1 : positions + 1] / max(at_least[0], 1.0))


def student(difference: Floats, covariance: Floats, freedom: float = FREEDOM) -> float:
    """Log-density of a multivariate Student distribution with this covariance."""
    size = len(difference)
    shape = covariance * (freedom - 2) / freedom + 1e-12 * np.eye(size)
    root = np.linalg.cholesky(shape)
    distance = float(np.sum(np.linalg.solve(root, difference) ** 2))
    constant = math.lgamma((freedom + size) / 2) - math.lgamma(freedom / 2) - size / 2 * math.log(freedom * math.pi)
    determinant = float(np.sum(np.log(np.diag(root))))
    return constant - determinant - (freedom + size) / 2 * math.log1p(distance / freedom)


def separation(prints: Fingerprints, one: str, other: str, prompts: int) -> float:
    """Mahalanobis distance of two explanations in a run of ``prompts`` prompts under all conditions: an ideal judge
    confuses them with probability Φ(-distance / 2)."""
    observed: dict[str, Any] = {
        c: [n * prompts / prints.prompts for n in prints.counts(HEALTHY, c)] for c in prints.conditions
    }
    space = Space(prints, observed, paired=True)
    difference = space.mean(one) - space.mean(other)
    covariance = (space.covariance(one) + space.covariance(other)) / 2
    return math.sqrt(float(difference @ np.linalg.solve(covariance + 1e-12 * np.eye(len(difference)), difference)))


def _log_sum(values: Sequence[float]) -> float:
    top = max(values)
    return top + math.log(sum(math.exp(v - top) for v in values))
