"""RUNTIME: what one acceptance figure or curve shows by itself."""

from __future__ import annotations

from draftproof.intervals import wilson
from draftproof.proof.case import Case
from draftproof.proof.comparing import comparisons, fact
from draftproof.proof.findings import Finding
from draftproof.proof.published import Published, comparable
from draftproof.proof.quantities import FEW_DRAFTS, UNKNOWN_K, Acceptance, acceptance, low_line
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.rules.saying import COUNTED, PUBLISHED, WORDS, ask, both, confidence, figure, named, seen

ZERO = 1.02  # AL below this: not one draft in fifty gets a token accepted
_TEXT_DRIFT = 0.75  # of the reference's accepted tokens


def is_zero(side: Acceptance) -> bool:
    """Practically nothing accepted. With k unknown an AL is only a bound, so the rate decides."""
    if side.length is not None and side.length < ZERO:
        return True
    if side.rate is not None and not side.k_sure and side.rate < 0.002:
        return True
    return side.first is not None and side.first < 0.02 and (side.drafts or 0) >= 200


def is_low(side: Acceptance) -> bool:
    return not is_zero(side) and side.below_line


@rule(
    "TOO_FEW_SAMPLES",
    "RUNTIME",
    "info",
    meaning="The sample is too small to judge.",
    derived=(
        "N < 30; or N < 200 and abs(AL - L(k)) <= 2 SE. A single prompt or one deterministic trajectory lowers "
        "the confidence but is not this finding"
    ),
    remedy="Run at least 200 drafts on 20 prompts.",
    probe="Longer run; differences of counters.",
    sources=(
        "z-lab#52",
        "vllm-ascend#13640",
        "syv-ai#60",
    ),
    stage=0,
)
def too_few_samples(case: Case, earlier: frozenset[str]) -> Said:
    it = acceptance(case)
    if it.too_few and it.drafts is not None:
        error = f", standard error {it.standard_error:.2f}" if it.standard_error else ""
        says = f"{it.drafts:g} drafts are not evidence{error}: the length may lie on either side of {it.line or 0:.2f}."
        if it.drafts < FEW_DRAFTS or it.line is None:
            says = f"{it.drafts:g} drafts are not evidence: fewer than {FEW_DRAFTS}."
        yield Finding("TOO_FEW_SAMPLES", "info", COUNTED, says, seen(case))
    elif it.drafts is None and it.drafted is not None and it.accepted is not None and _straddles(it):
        low, high = wilson(it.accepted, it.drafted) or (0.0, 1.0)
        says = f"{it.drafted:g} drafted tokens leave the rate anywhere between {low:.1%} and {high:.1%}."
        yield Finding("TOO_FEW_SAMPLES", "info", PUBLISHED, says, seen(case))


def _straddles(it: Acceptance) -> bool:
    """Token counts alone: does the interval of the rate contain the low line, or are there hardly any tokens?"""
    drafted, accepted = it.drafted or 0.0, it.accepted or 0.0
    line = low_line(it.method, it.k)
    if drafted < FEW_DRAFTS:
        return True
    if line is None or drafted >= 200 * UNKNOWN_K:
        return False
    low, high = wilson(accepted, drafted) or (0.0, 1.0)
    return low <= (line - 1) / UNKNOWN_K <= high


@rule(
    "ACCEPTANCE_EXACT_ZERO",
    "RUNTIME",
    "warning",
    meaning="Practically nothing is accepted although the text is right.",
    derived=(
        "AL < 1.02 (accepted / drafts < 0.02), or p_1 < 0.02 with N >= 200, or rate < 0.002 when k is unknown; "
        "not with TOO_FEW_SAMPLES"
    ),
    remedy="Look at head, embeddings, mask row, draft KV, dtype before anything else.",
    probe="Other runner, unquantised drafter, reference implementation on the same prompt.",
    sources=(
        "vllm#46435",
        "vllm#49559",
        "1Cat-vLLM#478",
        "ninfer-windows#4",
        "dflash-mlx#60",
    ),
)
def acceptance_exact_zero(case: Case, earlier: frozenset[str]) -> Said:
    it = acceptance(case)
    if "TOO_FEW_SAMPLES" in earlier:
        return
    if not it.known and it.said == "near_zero":
        says = "Acceptance is reported as near zero; no figure is given."
        yield Finding("ACCEPTANCE_EXACT_ZERO", "warning", WORDS, says, seen(case))
    if not is_zero(it):
        return
    says = f"Practically nothing is accepted: {figure(it)}."
    yield Finding("ACCEPTANCE_EXACT_ZERO", "warning", max(confidence(it), PUBLISHED), says, seen(case))
    if case.drafter.tensors is None and case.drafter.files is None:
        yield ask("the drafter's tensor names (has it an own lm_head?)", "--drafter FOLDER")


