"""RUNTIME: what two observations show that differ in one thing."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.proof.case import Case, Observation
from draftproof.proof.comparing import Comparison, at_least, comparisons, fact
from draftproof.proof.findings import Finding
from draftproof.proof.quantities import acceptance, number
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.rules.runtime_symptoms import is_low, is_zero
from draftproof.proof.rules.saying import PUBLISHED, ask, both, confidence, figure, named, seen

_EARLY = {"start", "restart", "fresh"}


def _found(case: Case, code: str, one: Comparison, how: str, *, error: bool = False, less: float = 0.0) -> Finding:
    says = f"{how}: {figure(one.mine)}, {named(one)}: {figure(one.its)}."
    sure = max(confidence(one.mine, one.its) - less, 0.3)
    return Finding(code, "error" if error else "warning", sure, says, both(case, one))


def context_of(case: Case, observation: Observation) -> float | None:
    """Tokens of context, from whichever fact gives them."""
    for name in ("context_tokens", "prompt_tokens"):
        value = at_least(case, name, observation)
        if value is not None:
            return value
    return None


def longer(case: Case, one: Comparison) -> bool:
    """Has the primary observation at least twice the context of the other?"""
    first = case.primary
    assert first is not None
    mine, its = context_of(case, first), context_of(case, one.other)
    if mine is not None and its is not None:
        return its <= mine / 2
    return fact(case, "context", first) == "long" and fact(case, "context", one.other) == "short"


def context_drops(case: Case) -> Iterator[Comparison]:
    for one in comparisons(case):
        if one.only("context") and one.ratio is not None and one.ratio <= 0.85 and longer(case, one):
            yield one


@rule(
    "ACCEPTANCE_DROPS_WITH_CONTEXT",
    "RUNTIME",
    "warning",
    meaning="Acceptance is lower at long context.",
    derived="ratio <= 0.85 between a context and one at most half as long, other conditions equal",
    remedy="See ENGINE_SWA_IGNORED, ROPE_MISMATCH, CONTEXT_DECAY.",
    probe="Three lengths around the drafter's window and trained length: a step or a slope?",
    sources=(
        "buun-llama-cpp#32",
        "vllm#47602",
        "syv-ai#60",
    ),
)
def acceptance_drops_with_context(case: Case, earlier: frozenset[str]) -> Said:
    drops = sorted(context_drops(case), key=lambda c: c.ratio or 0.0)
    if drops:
        yield _found(case, "ACCEPTANCE_DROPS_WITH_CONTEXT", drops[0], "Acceptance is lower at long context")
    if len(drops) == 1:
        yield ask("acceptance at a third length in between", "--case with a third observation, or --endpoint URL")


@rule(
    "ACCEPTANCE_DROPS_WITH_CONCURRENCY",
    "RUNTIME",
    "warning",
    meaning="Acceptance is lower with more streams; in a sound engine it does not depend on them.",
    derived="ratio <= 0.85 between several streams and one stream on the same prompts",
    remedy="Eager or piecewise graphs; newer engine.",
    probe="1 and 4 streams, with and without enforce_eager.",
    sources=(
        "vllm#42728",
        "sglang#16818",
        "vllm#41703",
    ),
)
def acceptance_drops_with_concurrency(case: Case, earlier: frozenset[str]) -> Said:
    streams = at_least(case, "concurrency")
    for one in comparisons(case):
        few = at_least(case, "concurrency", one.other)
        if not one.only("concurrency") or streams is None or few is None or one.ratio is None:
            continue
        if few < streams and streams >= 2 and one.ratio <= 0.85:
            how = f"Acceptance is lower with {streams:g} streams than with {few:g}"
            yield _found(case, "ACCEPTANCE_DROPS_WITH_CONCURRENCY", one, how, less=0.0 if few <= 1 else 0.1)
            return


@rule(
    "ACCEPTANCE_DROPS_ON_CACHE_HIT",
    "RUNTIME",
    "warning",
    meaning="Acceptance is lower when part of the prompt comes from the prefix cache.",
    derived="ratio <= 0.8 between cached_prefix true and prefix_caching false or cached_prefix false",
    remedy="See PREFIX_CACHE_DRAFT_KV.",
    probe="Same prompt twice, then with a nonce at the very start.",
    sources=(
        "vllm#47930",
        "atlas#693",
    ),
)
def acceptance_drops_on_cache_hit(case: Case, earlier: frozenset[str]) -> Said:
    if not fact(case, "cached_prefix"):
        return
    for one in comparisons(case):
        cold = fact(case, "cached_prefix", one.other) is False or one.other.conditions.get("prefix_caching") is False
        if cold and one.only("cache", "request") and one.ratio is not None and one.ratio <= 0.8:
            yield _found(case, "ACCEPTANCE_DROPS_ON_CACHE_HIT", one, "Acceptance is lower on a prefix-cache hit")
            return


@rule(
    "ACCEPTANCE_DROPS_OVER_TIME",
    "RUNTIME",
    "warning",
    meaning="Acceptance falls with uptime or generated tokens and a restart restores it.",
    derived="ratio <= 0.9 between late and early; or a step to zero that never recovers",
    remedy="Restart as a stop-gap; look for cache or state corruption; try another checkpoint.",
    probe="Time series of AL; reset the prefix cache without a restart.",
    sources=(
        "vllm#41838",
        "vllm#52873",
    ),
)
def acceptance_drops_over_time(case: Case, earlier: frozenset[str]) -> Said:
    for one in comparisons(case):
        if one.only("time") and one.ratio is not None and one.ratio <= 0.9 and _later(case, one):
            yield _found(case, "ACCEPTANCE_DROPS_OVER_TIME", one, "Acceptance fell while the server ran")
            return


def _later(case: Case, one: Comparison) -> bool:
    mine, its = at_least(case, "generated_tokens"), at_least(case, "generated_tokens", one.other)
    if its is None:
        its = number(one.other.conditions, "generated_tokens_below")
    if mine is not None and its is not None:
        return mine >= its
    return one.other.conditions.get("uptime") in _EARLY and fact(case, "uptime") not in _EARLY


@rule(
    "ACCEPTANCE_DIFFERS_BETWEEN_BUILDS",
    "RUNTIME",
    "warning → error if two runners of the same version differ by half or more",
    meaning="Same files and prompts give other acceptance on another version, commit or runner.",
    derived=(
        "ratio <= 0.85 (or ACCEPTANCE 'lower' against an earlier build); both sides named by engine_version, "
        "build or runner. Runs on different machines or of different workloads do not count"
    ),
    remedy="Stay on the better build; bisect.",
    probe="Same prompts, several of them, on both builds.",
    sources=(
        "vllm#49559",
        "vllm#26191",
        "vllm-ascend#8906",
        "syv-ai#73",
    ),
)
def acceptance_differs_between_builds(case: Case, earlier: frozenset[str]) -> Said:
    code = "ACCEPTANCE_DIFFERS_BETWEEN_BUILDS"
    worst: Comparison | None = None
    for one in comparisons(case):
        if one.only("build", "runner") and one.ratio is not None and one.ratio <= 0.85:
            worst = one if worst is None or one.ratio < (worst.ratio or 0.0) else worst
    if worst is not None and worst.ratio is not None:
        # Two runners of one version run the same release: half the acceptance is a defect of one of them.
        halved = worst.axes == {"runner"} and worst.ratio <= 0.5
        yield _found(case, code, worst, "Another build accepts more", error=halved)


@rule(
    "FAILURE_IS_PAIR_SPECIFIC",
    "RUNTIME",
    "info",
    meaning="The same build is fine with another drafter-target pair.",
    derived="primary low or zero, and an observation with another target or pair is normal (AL >= L or rate >= 0.3)",
    remedy="Look at conversion, metadata and weights of this pair.",
    probe="Swap one side of the pair at a time.",
    sources=("z-lab#152",),
    stage=2,
)
def failure_is_pair_specific(case: Case, earlier: frozenset[str]) -> Said:
    it = acceptance(case)
    if not (is_zero(it) or is_low(it) or it.said in ("much_lower", "near_zero")) or "TOO_FEW_SAMPLES" in earlier:
        return
    for one in comparisons(case):
        if one.only("target", "drafter", "k") and one.axes & {"target", "drafter"} and _normal(case, one):
            says = f"The same build is fine with another pair: {figure(one.mine)}, {named(one)}: {figure(one.its)}."
            yield Finding("FAILURE_IS_PAIR_SPECIFIC", "info", confidence(one.mine, one.its), says, both(case, one))
            return


def _normal(case: Case, one: Comparison) -> bool:
    if one.other.conditions.get("drafter") is False:
        return False
    if one.its.known:
        return not one.its.below_line and one.its.good and not is_zero(one.its)
    return one.its.said == "normal"


@rule(
    "FAILURE_IS_ENGINE_WIDE",
    "RUNTIME",
    "info",
    meaning="Several targets fail in the same way, so the engine's drafter path is at fault, not the pair.",
    derived="primary zero or low, and at least two other targets on the same build are zero too",
    remedy="Look at backend, dtype and head in the engine.",
    probe="The same pair on another engine or GPU.",
    sources=("1Cat-vLLM#478",),
    stage=2,
)
def failure_is_engine_wide(case: Case, earlier: frozenset[str]) -> Said:
    it = acceptance(case)
    if not (is_zero(it) or is_low(it)) or "TOO_FEW_SAMPLES" in earlier:
        return
    others = [one for one in comparisons(case) if one.only("target", "drafter", "k") and "target" in one.axes]
    zero = [one for one in others if is_zero(one.its) or one.its.said == "near_zero"]
    targets = {str(one.other.conditions.get("target")) for one in zero}
    if len(targets) >= 2 and not any(_normal(case, one) for one in others):
        says = f"{len(targets)} other targets fail on the same build too, so the pair is not the cause."
        evidence = (*seen(case), *(e for one in zero for e in seen(case, one.index)))
        yield Finding("FAILURE_IS_ENGINE_WIDE", "info", max(confidence(it), PUBLISHED), says, evidence)


@rule(
    "CUDAGRAPH_CORRUPTS_DRAFTS",
    "RUNTIME",
    "error",
    meaning="Captured graphs change the result of drafting or verification.",
    derived="ratio <= 0.8 between a FULL graph mode and enforce_eager or PIECEWISE on the same requests",
    remedy="cudagraph_mode PIECEWISE, or a newer build.",
    probe="A and B: FULL, PIECEWISE, eager; step the prompt length by 1.",
    sources=(
        "vllm#42728",
        "syv-ai gotcha 37",
        "vllm-ascend#8906",
    ),
)
def cudagraph_corrupts_drafts(case: Case, earlier: frozenset[str]) -> Said:
    if not captured(case):
        return
    for one in comparisons(case):
        if one.only("graph") and one.ratio is not None and one.ratio <= 0.8 and _not_captured(one.other):
            how = "Acceptance comes back without full graphs"
            yield _found(case, "CUDAGRAPH_CORRUPTS_DRAFTS", one, how, error=True)
            return


def captured(case: Case) -> bool:
    """Does the primary observation run (or may it run) in full graphs?"""
    if fact(case, "enforce_eager") is True:
        return False
    mode = fact(case, "cudagraph_mode")
    return mode is None or str(mode).upper().startswith("FULL")


def _not_captured(other: Observation) -> bool:
    conditions = other.conditions
    mode = str(conditions.get("cudagraph_mode", "")).upper()
    return (
        conditions.get("enforce_eager") is True or mode in ("PIECEWISE", "NONE") or conditions.get("cudagraph") is False
    )
