"""COST: what a speculative step takes, against what it brings."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.proof.case import Case
from draftproof.proof.comparing import Comparison, comparisons, plain_runs
from draftproof.proof.findings import Evidence, Finding
from draftproof.proof.quantities import Acceptance, acceptance, number
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.rules.saying import (
    COUNTED,
    PRIMARY,
    PUBLISHED,
    ask,
    named,
    seen,
)


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


def stated(case: Case, *keys: str) -> tuple[Evidence, ...]:
    """Figures of the primary observation with their places."""
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
    evidence = stated(case, "tok_s", "baseline_tok_s", "speed_reported")
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
        evidence = stated(case, "step_ms", "baseline_step_ms", "tok_s", "baseline_tok_s")
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
        evidence = (*stated(case, "tok_s"), case.evidence(f"{one.where}.tok_s", f"{one.other.metrics.get('tok_s')}"))
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
