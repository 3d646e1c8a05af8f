"""COST: what a speculative step takes, against what it brings."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.proof.case import Case
from draftproof.proof.comparing import Comparison, at_least, comparisons, fact, plain_runs
from draftproof.proof.findings import Evidence, Finding
from draftproof.proof.quantities import Acceptance, acceptance, number
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.rules.saying import (
    CANDIDATE,
    COUNTED,
    PRIMARY,
    PUBLISHED,
    ask,
    logged,
    named,
    seen,
)

_BLOCK_METHODS = {"dflash", "dflash2", "dspark"}


def baseline_tok_s(case: Case) -> float | None:
    """Plain decoding under the same conditions: given with the observation, or an observation of its own."""
    if case.primary is None:
        return None
    own = number(case.primary.metrics, "baseline_tok_s")
    others = (number(one.other.metrics, "tok_s") for one in plain_runs(case))
    return own if own is not None else next((value for value in others if value is not None), None)


def gain(case: Case) -> float | None:
    """Speed-up over plain decoding of the primary observation."""
    base, own = baseline_tok_s(case), number(case.primary.metrics, "tok_s") if case.primary is not None else None
    return own / base if own is not None and base else None


def length_counted(case: Case) -> float | None:
    """The AL if it is a figure and not the bound that an unknown k leaves."""
    it = acceptance(case)
    metrics = case.primary.metrics if case.primary is not None else {}
    direct = any(key in metrics for key in ("mean_acceptance_length", "accepted_per_position", "num_drafts"))
    return it.length if it.k_sure or direct or "acceptance_ratio_committed" in metrics else None


def cost(case: Case) -> float | None:
    """Plain steps that one speculative step takes: measured, else AL / speed-up."""
    if case.primary is None:
        return None
    step, base = number(case.primary.metrics, "step_ms"), number(case.primary.metrics, "baseline_step_ms")
    if step is not None and base:
        return step / base
    speedup, length = gain(case), length_counted(case)
    return length / speedup if speedup and length is not None else None


def _figures(case: Case, *keys: str) -> tuple[Evidence, ...]:
    metrics = case.primary.metrics if case.primary is not None else {}
    return tuple(case.evidence(f"{PRIMARY}.{key}", f"{key} = {metrics[key]}") for key in keys if key in metrics)


@rule(
    "SPEC_SLOWER_THAN_BASELINE",
    "COST",
    "warning",
    meaning="Speculation costs more than it gains.",
    derived=(
        "tok_s < 0.98 * baseline_tok_s in the primary observation, or speed_reported slower; at other "
        "concurrencies only: info"
    ),
    remedy="Lower k, switch off above that load, or reduce the step cost.",
    probe="Sweep k and streams with and without the drafter.",
    sources=(
        "dflash-mlx#32",
        "vllm#42505",
        "omlx#1080",
        "club-3090 BENCHMARKS",
    ),
)
def spec_slower_than_baseline(case: Case, earlier: frozenset[str]) -> Said:
    if case.primary is None:
        return
    evidence = _figures(case, "tok_s", "baseline_tok_s", "speed_reported")
    speedup = gain(case)
    if slower(case):
        says = f"Speculation is slower than plain decoding: {speedup:.2f}x." if speedup else "Reported as slower."
        sure = COUNTED if number(case.primary.metrics, "baseline_tok_s") is not None else PUBLISHED
        yield Finding("SPEC_SLOWER_THAN_BASELINE", "warning", sure, says, evidence)
        return
    for one in comparisons(case):
        its, base = number(one.other.metrics, "tok_s"), number(one.other.metrics, "baseline_tok_s")
        measured = its is not None and base is not None and its < 0.98 * base
        if one.only("concurrency") and (measured or one.other.metrics.get("speed_reported") == "slower"):
            says = f"At another load ({named(one)}) speculation is slower than plain decoding."
            place = case.evidence(one.where, f"tok_s = {its}, baseline_tok_s = {base}")
            yield Finding("SPEC_SLOWER_THAN_BASELINE", "info", PUBLISHED, says, (place,))
            return


def slower(case: Case) -> bool:
    speedup = gain(case)
    if speedup is not None:
        return speedup < 0.98
    return case.primary is not None and case.primary.metrics.get("speed_reported") == "slower"


@rule(
    "STEP_COST_HIGH",
    "COST",
    "warning",
    meaning=(
        "Acceptance is fine but one speculative step costs several plain steps (verify of many rows, eager path, "
        "MoE, all-reduce)."
    ),
    derived="cost >= 3, speedup < 1.25 and AL >= L(k); break-even is AL = cost",
    remedy="Graphs for the verify step, smaller k, faster kernels; not the drafter.",
    probe="step_ms with k = 0, 1, 4, 15.",
    sources=(
        "vllm#49730",
        "dflash-mlx#32",
        "Rapid-MLX#2175",
        "club-3090 BENCHMARKS",
    ),
)
def step_cost_high(case: Case, earlier: frozenset[str]) -> Said:
    steps, speedup, it = cost(case), gain(case), acceptance(case)
    length = length_counted(case)
    if steps is None or length is None or speedup is None or "TOO_FEW_SAMPLES" in earlier:
        return
    if steps >= 3 and speedup < 1.25 and length >= (it.line or 0.0):
        says = (
            f"One speculative step takes {steps:.1f} plain steps, so {steps:.1f} tokens per step would only break even;"
            f" it brings {length:.2f}. Acceptance is fine, the step is dear."
        )
        evidence = _figures(case, "step_ms", "baseline_step_ms", "tok_s", "baseline_tok_s")
        yield Finding("STEP_COST_HIGH", "warning", PUBLISHED if it.drafts is None else COUNTED, says, evidence)
        if number(case.primary.metrics if case.primary else {}, "step_ms") is None:
            yield ask("milliseconds per step with and without the drafter", "step_ms and baseline_step_ms in --case")


@rule(
    "K_TOO_LARGE",
    "COST",
    "info → warning if a smaller k is at least 10 % faster in the primary workload, or the baseline is faster",
    meaning="Long drafts are wasted.",
    derived="sweep: best tok_s at a smaller k; or k >= 7 and AL - 1 <= k / 5",
    remedy="Use the k with the best tok/s.",
    probe="Sweep k = 3, 5, 7, 15.",
    sources=(
        "z-lab#151",
        "llama.cpp#25792",
        "AEON#6",
    ),
    stage=2,
)
def k_too_large(case: Case, earlier: frozenset[str]) -> Said:
    it = acceptance(case)
    best = max(_smaller_k(case, it), key=lambda pair: pair[1], default=None)
    if best is not None:
        one, faster, k = best
        says = f"{k:g} drafted tokens are {faster - 1:.0%} faster than {it.k:g} here ({named(one)})."
        evidence = (*_figures(case, "tok_s"), case.evidence(f"{one.where}.tok_s", f"{one.other.metrics.get('tok_s')}"))
        remedy = f"num_speculative_tokens {k:g} (SGLang counts the anchor: {k + 1:g})"
        severity = "warning" if faster >= 1.1 else "info"
        yield Finding("K_TOO_LARGE", severity, COUNTED, says, evidence, remedy)  # type: ignore[arg-type]
        return
    length = length_counted(case)
    if "TOO_FEW_SAMPLES" in earlier or length is None or not it.k_sure or it.k is None or it.k < 7:
        return
    if length - 1 <= it.k / 5:
        says = f"Of {it.k:g} drafted tokens {length - 1:.1f} are accepted on average; the rest is wasted work."
        severity = "warning" if slower(case) else "info"
        yield Finding("K_TOO_LARGE", severity, PUBLISHED, says, seen(case))  # type: ignore[arg-type]


def _smaller_k(case: Case, it: Acceptance) -> Iterator[tuple[Comparison, float, float]]:
    """(comparison, how much faster, its k) of runs that differ in a smaller k alone and are faster."""
    own = number(case.primary.metrics, "tok_s") if case.primary is not None else None
    for one in comparisons(case):
        its = number(one.other.metrics, "tok_s")
        smaller = one.only("k") and it.k and one.its.k_sure and one.its.k and one.its.k < it.k
        if own and its is not None and its > own and smaller and one.its.k:
            yield one, its / own, one.its.k


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
        evidence = tuple(found for found in (line, refused) if found is not None) or _figures(case, "outcome")
        yield Finding("DRAFT_MEMORY_EXCESS", "error", COUNTED, says, evidence)
    elif failed and case.method in _BLOCK_METHODS:
        says = "Memory ran out with a drafter; how much context the drafter reserves is not known."
        yield Finding("DRAFT_MEMORY_EXCESS", "warning", CANDIDATE, says, _figures(case, "outcome"))
        yield ask("the drafter's context size", "the start-up log (--log), or draft_ctx_size in --case")
    else:
        yield from _starved(case)


def _full_draft_context(case: Case) -> bool:
    draft, full = at_least(case, "draft_ctx_size"), number(case.engine.options, "ctx_size")
    draft = draft if draft is not None else number(case.engine.options, "draft_ctx_size")
    return draft is not None and full is not None and draft >= full


def _starved(case: Case) -> Said:
    """The KV pool is used at least twice as much as without the drafter and nearly full, or first tokens wait three
    times as long although nothing is repeated (a lost prefix cache would look alike there)."""
    assert case.primary is not None
    for one in plain_runs(case):
        mine, its = number(case.primary.metrics, "kv_cache_usage"), number(one.other.metrics, "kv_cache_usage")
        if mine is not None and its is not None and mine >= 0.8 and mine >= 2 * its:
            says = f"The KV pool is {mine:.0%} full with the drafter and {its:.0%} without it."
            evidence = (*_figures(case, "kv_cache_usage"), case.evidence(f"{one.where}.kv_cache_usage", f"{its}"))
            yield Finding("DRAFT_MEMORY_EXCESS", "warning", PUBLISHED, says, evidence)
            return
        wait, other = number(case.primary.metrics, "ttft_s"), number(one.other.metrics, "ttft_s")
        loaded = (at_least(case, "concurrency") or 1) > 1 or fact(case, "load") == "high"
        if wait is not None and other and wait >= 3 * other and loaded and not fact(case, "repeated_prompt"):
            says = f"Under load first tokens take {wait:g} s with the drafter and {other:g} s without it."
            yield Finding("DRAFT_MEMORY_EXCESS", "warning", 0.6, says, _figures(case, "ttft_s"))
            return
