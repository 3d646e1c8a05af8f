"""What each fault leaves behind in the counts of accepted tokens, and which of them an observation resembles most.

A fingerprint holds, per fault and condition, how many rounds accepted exactly 0, 1, … N drafted tokens. An
observation of the same kind is compared by the Dirichlet-multinomial likelihood: each fingerprint's counts are the
prior knowledge about the distribution it stands for. Rounds of one answer resemble each other, so counts are first
divided by the design effect that the laboratory measured between prompts (Kish 1965): a thousand rounds of five
answers are not a thousand independent facts. Needs the standard library only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftproof.errors import DraftproofError

SCHEMA = "draftproof.fingerprints/1"
HEALTHY, NONE = "healthy", "none of these"
PRIOR_HEALTHY, PRIOR_NONE = 0.5, 0.05  # the rest is shared by the faults
SHARES = (1.0, 0.5)  # of the rounds in which a fault may have been at work; the others were healthy
_SMOOTH = 0.5  # Jeffreys' prior of a count


class FingerprintError(DraftproofError):
    """A fingerprint file that is none, or one that does not fit the observation."""


@dataclass(frozen=True)
class Match:
    """``probability``: posterior of this explanation; ``share``: of rounds it was at work in, where that fits best."""

    name: str
    code: str
    probability: float
    share: float = 1.0


@dataclass(frozen=True)
class Fingerprints:
    """``accepted[name][condition]``: rounds by accepted tokens 0 … N; ``codes[name]``: the finding a fault belongs
    to; ``spread``: the design effect, at least 1; ``same``: groups of faults that counts cannot tell apart."""

    pair: Mapping[str, Any]
    accepted: Mapping[str, Mapping[str, Sequence[int]]]
    codes: Mapping[str, str]
    spread: float = 1.0
    same: Sequence[Sequence[str]] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA,
            "pair": dict(self.pair),
            "spread": self.spread,
            "same": [list(group) for group in self.same],
            "codes": dict(self.codes),
            "accepted": {name: {c: list(v) for c, v in by.items()} for name, by in self.accepted.items()},
            "provenance": dict(self.provenance),
        }

    def match(self, observed: Sequence[int], condition: str) -> list[Match]:
        """Explanations of ``observed`` (rounds by accepted tokens 0 … N), most probable first. Raises if the
        laboratory did not run the condition or the counts are of another block length."""
        healthy = self.accepted[HEALTHY].get(condition)
        if healthy is None:
            known = ", ".join(self.accepted[HEALTHY])
            raise FingerprintError(f"condition {condition!r} has no fingerprints; there are some for: {known}")
        counts = [max(float(n), 0.0) / self.spread for n in _fitted(observed, len(healthy))]
        names = [n for n in self.accepted if n != HEALTHY and condition in self.accepted[n]]
        scores: dict[str, tuple[float, float]] = {
            HEALTHY: (math.log(PRIOR_HEALTHY) + self._likelihood(counts, healthy), 1.0),
            NONE: (math.log(PRIOR_NONE) + _dirichlet_multinomial(counts, [1.0] * len(counts)), 1.0),
        }
        prior = math.log((1.0 - PRIOR_HEALTHY - PRIOR_NONE) / max(len(names), 1) / len(SHARES))
        for name in names:
            each = [(self._mixed(counts, self.accepted[name][condition], healthy, s), s) for s in SHARES]
            best = max(each)
            scores[name] = (prior + _log_sum([score for score, _ in each]), best[1])
        total = _log_sum([score for score, _ in scores.values()])
        found = [
            Match(name, self.codes.get(name, ""), math.exp(score - total), share)
            for name, (score, share) in scores.items()
        ]
        return sorted(found, key=lambda m: -m.probability)

    def _likelihood(self, counts: Sequence[float], fingerprint: Sequence[int]) -> float:
        return _dirichlet_multinomial(counts, [n / self.spread + _SMOOTH for n in fingerprint])

    def _mixed(self, counts: Sequence[float], fault: Sequence[int], healthy: Sequence[int], share: float) -> float:
        if share == 1.0:
            return self._likelihood(counts, fault)
        size = min(sum(fault), sum(healthy))
        scale = size / max(sum(fault), 1), size / max(sum(healthy), 1)
        mixed = [share * scale[0] * f + (1 - share) * scale[1] * h for f, h in zip(fault, healthy, strict=True)]
        return _dirichlet_multinomial(counts, [n / self.spread + _SMOOTH for n in mixed])


def exactly(at_least: Sequence[int]) -> list[int]:
    """[rounds, accepted ≥ 1, ≥ 2, …] → rounds by exactly accepted tokens 0, 1, …"""
    following = [*at_least[1:], 0]
    counts = [a - b for a, b in zip(at_least, following, strict=True)]
    if any(n < 0 for n in counts):
        raise FingerprintError(f"counts {list(at_least)} rise from one position to the next")
    return counts


def design_effect(per_prompt: Sequence[tuple[int, int]]) -> float:
    """From (accepted tokens, rounds) of each prompt: how much more their mean scatters than independent rounds
    would, at least 1. The variance inside is taken as that of a geometric count of the same mean."""
    per_prompt = [(a, n) for a, n in per_prompt if n]
    rounds, accepted = sum(n for _, n in per_prompt), sum(a for a, _ in per_prompt)
    if len(per_prompt) < 2 or not accepted:
        return 1.0
    mean = accepted / rounds
    clusters = sum((a - mean * n) ** 2 for a, n in per_prompt) * len(per_prompt) / (len(per_prompt) - 1)
    return max(1.0, clusters / (rounds * mean * (1 + mean)))


def read_fingerprints(file: Path) -> Fingerprints:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FingerprintError(f"{file}: cannot be read ({getattr(error, 'strerror', None) or 'no text'})") from None
    except json.JSONDecodeError as error:
        raise FingerprintError(f"{file}: not JSON ({error.msg} at line {error.lineno})") from None
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA:
        raise FingerprintError(f"{file}: not {SCHEMA}; make fingerprints with draftproof lab")
    try:
        return Fingerprints(
            data["pair"], data["accepted"], data["codes"], data["spread"], data["same"], data["provenance"]
        )
    except KeyError as error:
        raise FingerprintError(f"{file}: {error.args[0]} is missing") from None


def _fitted(observed: Sequence[int], size: int) -> list[int]:
    if len(observed) > size:
        raise FingerprintError(f"{len(observed) - 1} positions observed, the fingerprints have {size - 1}")
    return [*observed, *[0] * (size - len(observed))]


def _dirichlet_multinomial(counts: Sequence[float], alpha: Sequence[float]) -> float:
    """Log-probability of counts under a multinomial whose rates are Dirichlet-distributed, without the constant
    that only counts decide."""
    total, prior = sum(counts), sum(alpha)
    value = math.lgamma(prior) - math.lgamma(prior + total)
    return value + sum(math.lgamma(a + n) - math.lgamma(a) for n, a in zip(counts, alpha, strict=True))


def _log_sum(values: Sequence[float]) -> float:
    top = max(values)
    return top + math.log(sum(math.exp(v - top) for v in values))
