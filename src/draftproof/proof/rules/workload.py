"""WORKLOAD: what the requests are, as opposed to how they are served."""

from __future__ import annotations

import itertools

from draftproof.proof.case import Case
from draftproof.proof.comparing import comparisons, fact
from draftproof.proof.findings import Finding
from draftproof.proof.published import thinking_trained
from draftproof.proof.quantities import acceptance
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.rules.runtime_comparisons import context_drops, context_of
from draftproof.proof.rules.runtime_symptoms import is_low
from draftproof.proof.rules.saying import CANDIDATE, COUNTED, ask, both, confidence, figure, named

# Where one of these was found, the engine or its positions explain the drop and no decay of the drafter is needed.
_OTHER_REASONS = {"ENGINE_SWA_IGNORED", "ROPE_MISMATCH", "DRAFT_PATH_DEFECT", "PREFIX_CACHE_DRAFT_KV"}


@rule(
    "BENCH_DATA_RANDOM",
    "WORKLOAD",
    "warning",
    meaning="Random token prompts: acceptance and speed say nothing about real use.",
    derived="dataset name starts with 'random' (random, random_vl, random-mm)",
    remedy="Benchmark with real prompts.",
    probe="Same server, a chat or code data set.",
    sources=(
        "vllm#42505",
        "vllm#42704",
        "syv-ai gotcha 6",
    ),
)
def bench_data_random(case: Case, earlier: frozenset[str]) -> Said:
    dataset = fact(case, "dataset")
    if isinstance(dataset, str) and dataset.strip().lower().startswith("random"):
        says = f"The prompts are random tokens ({dataset}); no drafter was trained for them and no user sends them."
        yield Finding("BENCH_DATA_RANDOM", "warning", COUNTED, says, (case.evidence("workload.dataset", dataset),))


@rule(
    "THINKING_MODE_MISMATCH",
    "WORKLOAD",
    "warning → error if the other mode has a ratio <= 0.7 or acceptance is low",
    meaning="The requests think (or not) while the drafter was trained for the other mode.",
    derived=(
        "thinking in the workload differs from the table in section 6. Unknown mode: candidate (a default "
        "template with thinking on)"
    ),
    remedy="chat_template_kwargs enable_thinking as trained, or another drafter.",
    probe="Same prompts with thinking on and off.",
    sources=(
        "z-lab#133",
        "z-lab#60",
    ),
)
def thinking_mode_mismatch(case: Case, earlier: frozenset[str]) -> Said:
    trained = thinking_trained(case.drafter.name)
    thinks = fact(case, "thinking")
    other = next((c for c in comparisons(case) if c.only("thinking") and c.ratio is not None), None)
    if trained is None:
        if other is not None and other.ratio is not None and other.ratio <= 0.7:
            says = f"Requests in the other mode are accepted better ({figure(other.mine)}, {figure(other.its)})."
            yield Finding("THINKING_MODE_MISMATCH", "warning", CANDIDATE, says, both(case, other))
            yield ask("whether the drafter was trained on answers with thinking", "the drafter's model card")
        return
    words = "with thinking on" if trained else "with thinking off"
    if not isinstance(thinks, bool):
        if case.observations:
            yield ask("thinking on or off", "--workload thinking=true|false")
        if case.observations and not trained:  # templates of these targets think unless told otherwise
            says = f"The drafter was trained {words}; the mode of these requests is unknown."
            yield Finding("THINKING_MODE_MISMATCH", "warning", 0.3, says)
        return
    if thinks == trained:
        return
    worse = other is not None and other.ratio is not None and other.ratio <= 0.7
    severe = worse or (is_low(acceptance(case)) and "TOO_FEW_SAMPLES" not in earlier)
    says = f"The drafter was trained {words}, the requests think {'on' if thinks else 'off'}."
    place = "observations.0.conditions.thinking" if _in_primary(case) else "workload.thinking"
    evidence = (case.evidence(place, f"thinking = {thinks}"), *(both(case, other) if worse and other else ()))
    remedy = f'chat_template_kwargs: {{"enable_thinking": {str(trained).lower()}}}, or a drafter for this mode'
    yield Finding("THINKING_MODE_MISMATCH", "error" if severe else "warning", COUNTED, says, evidence, remedy)


