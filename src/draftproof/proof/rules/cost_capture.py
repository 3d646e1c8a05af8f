"""COST: shapes without a captured graph, and the memory that a drafter takes."""

from __future__ import annotations

from draftproof.proof.case import Case
from draftproof.proof.comparing import Comparison, at_least, comparisons, fact, plain_runs
from draftproof.proof.findings import Finding
from draftproof.proof.quantities import number
from draftproof.proof.rules.cost import stated
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.rules.saying import CANDIDATE, COUNTED, PUBLISHED, ask, logged, named

_BLOCK_METHODS = {"dflash", "dflash2", "dspark"}


@rule(
    "CUDAGRAPH_SHAPE_MISS",
    "COST",
    "error",
    meaning="A batch size has no captured graph and falls to the slow path; acceptance is unchanged.",
    derived=(
        "concurrency not in the captured request counts (or concurrency * (k + 1) not in the token sizes) and "
        "step_ms or tok_s at least 10 % worse than with an exact graph or at other counts"
    ),
    remedy="Capture (k + 1) * n for each n in use.",
    probe="Step time at n - 1, n, n + 1.",
    sources=(
        "FreeToken#173",
        "sparkring#213",
        "syv-ai gotcha 27",
    ),
)
def cudagraph_shape_miss(case: Case, earlier: frozenset[str]) -> Said:
    streams = at_least(case, "concurrency")
    if case.primary is None or streams is None:
        return
    missing = not_captured(case, streams)
    for one in comparisons(case):
        exact = one.only("capture") and one.other.conditions.get("cudagraph_capture") == "exact"
        loss = _loss(case, one) if exact or (missing and one.only("concurrency")) else None
        if exact and missing is False:
            continue
        if loss is not None and loss >= 0.1:
            says = f"{streams:g} streams have no captured graph: {loss:.0%} slower than {named(one)}."
            evidence = (
                case.evidence("engine.options.cudagraph_capture_requests", str(_captured(case))),
                case.evidence(one.where, str(dict(one.other.metrics))),
            )
            yield Finding("CUDAGRAPH_SHAPE_MISS", "error", COUNTED if missing else PUBLISHED, says, evidence)
            return
    if missing:
        yield ask(
            f"step time at {streams - 1:g}, {streams:g} and {streams + 1:g} streams", "three observations in --case"
        )


def not_captured(case: Case, streams: float) -> bool | None:
    """Is there no graph for this many requests? None if what was captured is not known."""
    captured = _captured(case)
    return None if captured is None else streams not in captured


def _captured(case: Case) -> list[float] | None:
    requests = case.engine.options.get("cudagraph_capture_requests")
    if isinstance(requests, list):
        return [float(n) for n in requests if isinstance(n, int)]
    sizes = case.engine.options.get("cudagraph_capture_sizes")  # counted in tokens, k + 1 for each request
    if isinstance(sizes, list) and case.k is not None:
        return [n / (case.k + 1) for n in sizes if isinstance(n, int)]
    return None


def _loss(case: Case, one: Comparison) -> float | None:
    """How much worse the primary observation is: step time up, or throughput down. Throughput at another number of
    streams counts only if fewer streams get more out of the server."""
    assert case.primary is not None
    mine, its = case.primary.metrics, one.other.metrics
    step, other_step = number(mine, "step_ms"), number(its, "step_ms")
    streams, other_streams = at_least(case, "concurrency"), at_least(case, "concurrency", one.other)
    fewer = "concurrency" in one.axes and (other_streams or 0) < (streams or 0)
    if step and other_step:
        return step / other_step - 1 if not fewer else None  # a longer step for more rows is no loss
    for key in ("tok_s", "tok_s_relative"):
        own, other = number(mine, key), number(its, key)
        if own and other and ("concurrency" not in one.axes or (fewer and key == "tok_s")):
            return other / own - 1
        if own and other and key == "tok_s" and streams and other_streams:
            return (other / other_streams) / (own / streams) - 1  # more streams get less each, unless one was slow
    return None


@rule(
    "DRAFT_MEMORY_EXCESS",
    "COST",
    "warning → error if allocation fails",
    meaning="The drafter's KV cache or work space takes memory for the full target context or starves the KV pool.",
    derived=(
        "draft context equals the target context (draft_ctx_size, log 'DFlash context target/slot=') and outcome "
        "oom or cudaMalloc failed; warning: KV pool or TTFT visibly worse with the drafter"
    ),
    remedy="Limit the draft context (--ctx-size-draft), reserve memory, window the draft KV.",
    probe="Start with a small draft context.",
    sources=(
        "ik_llama.cpp#2366",
        "beellama#97",
        "z-lab#11",
        "local-inference-lab#24",
    ),
)
def draft_memory_excess(case: Case, earlier: frozenset[str]) -> Said:
    if case.primary is None:
        return
    refused = logged(case, "cudaMalloc failed") or logged(case, "CUDA out of memory")
    failed = case.primary.metrics.get("outcome") == "oom" or refused is not None
    line = logged(case, "DFlash context target/slot=")
    full = line is not None or _full_draft_context(case)
    if failed and full:
        says = "The drafter's cache is made for the target's whole context, and its allocation fails."
        evidence = tuple(found for found in (line, refused) if found is not None) or stated(case, "outcome")
        yield Finding("DRAFT_MEMORY_EXCESS", "error", COUNTED, says, evidence)
    elif failed and case.method in _BLOCK_METHODS:
        says = "Memory ran out with a drafter; how much context the drafter reserves is not known."
        yield Finding("DRAFT_MEMORY_EXCESS", "warning", CANDIDATE, says, stated(case, "outcome"))
        yield ask("the drafter's context size", "the start-up log (--log), or draft_ctx_size in --case")
    else:
        yield from _starved(case)


def _full_draft_context(case: Case) -> bool:
    options = case.engine.options
    draft, full = at_least(case, "draft_ctx_size"), number(options, "ctx_size") or number(options, "max_model_len")
    draft = draft if draft is not None else number(options, "draft_ctx_size")
    if draft is not None and full is not None:
        return draft >= full
    return any(one.only("draft_ctx") and one.other.metrics.get("outcome") == "ok" for one in comparisons(case))


def _starved(case: Case) -> Said:
    """The KV pool is used at least twice as much as without the drafter and nearly full, or first tokens wait twice as
    long under load although nothing is repeated (a lost prefix cache would look alike there)."""
    assert case.primary is not None
    for one in plain_runs(case):
        mine, its = number(case.primary.metrics, "kv_cache_usage"), number(one.other.metrics, "kv_cache_usage")
        if mine is not None and its is not None and mine >= 0.8 and mine >= 2 * its:
            says = f"The KV pool is {mine:.0%} full with the drafter and {its:.0%} without it."
            evidence = (*stated(case, "kv_cache_usage"), case.evidence(f"{one.where}.kv_cache_usage", f"{its}"))
            yield Finding("DRAFT_MEMORY_EXCESS", "warning", PUBLISHED, says, evidence)
            return
        wait, other = number(case.primary.metrics, "ttft_s"), number(one.other.metrics, "ttft_s")
        loaded = (at_least(case, "concurrency") or 1) > 1 or fact(case, "load") == "high"
        if wait is not None and other and wait >= 2 * other and loaded and not fact(case, "repeated_prompt"):
            says = f"Under load first tokens take {wait:g} s with the drafter and {other:g} s without it."
            yield Finding("DRAFT_MEMORY_EXCESS", "warning", 0.6, says, stated(case, "ttft_s"))
            return
