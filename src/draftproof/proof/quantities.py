"""Acceptance, sample size and speed of an observation: every rate that rules compare is derived here.

AL is the mean acceptance length, tokens per verify step, bonus included: AL = 1 + accepted / drafts. ``k`` is the
number of drafted tokens per step, N the number of drafts. Counters are preferred to printed averages.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

from draftproof.proof.case import Case, Facts, Observation

UNKNOWN_K = 15  # the upper bound taken where k is not known
FEW_DRAFTS, MANY_DRAFTS = 30, 200
_BLOCK_METHODS = {"dflash", "dflash2", "dspark"}
_STEP_METHODS = {"eagle", "eagle2", "eagle3", "mtp", "draft_model"}
_WORDS = {"lower": 0.7, "much_lower": 0.3, "near_zero": 0.05, "unchanged": 1.0, "normal": 1.0}


@dataclass(frozen=True)
class Acceptance:
    """``length``: AL; ``rate``: accepted / drafted; ``curve``: unconditional p_1 …; ``drafts``: N; ``k_sure``: False
    if k is the upper bound (then ``length`` is one too); ``said``: the word of a qualitative report. All may be None.
    """

    method: str | None = None
    k: float | None = None
    k_sure: bool = False
    drafts: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    length: float | None = None
    rate: float | None = None
    first: float | None = None
    curve: tuple[float, ...] = ()
    said: str | None = None

    @property
    def known(self) -> bool:
        """Is there a number to judge?"""
        return self.length is not None or self.rate is not None or self.first is not None

    @property
    def line(self) -> float | None:
        """L(k), the low line of the method; None where it has none."""
        return low_line(self.method, self.k)

    @property
    def below_line(self) -> bool:
        return self.length is not None and self.line is not None and self.length < self.line

    @property
    def low(self) -> bool:
        """Under the low line, or reported to be much lower than it should be."""
        return self.below_line or self.said in ("much_lower", "near_zero")

    @property
    def good(self) -> bool:
        """In the normal band: at or above the line (rate ≥ 0.3 with k unknown), or reported as normal."""
        if self.length is not None and self.line is not None and self.k_sure:
            return self.length >= self.line
        if self.rate is not None:
            return self.rate >= 0.3
        return self.said in ("normal", "unchanged") if self.length is None else self.length >= (self.line or 0)

    @property
    def spread(self) -> float | None:
        """Standard deviation of tokens accepted per draft: from the curve, else half the drafted length."""
        if self.curve and self.length is not None:
            extra = self.length - 1
            variance = sum((2 * i + 1) * p for i, p in enumerate(self.curve)) - extra * extra
            if variance > 0:
                return sqrt(variance)
        return self.k / 2 if self.k is not None else None

    @property
    def standard_error(self) -> float | None:
        if self.spread is None or self.drafts is None or self.drafts <= 0:
            return None
        return self.spread / sqrt(self.drafts)

    @property
    def too_few(self) -> bool:
        """Is the sample too small to judge? Never by missing counts: published averages are taken as they are."""
        if self.drafts is None:
            return False
        if self.drafts < FEW_DRAFTS:
            return True
        if self.drafts >= MANY_DRAFTS or self.length is None or self.line is None or self.standard_error is None:
            return False
        return abs(self.length - self.line) <= 2 * self.standard_error

    @property
    def conditional(self) -> tuple[float, ...]:
        """c_i = p_i / p_(i-1), c_1 = p_1; ends where nothing is accepted any more."""
        found: list[float] = []
        before = 1.0
        for p in self.curve:
            if before <= 0:
                break
            found.append(p / before)
            before = p
        return tuple(found)


def low_line(method: str | None, k: float | None) -> float | None:
    """L(k) = 1 + p (1 - c^k) / (1 - c), the lower edge of healthy public runs; None for n-grams and unknown methods."""
    if method in _BLOCK_METHODS:
        p, c = 0.60, 0.65
    elif method in _STEP_METHODS:
        p, c = 0.50, 0.55
    else:
        return None
    return float(1 + p * (1 - c ** (UNKNOWN_K if k is None else k)) / (1 - c))


def acceptance(case: Case, observation: Observation | None = None) -> Acceptance:
    """What an observation (default: the primary one) says about acceptance."""
    seen = case.primary if observation is None else observation
    if seen is None:
        return Acceptance(case.method)
    metrics, method = seen.metrics, _method(case, seen)
    curve = tuple(_clean(metrics.get("accepted_per_position")))
    k, sure = _drafted_per_step(case, seen, curve)
    drafted, accepted = number(metrics, "num_draft_tokens"), number(metrics, "num_accepted_tokens")
    drafts = number(metrics, "num_drafts")
    if drafts is None and drafted is not None and sure and k:
        drafts = drafted / k
    rate = _rate(metrics, drafted, accepted)
    length = _length(metrics, curve, drafts, accepted)
    k_given = k
    if length is None and rate is not None:
        k_given = k if sure and k else float(UNKNOWN_K)
        length = 1 + k_given * rate
    if rate is None and length is not None and sure and k:
        rate = (length - 1) / k
    first = curve[0] if curve else number(metrics, "first_position_acceptance")
    said = metrics.get("acceptance_reported")
    return Acceptance(
        method=method,
        k=k_given,
        k_sure=sure,
        drafts=drafts,
        drafted=drafted,
        accepted=accepted,
        length=length,
        rate=rate,
        first=first,
        curve=curve,
        said=said if isinstance(said, str) else None,
    )


def ratio(one: Acceptance, other: Acceptance) -> float | None:
    """Acceptance of ``one`` relative to ``other``: on accepted tokens per draft, else the rate, else p_1, else the
    words of a report. None if they cannot be compared."""
    for mine, its in _pairs(one, other):
        if mine is not None and its is not None and its > 0:
            return mine / its
    if one.known and other.known:
        return None
    return _ratio_of_words(one, other)


def _pairs(one: Acceptance, other: Acceptance) -> list[tuple[float | None, float | None]]:
    bounds = (one.length is not None and not one.k_sure) or (other.length is not None and not other.k_sure)
    lengths = [(_extra(one), _extra(other))]
    rates = [(one.rate, other.rate)]
    # With k unknown an AL made from a rate is a bound only, so rates are compared first where both are there.
    return [*(rates + lengths if bounds else lengths + rates), (one.first, other.first)]


def _extra(side: Acceptance) -> float | None:
    return None if side.length is None else side.length - 1


def _ratio_of_words(one: Acceptance, other: Acceptance) -> float | None:
    mine, its = one.said, other.said
    if one.known:  # a number against a word
        if its == "unchanged":
            return 1.0
        if its in ("lower", "much_lower", "near_zero"):
            return 1 / _WORDS[its]
        poor = (one.length is not None and one.length < 2 and one.k_sure) or (one.rate is not None and one.rate < 0.05)
        poor = poor or (one.rate is None and one.length is not None and one.length < 2)
        return 0.3 if its == "normal" and poor else None
    if mine not in _WORDS or (mine == "normal" and not other.known and other.said is None):
        return None
    if mine in ("lower", "much_lower", "near_zero", "unchanged"):
        return _WORDS[mine] if other.known or its in ("normal", "unchanged", None) else None
    if its in ("lower", "much_lower", "near_zero"):
        return 1 / _WORDS[its]
    if its in ("normal", "unchanged"):
        return 1.0
    poor = (other.length is not None and other.length < 2) or (other.rate is not None and other.rate < 0.05)
    return 1 / 0.3 if poor else None


def speedup(observation: Observation) -> float | None:
    """tok/s relative to plain decoding under the same conditions."""
    own, base = number(observation.metrics, "tok_s"), number(observation.metrics, "baseline_tok_s")
    return own / base if own is not None and base else None


def step_cost(observation: Observation, seen: Acceptance) -> float | None:
    """How many plain steps one speculative step takes: measured, else AL / speed-up."""
    own, base = number(observation.metrics, "step_ms"), number(observation.metrics, "baseline_step_ms")
    if own is not None and base:
        return own / base
    gain = speedup(observation)
    return seen.length / gain if gain and seen.length is not None and seen.k_sure else None


def number(facts: Facts, key: str) -> float | None:
    """A fact as a number; the middle of ``key_range`` where only a range was posted. Bools are no numbers."""
    value = facts.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    span = facts.get(f"{key}_range")
    if isinstance(span, list | tuple) and len(span) == 2 and all(type(v) in (int, float) for v in span):
        return (span[0] + span[1]) / 2
    return None


def _method(case: Case, seen: Observation) -> str | None:
    other = seen.conditions.get("method")
    return other if isinstance(other, str) else case.method


def _drafted_per_step(case: Case, seen: Observation, curve: tuple[float, ...]) -> tuple[float | None, bool]:
    """k of an observation, and whether it is more than a guess."""
    for value in (
        number(seen.metrics, "mean_drafted_per_step"),
        number(seen.conditions, "num_speculative_tokens"),
        None if case.k is None else float(case.k),
        _quotient(number(seen.metrics, "num_draft_tokens"), number(seen.metrics, "num_drafts")),
        float(len(curve)) if curve else None,
    ):
        if value:
            return value, True
    return None, False


def _rate(metrics: Facts, drafted: float | None, accepted: float | None) -> float | None:
    if accepted is not None and drafted:
        return accepted / drafted
    return number(metrics, "acceptance_rate")


def _length(metrics: Facts, curve: tuple[float, ...], drafts: float | None, accepted: float | None) -> float | None:
    if accepted is not None and drafts:
        return 1 + accepted / drafts
    given = number(metrics, "mean_acceptance_length")
    if given is not None:
        return given
    if curve:
        return 1 + sum(curve)
    committed = number(metrics, "acceptance_ratio_committed")
    return 1 / (1 - committed) if committed is not None and committed < 1 else None


def _quotient(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _clean(values: Any) -> list[float]:
    if not isinstance(values, list | tuple) or not all(type(v) in (int, float) for v in values):
        return []
    return [float(v) for v in values]
