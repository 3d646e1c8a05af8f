"""How sure a finding about a version may be, and the symptoms that change it."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.proof.case import Case, Observation
from draftproof.proof.engines import Applied, Fact, applied
from draftproof.proof.quantities import Acceptance, acceptance
from draftproof.proof.versions import Fit, build_of

CERTAIN, LIKELY, CANDIDATE = 0.95, 0.75, 0.4
EXACT_ZERO_LENGTH, EXACT_ZERO_FIRST, EXACT_ZERO_RATE = 1.02, 0.02, 0.002


def about_version(case: Case, code: str, *, symptom: bool) -> Iterator[tuple[Applied, float]]:
    """Facts of ``code`` that may hold on the case's build, each with the confidence it deserves.

    A plain release is certain. A fork, image or dev build counts with a matching ``symptom`` only, and not at all
    while the set-up is healthy. What hangs on an unknown circumstance is a candidate.
    """
    for one in applied(case, build_of(case), code):
        if one.fit is not Fit.RELEASE and healthy(case):
            continue
        if one.holds is None or one.fit is Fit.MAYBE or (one.fit is Fit.BASE and not symptom):
            yield one, min(CANDIDATE, one.fact.cap)
        else:
            yield one, min(CERTAIN if one.fit is Fit.RELEASE else LIKELY, one.fact.cap)


def primary(case: Case) -> Acceptance:
    return acceptance(case)


def healthy(case: Case) -> bool:
    """Is the acceptance of the state under diagnosis in the normal band?"""
    seen = primary(case)
    return (seen.known or seen.said is not None) and seen.good and not seen.low


def low(case: Case) -> bool:
    seen = primary(case)
    return seen.low or seen.said == "lower"


def exact_zero(seen: Acceptance) -> bool:
    """Practically nothing is accepted; not where the sample is too small to say so."""
    if seen.too_few:
        return False
    if seen.accepted is not None and seen.drafts:
        return seen.accepted / seen.drafts < EXACT_ZERO_LENGTH - 1
    if seen.length is not None and seen.k_sure:
        return seen.length < EXACT_ZERO_LENGTH
    if seen.rate is not None:
        return seen.rate < EXACT_ZERO_RATE
    if seen.length is not None:
        return seen.length < EXACT_ZERO_LENGTH
    return seen.first is not None and seen.first < EXACT_ZERO_FIRST and (seen.drafts or 0) >= 200


def has_run(case: Case) -> bool:
    """Has the set-up produced acceptance numbers with its method?"""
    return primary(case).known


def failed(observation: Observation | None) -> bool:
    outcome = observation.metrics.get("outcome") if observation is not None else None
    return outcome is not None and outcome != "ok"


def comparisons(case: Case) -> Iterator[tuple[int, Observation]]:
    """The other observations with their index, plain decoding and readings of files left out."""
    for index, seen in enumerate(case.observations[1:], start=1):
        if seen.conditions.get("drafter") is not False and seen.conditions.get("static") is not True:
            yield index, seen


def log_lines(case: Case) -> Iterator[tuple[str, str]]:
    """(place, line) of every log line of the case."""
    for index, seen in enumerate(case.observations):
        for number, line in enumerate(seen.log):
            yield f"observations[{index}].log[{number}]", line


def remedy_of(fact: Fact) -> str:
    """The remedy of a fact of the matrix as a sentence."""
    text = fact.remedy
    if not text:
        return ""
    if text.startswith(("vLLM ", "SGLang ", "a build", "build ", "the bf16")):
        return f"Use {text}."
    if text.startswith(("-", "VLLM_", '"')):
        return f"Set {text}."
    return f"{text[0].upper()}{text[1:]}."
