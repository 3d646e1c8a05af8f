"""SERVING: requests that fail, or whose text is not what the target alone would write."""

from __future__ import annotations

import re
from math import sqrt

from draftproof.proof.case import Case
from draftproof.proof.comparing import Comparison, at_least, comparisons, fact
from draftproof.proof.findings import Finding
from draftproof.proof.quantities import number
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.rules.saying import (
    CANDIDATE,
    COUNTED,
    PRIMARY,
    PUBLISHED,
    WORDS,
    ask,
    both,
    confidence,
    figure,
    logged,
    named,
    seen,
)
from draftproof.proof.rules.serving_cache import bad, broken_output, failed
from draftproof.proof.versions import Fit, build_of, runner_of

_SIZES = re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)")
_UNSUPPORTED = ("min_p", "logit_bias")


@rule(
    "CRASH_UNDER_CONCURRENCY",
    "SERVING",
    "error",
    meaning="The engine dies with several streams although memory is free.",
    derived="outcome crash (illegal address, Xid) with concurrency >= 2 and KV usage below 0.5",
    remedy="Eager or piecewise graphs, fewer streams, newer build.",
    probe="Same load with enforce_eager.",
    sources=(
        "z-lab#146",
        "AEON#7",
        "AEON#10",
    ),
)
def crash_under_concurrency(case: Case, earlier: frozenset[str]) -> Said:
    first, streams = case.primary, at_least(case, "concurrency")
    if first is None or first.metrics.get("outcome") != "crash" or streams is None or streams < 2:
        return
    usage = number(first.metrics, "kv_cache_usage")
    if usage is not None and usage < 0.5:
        says = f"The engine died with {streams:g} streams while {usage:.0%} of the KV cache was in use."
        evidence = (case.evidence(f"{PRIMARY}.kv_cache_usage", f"kv_cache_usage = {usage}"),)
        yield Finding("CRASH_UNDER_CONCURRENCY", "error", COUNTED, says, evidence)
    elif usage is None:
        says = f"The engine died with {streams:g} streams; whether memory was free is not known."
        yield Finding("CRASH_UNDER_CONCURRENCY", "error", CANDIDATE, says, (case.evidence(PRIMARY, "outcome = crash"),))
        yield ask("KV cache usage before the crash", "--log FILE or --metrics URL")


@rule(
    "OUTPUT_NOT_LOSSLESS",
    "SERVING",
    "warning → error if accuracy falls beyond noise",
    meaning="With the drafter the output differs from plain decoding.",
    derived=(
        "temperature 0 and text differs (warning: a near tie of the two best tokens is possible); accuracy lower "
        "by more than 2 standard errors of the two proportions (error)"
    ),
    remedy="Use a build or backend where it agrees.",
    probe="First divergence and the gap of the two best logits there, in fp32.",
    sources=(
        "llama.cpp#27975",
        "vllm#54928",
        "vllm#7627",
    ),
)
def output_not_lossless(case: Case, earlier: frozenset[str]) -> Said:
    first = case.primary
    if first is None:
        return
    for one in comparisons(case):
        if one.other.conditions.get("drafter") is not False:
            continue
        worse = _accuracy_lost(case, one)
        if worse is not None:
            evidence = (
                case.evidence(f"{PRIMARY}.accuracy", f"accuracy = {first.metrics['accuracy']}"),
                case.evidence(f"{one.where}.accuracy", f"accuracy = {one.other.metrics['accuracy']}"),
            )
            says = (
                f"Accuracy falls from {one.other.metrics['accuracy']:.1%} to {first.metrics['accuracy']:.1%}, {worse}."
            )
            yield Finding("OUTPUT_NOT_LOSSLESS", "error", COUNTED, says, evidence)
            return
    differs = (
        first.metrics.get("output") == "text_differs" or number(first.metrics, "first_divergence_token") is not None
    )
    if differs and fact(case, "temperature") == 0:
        says = "At temperature 0 the text differs from plain decoding; a near tie of two tokens would do that as well."
        key = "output" if "output" in first.metrics else "first_divergence_token"
        place = case.evidence(f"{PRIMARY}.{key}", f"{key} = {first.metrics[key]}")
        yield Finding("OUTPUT_NOT_LOSSLESS", "warning", COUNTED, says, (place,))
    elif first.metrics.get("output") in ("corrupt", "degenerate_repetition", "tool_arguments_mangled"):
        for one in comparisons(case):
            plain = one.only("drafter") and one.other.conditions.get("drafter") is False
            if plain and broken_output(one.other) is False:
                says = f"The text is {first.metrics['output'].replace('_', ' ')}; {named(one)} is fine."
                place = case.evidence(f"{PRIMARY}.output", f"output = {first.metrics['output']}")
                yield Finding("OUTPUT_NOT_LOSSLESS", "warning", PUBLISHED, says, (place,))
                return
    elif differs and fact(case, "temperature") is None:
        yield ask("the temperature of the requests", "--workload temperature=0")


