"""How rules about measurements say things: confidence of an estimate, figures in words, evidence with its place."""

from __future__ import annotations

from draftproof.proof.case import Case
from draftproof.proof.comparing import Comparison
from draftproof.proof.findings import Evidence, Question
from draftproof.proof.quantities import MANY_DRAFTS, Acceptance

COUNTED, PUBLISHED, WORDS, CANDIDATE = 0.95, 0.75, 0.65, 0.4
PRIMARY = "observations.0.metrics"
_KEYS = (
    "num_drafts",
    "num_draft_tokens",
    "num_accepted_tokens",
    "mean_acceptance_length",
    "accepted_per_position",
    "acceptance_rate",
    "acceptance_ratio_committed",
    "first_position_acceptance",
    "acceptance_reported",
)


def confidence(*sides: Acceptance) -> float:
    """HIGH with 200 drafts or more on every side, medium for averages without counts, lower for words alone."""
    return min((_one(side) for side in sides), default=PUBLISHED)


def _one(side: Acceptance) -> float:
    if not side.known:
        return WORDS
    if side.drafts is None:
        return PUBLISHED
    return COUNTED if side.drafts >= MANY_DRAFTS else 0.8


def figure(side: Acceptance) -> str:
    """An acceptance as a person writes it: the length, else the rate, the first position, the word."""
    if side.length is not None and (side.k_sure or side.rate is None):
        of = f" at k = {side.k:g}" if side.k_sure and side.k else ""
        return f"{side.length:.2f} tokens per draft{of}"
    if side.rate is not None:
        return f"{side.rate:.1%} of the drafted tokens"
    if side.first is not None:
        return f"{side.first:.1%} at the first position"
    return f"acceptance reported as {side.said or 'nothing'}"


def seen(case: Case, index: int = 0) -> tuple[Evidence, ...]:
    """The acceptance figures of an observation, each with where it came from."""
    metrics = case.observations[index].metrics if index < len(case.observations) else {}
    keys = [key for key in _KEYS if key in metrics][:3]
    return tuple(case.evidence(f"observations.{index}.metrics.{key}", f"{key} = {short(metrics[key])}") for key in keys)


def both(case: Case, comparison: Comparison) -> tuple[Evidence, ...]:
    """The figures of both sides of a comparison."""
    return (*seen(case), *seen(case, comparison.index))


def named(comparison: Comparison) -> str:
    return repr(comparison.other.label) if comparison.other.label else f"observation {comparison.index}"


def logged(case: Case, *words: str) -> Evidence | None:
    """The first log line that holds all of ``words``, with its place."""
    for index, observation in enumerate(case.observations):
        for number, line in enumerate(observation.log):
            if all(word in line for word in words):
                return case.evidence(
                    f"observations.{index}.log.{number}", line if len(line) <= 200 else line[:199] + "…"
                )
    return None


def ask(fact: str, how: str) -> Question:
    return Question(fact, how)


def short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:79] + "…"
