"""Budgets and lengths: is there room for what speculation needs?"""

from __future__ import annotations

import re

from draftproof.proof.case import Case
from draftproof.proof.findings import Finding, Severity
from draftproof.proof.judging import CERTAIN, failed, log_lines
from draftproof.proof.launching import drafted, speculative_config
from draftproof.proof.layouts import layout_of
from draftproof.proof.quantities import number
from draftproof.proof.rules.registry import Said, rule

SAFE_NGRAM_MIN = 5
_BUDGET_LOG = re.compile(r"max_num_scheduled_tokens.*suboptimal performance", re.IGNORECASE)


@rule(
    "BATCHED_TOKENS_TOO_SMALL",
    "LAUNCH",
    "warning",
    meaning="The scheduler's budget has no room for the draft slots.",
    derived="A log line with max_num_scheduled_tokens and 'suboptimal performance'; or max_num_batched_tokens < "
    "max_num_seqs × (k + 1).",
    remedy="Raise max_num_batched_tokens.",
    probe="Repeat with a doubled budget.",
    sources=("club-3090 BENCHMARKS",),
)
def batched_tokens_too_small(case: Case, earlier: frozenset[str]) -> Said:
    for place, line in log_lines(case):
        if _BUDGET_LOG.search(line):
            says = "the engine says that max_num_scheduled_tokens leaves too little room for the draft slots"
            yield Finding("BATCHED_TOKENS_TOO_SMALL", "warning", CERTAIN, says, (case.evidence(place, line),))
            return
    budget, streams = number(case.engine.options, "max_num_batched_tokens"), number(case.engine.options, "max_num_seqs")
    asked = drafted(case)
    if budget is None or streams is None or asked is None:
        return
    needed = streams * (asked[0] + 1)
    if budget < needed:
        says = (
            f"max_num_batched_tokens={budget:.0f} is less than {streams:.0f} sequences of {asked[0] + 1} tokens "
            f"each need ({needed:.0f})"
        )
        evidence = (
            case.evidence("engine.options.max_num_batched_tokens", f"{budget:.0f}"),
            case.evidence("engine.options.max_num_seqs", f"{streams:.0f}"),
        )
        remedy = f"--max-num-batched-tokens {needed:.0f} or more, or --max-num-seqs {budget // (asked[0] + 1):.0f}"
        yield Finding("BATCHED_TOKENS_TOO_SMALL", "warning", CERTAIN, says, evidence, remedy, "")


@rule(
    "DRAFT_MAX_LEN_LT_TARGET",
    "LAUNCH",
    "warning; error if a request exceeds it and fails",
    meaning="The drafter's maximum length is below what the server accepts.",
    derived="max_model_len, context_tokens or prompt_tokens > max_position_embeddings of the drafter (error if such a "
    "request failed).",
    remedy="Lower max_model_len, or fall back to plain decoding beyond it.",
    probe="A request just below and just above the limit.",
    sources=("vllm-backport#59", "vLLM 0.33 source"),
)
def draft_max_len_lt_target(case: Case, earlier: frozenset[str]) -> Said:
    limit = layout_of(case).max_positions
    if limit is None:
        return
    seen = case.primary.conditions if case.primary is not None else {}
    requests = [
        (value, f"{place}.{key}")
        for place, facts in (("workload", case.workload), ("observations[0].conditions", seen))
        for key, value in _lengths(facts, "context_tokens", "prompt_tokens")
    ]
    served = [(v, f"engine.options.{key}") for key, v in _lengths(case.engine.options, "max_model_len")]
    longest = max((*requests, *served), key=lambda pair: pair[0], default=None)
    if longest is None or longest[0] <= limit.value:
        return
    exceeds = any(value > limit.value for value, _ in requests)
    severity: Severity = "error" if exceeds and failed(case.primary) else "warning"
    what = "a request reaches" if exceeds else "the server accepts"
    says = f"{what} {longest[0]:.0f} tokens; the drafter knows {limit.value} positions"
    evidence = (
        case.evidence(longest[1], f"{longest[0]:.0f} tokens"),
        case.evidence(f"drafter.config.{limit.path}", f"{limit.value} positions"),
    )
    remedy = "" if exceeds else f"--max-model-len {limit.value}"
    yield Finding("DRAFT_MAX_LEN_LT_TARGET", severity, CERTAIN, says, evidence, remedy, "")


def _lengths(facts: object, *keys: str) -> list[tuple[str, float]]:
    found = []
    for key in keys if isinstance(facts, dict) else ():
        value, above = number(facts, key), number(facts, f"{key}_above")  # type: ignore[arg-type]
        if value is not None:
            found.append((key, value))
        if above is not None:
            found.append((f"{key}_above", above + 1))
    return found


@rule(
    "NGRAM_MIN_TOO_SMALL",
    "LAUNCH",
    "warning; error if mangled output is reported",
    meaning="Short n-gram matches insert spurious text into tool calls or structured output.",
    derived="Method ngram, prompt_lookup_min < 5, and tools or structured output in the workload.",
    remedy="prompt_lookup_min 8 or more.",
    probe="Compare tool-call arguments with and without speculation.",
    sources=("vllm#40875",),
)
def ngram_min_too_small(case: Case, earlier: frozenset[str]) -> Said:
    least = number(speculative_config(case), "prompt_lookup_min")
    if least is None:
        least = number(case.engine.options, "prompt_lookup_min")
    structured = case.workload.get("tools") or case.workload.get("structured_output")
    if case.method != "ngram" or least is None or least >= SAFE_NGRAM_MIN or not structured:
        return
    output = case.primary.metrics.get("output") if case.primary is not None else None
    calls = case.primary.metrics.get("tool_calls_reported") if case.primary is not None else None
    mangled = output in ("tool_arguments_mangled", "corrupt") or calls in ("mangled", "corrupt")
    says = f"n-grams from {least:.0f} tokens on are taken as drafts of tool calls or structured output"
    evidence = (case.evidence("engine.options.speculative_config.prompt_lookup_min", f"{least:.0f}"),)
    yield Finding("NGRAM_MIN_TOO_SMALL", "error" if mangled else "warning", CERTAIN, says, evidence)