def _accuracy_lost(case: Case, one: Comparison) -> str | None:
    """Words for a loss of more than two standard errors of the two proportions; None if there is none to be seen."""
    assert case.primary is not None
    mine, its = number(case.primary.metrics, "accuracy"), number(one.other.metrics, "accuracy")
    count = fact(case, "num_prompts")
    other_count = fact(case, "num_prompts", one.other)
    if mine is None or its is None or not isinstance(count, int) or not isinstance(other_count, int):
        return None
    if min(count, other_count) < 1 or not (0 <= mine <= 1 and 0 <= its <= 1):
        return None
    error = sqrt(mine * (1 - mine) / count + its * (1 - its) / other_count)
    return f"{(its - mine) / error:.1f} standard errors" if error and its - mine > 2 * error else None


@rule(
    "GRAMMAR_CONFLICT",
    "SERVING",
    "warning → error if the request or the engine fails",
    meaning="Grammar-constrained decoding and drafts disagree.",
    derived=(
        "structured output and: log 'size of tensor a (n) must match the size of tensor b (n+1)' (error); 'Failed "
        "to advance FSM' (warning); SGLang release < 0.5.18 rejects such requests with DFLASH (error)"
    ),
    remedy="Upgrade; no speculation for guided requests.",
    probe="One guided request with and without the drafter.",
    sources=(
        "vllm#50924",
        "vllm#53777",
        "vllm#46118",
        "SGLang wheels",
    ),
)
def grammar_conflict(case: Case, earlier: frozenset[str]) -> Said:
    guided = fact(case, "structured_output")
    fails = case.primary is not None and failed(case.primary)
    for line in ("must match the size of tensor b", "Failed to advance FSM"):
        found = logged(case, line)
        if found is None or not (guided or line.startswith("Failed")):
            continue
        sizes = _SIZES.search(found.what)
        if line.startswith("must"):
            if sizes is None or int(sizes.group(2)) != int(sizes.group(1)) + 1:
                continue
            says = "The grammar's bit mask has one row more than the logits: guided decoding and drafts disagree."
            yield Finding("GRAMMAR_CONFLICT", "error", COUNTED, says, (found,))
        else:
            says = "The grammar could not follow the drafted tokens."
            yield Finding("GRAMMAR_CONFLICT", "error" if fails else "warning", COUNTED, says, (found,))
        return
    fit = build_of(case).fit("sglang", None, "0.5.18")
    succeeded = case.primary is not None and case.primary.metrics.get("outcome") == "ok"
    if guided and case.method == "dflash" and fit >= Fit.BASE and not succeeded and (fit == Fit.RELEASE or fails):
        says = f"{build_of(case)} rejects grammar-constrained requests with DFLASH."
        evidence = (case.evidence("engine.version", str(case.engine.version)),)
        yield Finding("GRAMMAR_CONFLICT", "error", COUNTED if fit == Fit.RELEASE else PUBLISHED, says, evidence)