@rule(
    "ACCEPTANCE_LOW",
    "RUNTIME",
    "warning",
    meaning="Acceptance is below the line of healthy public runs.",
    derived="1.02 <= AL < L(k); k unknown: 1 + 15 * rate < L(15). Not for ngram, not with TOO_FEW_SAMPLES",
    remedy="Find the cause; do not tune k first.",
    probe="Curve in three conditions: short and long context, first and second turn, greedy and sampled.",
    sources=(
        "AEON#6",
        "vllm#42505",
        "z-lab#152",
        "sglang#30763",
    ),
)
def acceptance_low(case: Case, earlier: frozenset[str]) -> Said:
    it = acceptance(case)
    if case.primary is None or "TOO_FEW_SAMPLES" in earlier or it.method == "ngram":
        return
    if is_low(it) and it.line is not None:
        off = f"; healthy pairs lie above {it.line:.2f}"
        yield Finding("ACCEPTANCE_LOW", "warning", confidence(it), f"Acceptance is low: {figure(it)}{off}.", seen(case))
        if not it.k_sure:
            yield ask("drafted tokens per step", "--launch, or --workload num_speculative_tokens=N")
    elif not it.known and it.said == "much_lower":
        says = "Acceptance is reported as much lower; no figure is given."
        yield Finding("ACCEPTANCE_LOW", "warning", WORDS, says, seen(case))
    elif not it.known and case.observations:
        yield ask("accepted tokens, drafted tokens and drafts", "--log FILE or --metrics URL")


@rule(
    "ACCEPTANCE_BELOW_REFERENCE",
    "RUNTIME",
    "warning",
    meaning="Acceptance is far under a reference for the same pair and workload.",
    derived=(
        "ratio <= 0.75 against an observation with conditions.reference, or against section 5 for the same "
        "drafter, data, language, temperature and thinking mode"
    ),
    remedy="Reproduce the reference conditions; then search the engine.",
    probe="Same prompts, T=0, thinking as trained, k = B - 1.",
    sources=(
        "sglang#27924",
        "z-lab#170",
        "hipfire#483",
        "z-lab#133",
    ),
)
def acceptance_below_reference(case: Case, earlier: frozenset[str]) -> Said:
    if "TOO_FEW_SAMPLES" in earlier:
        return
    for one in comparisons(case):
        if not one.other.conditions.get("reference") or one.axes & {"workload", "sampling", "thinking"} & _stated(case):
            continue
        if one.ratio is not None and one.ratio <= _TEXT_DRIFT:
            says = f"{figure(one.mine)}, where {named(one)} shows {figure(one.its)}: {one.ratio:.0%} of it."
            yield Finding("ACCEPTANCE_BELOW_REFERENCE", "warning", confidence(one.mine, one.its), says, both(case, one))
            return
    it = acceptance(case)
    row = comparable(case)
    if isinstance(row, Published) and it.length is not None and (it.length - 1) / (row.length - 1) <= _TEXT_DRIFT:
        says = f"{figure(it)}; {row.drafter} is published with {row.length:.2f} on {row.dataset} ({row.source})."
        yield Finding("ACCEPTANCE_BELOW_REFERENCE", "warning", confidence(it), says, seen(case))
    elif isinstance(row, str) and is_low(it):
        yield ask(row, "--workload dataset=… temperature=… thinking=…")


def _stated(case: Case) -> set[str]:
    """Axes on which the primary observation itself says what it is; a reference that differs there is another one."""
    first = case.primary
    own = {"workload": "dataset", "sampling": "temperature", "thinking": "thinking"}
    both_say = {
        axis
        for axis, key in own.items()
        if first is not None
        and fact(case, key) is not None
        and any(key in other.conditions for other in case.observations[1:] if other.conditions.get("reference"))
    }
    return both_say


