"""METRICS: numbers that are misread, contradict each other, or follow another definition."""

from __future__ import annotations

import re
from collections import defaultdict

from draftproof.proof.case import Case
from draftproof.proof.comparing import fact
from draftproof.proof.findings import Finding
from draftproof.proof.meanings import other_meanings
from draftproof.proof.quantities import acceptance, number
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.rules.saying import COUNTED, PRIMARY, ask, confidence, logged, seen

_STEPS = re.compile(r"steps=(\d+) (?:proposed|drafted)=(\d+) accepted=(\d+)")


@rule(
    "RATE_MISREAD",
    "METRICS",
    "info",
    meaning="A low rate is only the consequence of long drafts.",
    derived="rate < 0.35, k >= 7 and 1 + k * rate >= 3.0",
    remedy="Judge by AL; shorten the draft for speed.",
    probe="Print AL and the curve.",
    sources=(
        "llama.cpp#25792",
        "club-3090#759",
    ),
)
def rate_misread(case: Case, earlier: frozenset[str]) -> Said:
    it = acceptance(case)
    if it.rate is None or not it.k_sure or it.k is None or "TOO_FEW_SAMPLES" in earlier:
        return
    stated = case.primary is not None and {"acceptance_rate", "num_draft_tokens"} & set(case.primary.metrics)
    if not stated:
        return  # nobody can misread a rate that nobody gave
    length = 1 + it.k * it.rate
    if it.rate < 0.35 and it.k >= 7 and length >= 3.0:
        says = f"A rate of {it.rate:.0%} of {it.k:g} drafted tokens is {length:.1f} tokens per pass: long, not bad."
        yield Finding("RATE_MISREAD", "info", confidence(it), says, seen(case))


@rule(
    "METRIC_INCONSISTENT",
    "METRICS",
    "warning",
    meaning="The printed numbers contradict the counters.",
    derived=(
        "abs(printed length - (1 + accepted / drafts)) > 0.1, abs(rate - accepted / drafted) > 0.01, abs(AL - 1 - "
        "sum p_i) > 0.1, or with constant k abs(AL - 1 - k * rate) > 0.25. Tree or adaptive drafting has no "
        "constant k"
    ),
    remedy="Use the counters.",
    probe="Recompute from raw counters.",
    sources=(
        "xinfer#481",
        "EAGLE#146",
    ),
)
def metric_inconsistent(case: Case, earlier: frozenset[str]) -> Said:
    if case.primary is None:
        return
    contradiction = _contradiction(case)
    if contradiction is not None:
        key, says = contradiction
        evidence = (case.evidence(f"{PRIMARY}.{key}", f"{key} = {case.primary.metrics.get(key)}"), *seen(case))
        yield Finding("METRIC_INCONSISTENT", "warning", COUNTED, says, evidence)


def _contradiction(case: Case) -> tuple[str, str] | None:
    """(key, sentence) of the first printed figure that its own counters contradict."""
    assert case.primary is not None
    metrics, it = case.primary.metrics, acceptance(case)
    drafts, accepted = number(metrics, "num_drafts"), number(metrics, "num_accepted_tokens")
    drafted, rate = number(metrics, "num_draft_tokens"), metrics.get("acceptance_rate")
    if drafts and accepted is not None:
        counted = 1 + accepted / drafts
        for key in ("mean_acceptance_length", "printed_mean_acceptance_length"):
            printed = metrics.get(key)
            if isinstance(printed, int | float) and abs(printed - counted) > 0.1:
                return (
                    key,
                    f"A length of {printed:g} is printed; {accepted:g} tokens in {drafts:g} drafts make {counted:.2f}.",
                )
    if drafted and accepted is not None and isinstance(rate, int | float) and abs(rate - accepted / drafted) > 0.01:
        return (
            "acceptance_rate",
            f"A rate of {rate:.3f} is printed; {accepted:g} of {drafted:g} make {accepted / drafted:.3f}.",
        )
    length = it.length
    if it.curve and length is not None and abs(length - 1 - sum(it.curve)) > 0.1:
        return "accepted_per_position", f"The curve sums to {sum(it.curve):.2f}, the length says {length - 1:.2f}."
    given = metrics.get("mean_acceptance_length")
    known = isinstance(rate, int | float) and isinstance(given, int | float) and it.k_sure and it.k
    if known and _constant_k(case) and abs(float(given) - 1 - float(it.k or 0) * float(rate)) > 0.25:  # type: ignore[arg-type]
        return "acceptance_rate", f"{it.k:g} tokens at a rate of {rate:.3f} do not make a length of {given:g}."
    return None


def _constant_k(case: Case) -> bool:
    """Is every draft k tokens long? Not in trees, with adaptive lengths, n-grams, or a confidence stop."""
    drafted = case.primary is not None and "mean_drafted_per_step" in case.primary.metrics
    p_min = fact(case, "spec_draft_p_min")
    stops = isinstance(p_min, int | float) and p_min > 0
    tree = fact(case, "tree") is not None or (number(case.engine.options, "eagle_topk") or 1) > 1
    adaptive = any("adaptive" in str(fact(case, name)) for name in ("block", "cap", "draft_length", "block_tokens"))
    return not (drafted or stops or tree or adaptive or case.method == "ngram")


