"""What engines mean by "acceptance": every definition turned into mean acceptance length, and back.

Six are in use. Let A be accepted and D drafted tokens, S the steps with a draft, S' those without, k = D / S:

=================  ============================  ===========================================================
meaning            definition                    printed by
=================  ============================  ===========================================================
``length``         1 + A / S                     vLLM, llama.cpp, z-lab ("mean acceptance length", "τ")
``per_round``      A / S                         ports that leave the bonus token out
``rate``           A / D                         vLLM, SGLang, llama.cpp ("draft acceptance rate")
``committed``      A / (A + S)                   dflash-mlx
``per_step``       (A + S + S') / (S + S')       "tokens per step", SGLang's completion tokens per verify
``conditional``    c_i = p_i / p_(i-1)           training metrics, teacher forced; p_i is cumulative elsewhere
=================  ============================  ===========================================================

Raw counts go in; intervals come with everything that is a share (Wilson) or a mean (bootstrap over the curve).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Literal

from draftproof.intervals import Interval, wilson
from draftproof.proof.case import Case
from draftproof.proof.quantities import Acceptance, number

Meaning = Literal["length", "per_round", "rate", "committed", "per_step", "conditional"]
_RESAMPLES = 2000
_SEED = 20260206


@dataclass(frozen=True)
class Figure:
    """A value with its 95 % interval (None where counts are missing) and how many trials it rests on."""

    meaning: str
    value: float
    ci95: Interval | None
    of: float | None = None

    def to_dict(self) -> dict[str, object]:
        return {"value": self.value, "ci95": None if self.ci95 is None else list(self.ci95), "of": self.of}


def length_from(
    meaning: Meaning, value: float | Sequence[float], *, k: float | None = None, draftless: float = 0.0
) -> float | None:
    """Mean acceptance length from a figure of another meaning; None if ``k`` is needed and missing.

    ``draftless``: share of steps without a draft (only ``per_step`` needs it). ``conditional`` takes c_1 … c_k.
    Raises ValueError for figures outside their range.
    """
    if meaning == "conditional":
        rates = [value] if isinstance(value, int | float) else list(value)
        if any(not 0 <= c <= 1 for c in rates):
            raise ValueError(f"conditional={value!r}: rates lie between 0 and 1")
        return 1.0 + sum(accumulate(rates, mul))
    if not isinstance(value, int | float):
        raise ValueError(f"{meaning}={value!r} must be a number")
    _check(meaning, value)
    if meaning == "length":
        return float(value)
    if meaning == "per_round":
        return 1.0 + value
    if meaning == "committed":
        return 1.0 / (1.0 - value)
    if meaning == "rate":
        return None if k is None else 1.0 + k * value
    return 1.0 + (value - 1.0) / (1.0 - draftless)


def _check(meaning: str, value: float) -> None:
    low, high = {"length": (1.0, math.inf), "per_step": (1.0, math.inf), "per_round": (0.0, math.inf)}.get(
        meaning, (0.0, 1.0)
    )
    if not low <= value <= high or (meaning == "committed" and value == 1.0):
        raise ValueError(f"{meaning}={value!r} lies outside {low:g} … {high:g}")


def figures(it: Acceptance) -> dict[str, Figure]:
    """Everything that follows from an observation's counts (or averages, then without intervals)."""
    found: dict[str, Figure] = {}
    if it.length is not None and (it.k_sure or it.rate is None):
        found["length"] = Figure("length", it.length, length_ci95(it), it.drafts)
        found["per_round"] = Figure("per_round", it.length - 1, None, it.drafts)
        found["committed"] = Figure("committed", 1 - 1 / it.length if it.length else 0.0, None, it.drafts)
    if it.rate is not None:
        counted = it.accepted is not None and it.drafted
        interval = wilson(it.accepted or 0.0, it.drafted or 0.0) if counted else None
        found["rate"] = Figure("rate", it.rate, interval, it.drafted)
    for position, rate in enumerate(it.curve, start=1):
        hits = None if it.drafts is None else wilson(min(rate, 1.0) * it.drafts, it.drafts)
        found[f"position {position}"] = Figure(f"position {position}", rate, hits, it.drafts)
    return found