@rule(
    "ACCEPTANCE_CLIFF_AT_POSITION",
    "RUNTIME",
    "warning",
    meaning="The curve breaks off at one position.",
    derived=(
        "p_i >= 0.05, p_(i+1) <= 0.1 p_i and N * p_i >= 20 (expected count); a break at position B means "
        "K_EXCEEDS_BLOCK"
    ),
    remedy="Check block size, window and mask.",
    probe="Longer sample; shorter context.",
    sources=(
        "AEON#6",
        "Rapid-MLX#2195",
    ),
)
def acceptance_cliff_at_position(case: Case, earlier: frozenset[str]) -> Said:
    it = acceptance(case)
    if it.drafts is None:
        return
    for place, (before, after) in enumerate(zip(it.curve, it.curve[1:], strict=False), start=1):
        if before >= 0.05 and after <= 0.1 * before and it.drafts * before >= 20:
            says = f"The curve breaks off after position {place}: {before:.1%}, then {after:.1%}."
            yield Finding("ACCEPTANCE_CLIFF_AT_POSITION", "warning", confidence(it), says, seen(case))
            return


@rule(
    "ACCEPTANCE_TAIL_STEEP",
    "RUNTIME",
    "warning",
    meaning="Conditional acceptance falls along the block instead of staying level.",
    derived=(
        "at least four c_i (from i = 2) with N * p_(i-1) >= 10, and mean of the last two <= 0.65 * mean of the "
        "first two"
    ),
    remedy="Check the in-block mask and the training length of the drafter.",
    probe="Same drafter on an engine with the other mask.",
    sources=("speculators#523",),
)
def acceptance_tail_steep(case: Case, earlier: frozenset[str]) -> Said:
    it = acceptance(case)
    judged = tail(it)
    if len(judged) < 4:
        return
    first, last = sum(judged[:2]) / 2, sum(judged[-2:]) / 2
    if last <= 0.65 * first:
        says = (
            f"Conditional acceptance falls along the block, from {first:.0%} to {last:.0%}, instead of staying level."
        )
        yield Finding("ACCEPTANCE_TAIL_STEEP", "warning", confidence(it), says, seen(case))


def tail(it: Acceptance) -> list[float]:
    """The conditional rates c_2 … that enough drafts reached to be judged."""
    return [
        c
        for c, before in zip(it.conditional[1:], it.curve, strict=False)
        if it.drafts is None or it.drafts * before >= 10
    ]


@rule(
    "ACCEPTANCE_SUSPICIOUSLY_HIGH",
    "RUNTIME",
    "info",
    meaning="Nearly everything is accepted: a repetitive or echoing prompt, or degenerate output.",
    derived="rate >= 0.98",
    remedy="Do not extrapolate; read the output.",
    probe="Another prompt; repetition check of the text.",
    sources=(
        "llama.cpp#22105",
        "vllm#40914",
    ),
)
def acceptance_suspiciously_high(case: Case, earlier: frozenset[str]) -> Said:
    it = acceptance(case)
    if it.rate is not None and it.rate >= 0.98:
        says = f"{it.rate:.1%} of the drafted tokens are accepted; real text does not do that."
        yield Finding("ACCEPTANCE_SUSPICIOUSLY_HIGH", "info", confidence(it), says, seen(case))


@rule(
    "HEALTHY",
    "RUNTIME",
    "info",
    meaning="Acceptance is in the normal band and nothing else was found.",
    derived=(
        "verdict healthy and the primary observation has AL >= L(k) (or rate >= 0.3 with k unknown) and not "
        "TOO_FEW_SAMPLES"
    ),
    remedy="None.",
    probe="None.",
    sources=(
        "sglang#16818",
        "z-lab#52",
        "club-3090",
    ),
    stage=3,
)
def healthy(case: Case, earlier: frozenset[str]) -> Said:
    """Whether the number is in the band; the verdict takes this back if anything else was found."""
    it = acceptance(case)
    if "TOO_FEW_SAMPLES" in earlier or not it.known or is_zero(it):
        return
    bounded = it.line is None or (not it.k_sure and _from_rate(case))
    high_rate = it.rate is not None and it.rate >= 0.3
    if high_rate if bounded else it.length is not None and it.length >= (it.line or 0.0):
        yield Finding("HEALTHY", "info", confidence(it), f"Acceptance is in the normal band: {figure(it)}.", seen(case))


def _from_rate(case: Case) -> bool:
    """Was the length made from a rate with k unknown?"""
    metrics = case.primary.metrics if case.primary is not None else {}
    printed = ("mean_acceptance_length", "mean_acceptance_length_range", "accepted_per_position", "num_drafts")
    return not any(key in metrics for key in (*printed, "acceptance_ratio_committed"))