@rule(
    "METRIC_DEFINITION",
    "METRICS",
    "info",
    meaning="The number follows another definition than AL or cumulative rates.",
    derived=(
        "ngram steps without a draft left out (tokens_without_draft or tokens_per_step given); accepted per round "
        "without the bonus; accepted / committed (dflash-mlx); completion / verify steps (SGLang); conditional or "
        "teacher-forced per-position accuracy beside cumulative rates"
    ),
    remedy="Convert before comparing.",
    probe="Ask for accepted, drafted and draft counts.",
    sources=(
        "vllm#24344",
        "mlx-vlm#1176",
        "speculators#738",
        "SpecForge#533",
    ),
)
def metric_definition(case: Case, earlier: frozenset[str]) -> Said:
    found = list(other_meanings(case))
    if found:
        evidence = tuple(case.evidence(place, what) for place, what, _ in found)
        yield Finding("METRIC_DEFINITION", "info", COUNTED, " ".join(says for *_, says in found), evidence)


@rule(
    "TP_RANK_DIVERGENCE",
    "METRICS",
    "warning",
    meaning="Ranks report different accepted counts for the same steps.",
    derived="several lines with equal steps and drafted counts but different accepted counts",
    remedy="Decide acceptance once and broadcast.",
    probe="Print the rank in each line; compare output with TP 1.",
    sources=("xinfer#483",),
)
def tp_rank_divergence(case: Case, earlier: frozenset[str]) -> Said:
    if case.primary is None:
        return
    by_line = case.primary.metrics.get("num_accepted_tokens_by_line")
    values = list(by_line.values()) if isinstance(by_line, dict) else by_line
    if isinstance(values, list) and len({str(value) for value in values}) > 1:
        says = f"Lines of the same step report different accepted counts: {', '.join(map(str, values[:6]))}."
        place = f"{PRIMARY}.num_accepted_tokens_by_line"
        yield Finding("TP_RANK_DIVERGENCE", "warning", COUNTED, says, (case.evidence(place, str(values[:6])),))
        return
    counts: dict[tuple[str, str], set[str]] = defaultdict(set)
    for line in case.primary.log:
        for steps, drafted, accepted in _STEPS.findall(line):
            counts[steps, drafted].add(accepted)
    differing = next(((step, accepted) for step, accepted in counts.items() if len(accepted) > 1), None)
    if differing is not None:
        (steps, drafted), accepted = differing
        says = f"At step {steps} with {drafted} drafted tokens the lines say {', '.join(sorted(accepted))} accepted."
        yield Finding("TP_RANK_DIVERGENCE", "warning", COUNTED, says, (case.evidence("observations.0.log", says),))


@rule(
    "LOG_RED_HERRING",
    "METRICS",
    "info",
    meaning="A frightening but harmless line.",
    derived=(
        "'dflash requires ctx_other to be set' and 'failed to measure draft model memory' during memory fitting "
        "of llama.cpp"
    ),
    remedy="Ignore.",
    probe="Look for the next line that names the drafter.",
    sources=("llama.cpp#22105",),
)
def log_red_herring(case: Case, earlier: frozenset[str]) -> Said:
    lines = ("dflash requires ctx_other to be set", "failed to measure draft model memory")
    evidence = tuple(found for line in lines if (found := logged(case, line)) is not None)
    if evidence:
        says = "llama.cpp prints this while it tries out how much memory a draft context would take; it is no fault."
        yield Finding("LOG_RED_HERRING", "info", COUNTED, says, evidence)


@rule(
    "BASELINE_MISSING",
    "METRICS",
    "info",
    meaning="Speed is judged without a plain-decoding number of the same build and machine.",
    derived="tok_s or a complaint about speed, and no baseline_tok_s in the primary observation",
    remedy="Measure without the drafter.",
    probe="One run with speculation off, same prompts.",
    sources=(
        "dflash-mlx#30",
        "vllm#50722",
        "club-3090 BENCHMARKS",
    ),
    stage=2,
)
def baseline_missing(case: Case, earlier: frozenset[str]) -> Said:
    first = case.primary
    if first is None or number(first.metrics, "baseline_tok_s") is not None:
        return
    speed = "tok_s" if number(first.metrics, "tok_s") is not None else "speed_reported"
    if speed == "speed_reported" and first.metrics.get("speed_reported") != "poor":
        return
    says = "Speed is given without a plain-decoding figure of the same build and machine."
    evidence = (case.evidence(f"{PRIMARY}.{speed}", f"{speed} = {first.metrics[speed]}"),)
    yield Finding("BASELINE_MISSING", "info", COUNTED, says, evidence)
    yield ask("tok/s without the drafter, same prompts", "one run without --speculative-config, then baseline_tok_s")