def length_ci95(it: Acceptance) -> Interval | None:
    """95 % interval of the length: bootstrap of the accepted counts that the curve implies, else a normal one.

    The curve p_1 ≥ p_2 ≥ … fixes how many drafts accepted exactly 0, 1, … tokens, which is all that drafts differ in.
    Drafts of one answer resemble each other, so with few prompts the true interval is wider.
    """
    if it.length is None or not it.drafts or it.drafts < 2:
        return None
    agrees = abs(1.0 + sum(it.curve) - it.length) <= 0.1  # else the curve is of other drafts, or wrong
    if it.curve and agrees and all(a >= b for a, b in zip((1.0, *it.curve), it.curve, strict=False)):
        import numpy as np  # only here: commands start faster without

        shares = -np.diff([1.0, *it.curve, 0.0])
        draws = np.random.default_rng(_SEED).multinomial(round(it.drafts), shares / shares.sum(), size=_RESAMPLES)
        means = 1.0 + draws @ np.arange(len(shares)) / round(it.drafts)
        low, high = np.quantile(means, [0.025, 0.975])
        return float(low), float(high)
    error = it.standard_error
    return None if error is None else (max(1.0, it.length - 1.96 * error), it.length + 1.96 * error)


def other_meanings(case: Case) -> Iterator[tuple[str, str, str]]:
    """(place, fact, sentence) for every figure of a case that follows another definition than ``length``."""
    for index, observation in enumerate(case.observations):
        metrics, place = observation.metrics, f"observations.{index}.metrics"
        if index == 0:
            yield from _in_primary(case, place)
        kind = observation.conditions.get("per_position_kind")
        if kind is not None and str(kind) not in ("cumulative", "unconditional"):
            where = f"observations.{index}.conditions.per_position_kind"
            yield (
                where,
                str(kind),
                "Per-position rates are conditional; multiply them up before comparing with serving.",
            )
        accuracy = metrics.get("train_accuracy")
        if accuracy is not None:
            says = "Training accuracy is teacher forced and conditional, not an acceptance rate."
            yield f"{place}.train_accuracy", f"train_accuracy = {accuracy}", says


def _in_primary(case: Case, place: str) -> Iterator[tuple[str, str, str]]:
    assert case.primary is not None
    metrics = case.primary.metrics
    for key in ("tokens_without_draft", "tokens_per_step"):
        if number(metrics, key) is not None:
            says = "The mean length leaves out steps without a draft; tokens per step count them."
            yield f"{place}.{key}", f"{key} = {metrics[key]}", says
            break
    committed = number(metrics, "acceptance_ratio_committed")
    if committed is not None and 0 <= committed < 1:
        says = f"{committed:.3f} is accepted per committed token: a length of {1 / (1 - committed):.2f}."
        yield f"{place}.acceptance_ratio_committed", f"acceptance_ratio_committed = {committed}", says
    if number(metrics, "attempts") is not None:
        yield f"{place}.attempts", f"attempts = {metrics['attempts']}", "Attempts may be drafts or drafted tokens."
    drafts, accepted = number(metrics, "num_drafts"), number(metrics, "num_accepted_tokens")
    printed = number(metrics, "printed_mean_acceptance_length")
    if drafts and accepted is not None and printed is not None:
        counted = 1 + accepted / drafts
        for off, words in ((-1.0, "leaves the bonus token out"), (1.0, "counts the bonus token twice")):
            if abs(printed - counted - off) <= 0.05:
                yield f"{place}.printed_mean_acceptance_length", f"{printed:g}", f"The printed length {words}."