@rule(
    "API_PARAM_UNSUPPORTED",
    "SERVING",
    "error",
    meaning="Requests with certain parameters are refused while speculation is on.",
    derived=(
        "log or body 'min_p and logit_bias sampling parameters are not yet supported with speculative decoding'; "
        "thinking_token_budget on the V2 runner"
    ),
    remedy="Do not send them, or serve without speculation.",
    probe="Same request without the parameter.",
    sources=(
        "vllm#42744",
        "vllm#31982",
        "syv-ai gotcha 18",
    ),
)
def api_param_unsupported(case: Case, earlier: frozenset[str]) -> Said:
    line = logged(case, "not yet supported with speculative decoding")
    sent = fact(case, "request_params")
    params = [str(name) for name in sent] if isinstance(sent, list | dict) else []
    if line is not None:
        says = "The server refuses a sampling parameter while speculation is on."
        yield Finding("API_PARAM_UNSUPPORTED", "error", COUNTED, says, (line,))
        return
    vllm = build_of(case).engine == "vllm"
    place = (case.evidence("workload.request_params", ", ".join(params)),)
    if vllm and "thinking_token_budget" in params and runner_of(case) == "V2":
        says = "thinking_token_budget is refused by the V2 runner."
        yield Finding("API_PARAM_UNSUPPORTED", "error", COUNTED, says, place)
    elif vllm and case.primary is not None and case.primary.metrics.get("outcome") == "http_400":
        refused = [name for name in params if name in _UNSUPPORTED]
        if refused:
            says = f"{' and '.join(refused)} cannot be used with speculation in vLLM, and the requests got HTTP 400."
            yield Finding("API_PARAM_UNSUPPORTED", "error", PUBLISHED, says, place)


@rule(
    "STREAM_PARSER_LOSES_TEXT",
    "SERVING",
    "error",
    meaning="Tool calls or reasoning text are lost in parsers when a step returns several tokens.",
    derived=(
        "tool calls missing or reasoning truncated with the drafter and not without it, streaming or a reasoning "
        "parser in use"
    ),
    remedy="Upgrade the parser; tool_choice auto; no streaming.",
    probe="Same request without streaming.",
    sources=(
        "vllm#39598",
        "vllm#42781",
    ),
)
def stream_parser_loses_text(case: Case, earlier: frozenset[str]) -> Said:
    first = case.primary
    if first is None or not _lost(case, None):
        return
    parsed = fact(case, "streaming") or fact(case, "reasoning_parser")
    plain = [one for one in comparisons(case) if one.other.conditions.get("drafter") is False and one.only("drafter")]
    fine = [one for one in plain if not _lost(case, one) and bad(case, one.other) is False]
    keys = ("tool_calls_ok", "tool_calls_total", "tool_calls_reported", "output", "finish_reason")
    evidence = tuple(
        case.evidence(f"{PRIMARY}.{key}", f"{key} = {first.metrics[key]}") for key in keys if key in first.metrics
    )
    if fine and parsed:
        says = f"Text is lost in the parser with the drafter only; {named(fine[0])} is complete."
        yield Finding("STREAM_PARSER_LOSES_TEXT", "error", COUNTED, says, evidence)
    else:
        says = "Text is lost; whether the same requests are complete without the drafter is not known."
        yield Finding("STREAM_PARSER_LOSES_TEXT", "error", CANDIDATE, says, evidence)
        yield ask("the same requests without the drafter, streamed and not", "--endpoint URL")


def _lost(case: Case, one: Comparison | None) -> bool:
    """Are tool calls missing or reasoning cut (in the primary observation, or in the other one)?"""
    observation = case.primary if one is None else one.other
    assert observation is not None
    right, total = (number(observation.metrics, key) for key in ("tool_calls_ok", "tool_calls_total"))
    missing = right is not None and bool(total) and right < 0.9 * (total or 0.0)
    return missing or observation.metrics.get("output") == "reasoning_truncated"


@rule(
    "VISION_POSITION_FAULT",
    "SERVING",
    "error",
    meaning="After an image the drafter uses shifted positions.",
    derived="text-only is fine, and with an image acceptance falls or the request fails",
    remedy="V2 runner (EAGLE, MTP on vLLM); newer llama.cpp.",
    probe="Same prompt with and without the image.",
    sources=(
        "vllm#54498",
        "llama.cpp#28587",
    ),
)
def vision_position_fault(case: Case, earlier: frozenset[str]) -> Said:
    first = case.primary
    shown = first is not None and (fact(case, "image") is True or fact(case, "modality") == "image")
    if first is None or not shown or "TOO_FEW_SAMPLES" in earlier:
        return
    for one in comparisons(case):
        text = one.other.conditions.get("image") is False or one.other.conditions.get("modality") == "text"
        if not text or not one.only("image"):
            continue
        if (one.ratio is not None and one.ratio <= 0.85) or (failed(first) and bad(case, one.other) is False):
            says = f"Text alone is fine ({figure(one.its)}); after an image it is not ({figure(one.mine)})."
            sure = WORDS if not one.mine.known else confidence(one.mine, one.its)
            yield Finding("VISION_POSITION_FAULT", "error", sure, says, both(case, one) or seen(case))
            return