def _in_primary(case: Case) -> bool:
    return case.primary is not None and "thinking" in case.primary.conditions


@rule(
    "WORKLOAD_SHIFT",
    "WORKLOAD",
    "info",
    meaning="Language or domain is off the drafter's training; not a fault of the deployment.",
    derived=(
        "ratio <= 0.8 between languages or data sets with everything else equal, both above the low line; "
        "categories of one benchmark normally spread by 2.5x"
    ),
    remedy="Judge by own traffic; lower k there; train on it.",
    probe="AL per category.",
    sources=(
        "z-lab#7",
        "z-lab#52",
        "llama.cpp#27342",
    ),
)
def workload_shift(case: Case, earlier: frozenset[str]) -> Said:
    if "TOO_FEW_SAMPLES" in earlier or not acceptance(case).known or acceptance(case).below_line:
        return
    for one in comparisons(case):
        above = one.its.known and not one.its.below_line
        if one.only("workload") and one.ratio is not None and one.ratio <= 0.8 and above:
            says = f"Another workload is accepted better, both in the normal band: {named(one)}, {figure(one.its)}."
            yield Finding("WORKLOAD_SHIFT", "info", confidence(one.mine, one.its), says, both(case, one))
            return


@rule(
    "CONTEXT_DECAY",
    "WORKLOAD",
    "warning",
    meaning="Shallow drafters lose acceptance gradually with length, in every engine.",
    derived=(
        "ACCEPTANCE_DROPS_WITH_CONTEXT with 0.4 < ratio, no step at a window, no engine or rope finding; two "
        "lengths suffice if p_1 or the rate stays above half"
    ),
    remedy="Lower k or switch off at long context.",
    probe="A third length in between; another engine.",
    sources=(
        "vllm#47602",
        "sglang#30763",
    ),
    stage=3,
)
def context_decay(case: Case, earlier: frozenset[str]) -> Said:
    """A slope and not a step. Three lengths show which; with two, a figure that stays above half speaks for a slope."""
    if "ACCEPTANCE_DROPS_WITH_CONTEXT" not in earlier or earlier & _OTHER_REASONS:
        return
    drops = sorted(context_drops(case), key=lambda c: c.ratio or 0.0)
    if not drops or drops[0].ratio is None or drops[0].ratio <= 0.4:
        return
    worst = drops[0]
    steepest = _steepest(case)
    gradual = steepest is not None and steepest >= 0.5
    rate = worst.mine.first if worst.mine.first is not None else worst.mine.rate
    if gradual or (steepest is None and rate is not None and rate >= 0.5):
        says = f"Acceptance falls gradually with length, to {worst.ratio:.0%}, without a step."
        yield Finding("CONTEXT_DECAY", "warning", confidence(worst.mine, worst.its), says, both(case, worst))
    else:
        says = f"Acceptance falls with length, to {worst.ratio:.0%}; a step at a window is not excluded."
        yield Finding("CONTEXT_DECAY", "warning", CANDIDATE, says, both(case, worst))
        yield ask("acceptance at a third context length", "--endpoint URL, or a third observation in --case")


def _steepest(case: Case) -> float | None:
    """With three lengths or more: the largest fall between neighbours, as what is left; None with fewer."""
    points: list[tuple[float, float]] = []
    for index, observation in enumerate(case.observations):
        length, it = context_of(case, observation), acceptance(case, observation)
        same = index == 0 or any(c.index == index and c.only("context") for c in comparisons(case))
        value = it.rate if it.rate is not None else (it.length - 1 if it.length is not None else it.first)
        if same and length is not None and value is not None:
            points.append((length, value))
    points.sort()
    if len(points) < 3:
        return None
    return min(after / before if before else 1.0 for (_, before), (_, after) in itertools.pairwise(points))
