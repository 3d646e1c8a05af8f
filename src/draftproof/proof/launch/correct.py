"""The line to paste instead: what findings and parser found wrong, set right, everything else left alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from draftproof.proof.case import Case
from draftproof.proof.findings import Finding
from draftproof.proof.launch import llama_cpp, sglang, vllm
from draftproof.proof.launch.line import Command, Parsed
from draftproof.proof.launching import drafted, proposes
from draftproof.proof.layouts import drafter_method, layout_of
from draftproof.proof.quantities import number

V2 = "VLLM_USE_V2_MODEL_RUNNER"
SAFE_P_MIN = "0.75"
_METHOD_NAMES = {"dflash": "dflash", "dflash2": "dflash", "dspark": "dspark"}  # as vLLM calls them


def corrected(case: Case, parsed: Parsed, findings: Iterable[Finding], named: str) -> str | None:
    """The whole command, ready for a shell; None if there is nothing to change. ``named``: the drafter, as the user
    named it, for a line that starts none."""
    codes = {f.code: f for f in findings if f.counts}
    if starts_no_drafter(parsed):
        parsed = _with_drafter(case, parsed, named)
    if parsed.command.engine == "vllm":
        command = _vllm(case, parsed, codes, named)
    else:
        command = (_sglang if parsed.command.engine == "sglang" else _llama)(case, parsed, codes)
    return command.render() if command.render() != case.engine.launch else None


def starts_no_drafter(parsed: Parsed) -> bool:
    return parsed.drafter is None and parsed.method is None and not parsed.options.get("speculative_config")


def _with_drafter(case: Case, parsed: Parsed, named: str) -> Parsed:
    """The same line with the drafter given as its engine wants it."""
    layout = layout_of(case)
    most = proposes(layout, drafter_method(case))
    command, options = parsed.command, dict(parsed.options)
    if command.engine == "vllm":
        given = {"method": _METHOD_NAMES.get(drafter_method(case) or "", "dflash"), "model": named}
        options["speculative_config"] = given | ({"num_speculative_tokens": most} if most else {})
        command = _with_json(command, options["speculative_config"])
    elif command.engine == "sglang":
        options["speculative_algorithm"] = "DFLASH"
        command = command.setting(sglang.ALGORITHM, "DFLASH").setting(sglang.DRAFT, named)
    else:
        command = command.setting(llama_cpp.DRAFT, named).setting(llama_cpp.SPEC_TYPE, "draft-dflash")
        command = command.setting(llama_cpp.N_MAX, str(most)) if most else command
    return replace(parsed, command=command, options=options, drafter=named)


def _right_k(case: Case, codes: dict[str, Finding]) -> int | None:
    """The number of drafted tokens to ask for, where the one asked for is wrong or missing."""
    most = proposes(layout_of(case), drafter_method(case))
    asked = drafted(case)
    if most is None or most < 1:
        return None
    if asked is None or "K_EXCEEDS_BLOCK" in codes or "DRAFT_PARAMS_INCONSISTENT" in codes:
        return most
    return None


def _vllm(case: Case, parsed: Parsed, codes: dict[str, Finding], named: str) -> Command:
    command, before = parsed.command, parsed.options.get("speculative_config", {})
    given = {**before, **vllm.intended(command)}
    for flag, key in vllm.REMOVED.items():
        if command.has(flag):
            given.setdefault(key, vllm.value_of(command.last(flag) or ""))
    given = {key: value for key, value in given.items() if key in vllm.SPECULATIVE_FIELDS}
    if "tensor_parallel_size" in given:
        given.setdefault("draft_tensor_parallel_size", given.pop("tensor_parallel_size"))
    wanted = _METHOD_NAMES.get(drafter_method(case) or "")
    if given and wanted and ("METHOD_MISMATCH" in codes or not given.get("method")):
        given["method"] = wanted
    if given.get("method") in ("dflash", "dspark") and not given.get("model"):
        given["model"] = named
    if given and (count := _right_k(case, codes)) is not None and case.drafter.config is not None:
        given["num_speculative_tokens"] = count
    if "DRAFT_SAMPLE_GREEDY" in codes:
        given["draft_sample_method"] = "probabilistic"
    twice = any(command.has(f) for f in vllm.SPECULATIVE) and bool(vllm.dotted(command, vllm.SPECULATIVE))
    if given != before or twice:
        command = _with_json(command, given)
    command = command.without(vllm.REMOVED)
    return _vllm_budgets(case, command, codes)


def _with_json(command: Command, given: dict[str, Any]) -> Command:
    dotted = [
        a.flag for a in command.arguments if a.flag and a.flag.partition(".")[0] in vllm.SPECULATIVE and "." in a.flag
    ]
    return command.without(dotted).setting(vllm.SPECULATIVE, json.dumps(given))


def _vllm_budgets(case: Case, command: Command, codes: dict[str, Finding]) -> Command:
    streams, asked = number(case.engine.options, "max_num_seqs"), drafted(case)
    if "BATCHED_TOKENS_TOO_SMALL" in codes and streams is not None and asked is not None:
        k = _right_k(case, codes) or asked[0]
        command = command.setting(("--max-num-batched-tokens",), str(int(streams) * (k + 1)))
    limit = layout_of(case).max_positions
    if "DRAFT_MAX_LEN_LT_TARGET" in codes and limit is not None:
        command = command.setting(("--max-model-len",), str(limit.value))
    for code in ("ENGINE_LACKS_METHOD", "ENGINE_SWA_REFUSED", "LM_HEAD_NOT_SHARED"):
        remedy = codes[code].remedy if code in codes else ""
        for switch in ("1", "0"):
            if f"{V2}={switch}" in remedy:
                command = command.with_env(V2, switch)
    return command


def _sglang(case: Case, parsed: Parsed, codes: dict[str, Finding]) -> Command:
    command = parsed.command
    layout, options = layout_of(case), parsed.options
    if options.get("speculative_algorithm") == "DFLASH":
        forced = (("num_steps", "--speculative-num-steps"), ("eagle_topk", "--speculative-eagle-topk"))
        command = command.without(flag for key, flag in forced if options.get(key, 1) != 1)
        wrong = {"K_EXCEEDS_BLOCK", "DRAFT_PARAMS_INCONSISTENT"} & set(codes)
        if layout.block is not None and (wrong or "speculative_num_draft_tokens" not in options):
            command = command.without(sglang.BLOCK).setting(sglang.TOKENS, str(layout.block.value))
    if (number(options, "pipeline_parallel_size") or 1) > 1 and "ENGINE_LACKS_METHOD" in codes:
        command = command.setting(sglang.PIPELINE, "1")
    return command


def _llama(case: Case, parsed: Parsed, codes: dict[str, Finding]) -> Command:
    command = parsed.command
    count = _right_k(case, codes)
    if count is not None:
        command = command.setting(llama_cpp.N_MAX, str(count))
    if "P_MIN_DEFAULT_ZERO" in codes:
        command = command.setting(llama_cpp.P_MIN, SAFE_P_MIN)
    kind = str(parsed.options.get("spec_type", ""))
    if parsed.drafter and kind != "draft-dflash" and (kind == "none" or "dflash" in kind):
        command = command.setting(llama_cpp.SPEC_TYPE, "draft-dflash")
    return command
