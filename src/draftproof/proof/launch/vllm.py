"""vLLM's command line: dashes and underscores are one, "--speculative-config.key value" spells out JSON.

Dotted values are collected into one JSON that is appended to the line, so they replace a JSON given as a whole
(vllm/utils/argparse_utils.py: FlexibleArgumentParser.parse_args).
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from draftproof.proof.launch.line import Argument, Command, Parsed, Problem, whole

SPECULATIVE = ("--speculative-config", "-sc")
COMPILATION = ("--compilation-config", "-cc", "-O")
# Fields of SpeculativeConfig that a user may set (config/speculative.py, 0.20 to 0.33).
SPECULATIVE_FIELDS = {
    "attention_backend", "code_revision", "disable_by_batch_size", "disable_eagle_block_drop",
    "disable_logprobs", "disable_lookahead_block_hashes", "disable_padded_drafter_batch", "draft_load_config",
    "draft_sample_method", "draft_tensor_parallel_size", "dspark_draft_topk", "enable_adaptive_verification",
    "enforce_eager", "index_share_for_mtp_iteration", "kv_cache_dtype", "max_model_len", "method", "model",
    "moe_backend", "num_speculative_tokens", "num_speculative_tokens_per_batch_size", "parallel_drafting",
    "prompt_lookup_max", "prompt_lookup_min", "quantization", "rejection_sample_method", "revision",
    "speculative_token_tree", "spec_decode_metrics_level", "suffix_decoding_max_cached_requests",
    "suffix_decoding_max_spec_factor", "suffix_decoding_max_tree_depth", "suffix_decoding_min_token_prob",
    "synthetic_acceptance_length", "synthetic_acceptance_rates", "tensor_parallel_size",
    "use_heterogeneous_vocab", "use_local_argmax_reduction",
}  # fmt: skip
# Flags of the time before --speculative-config (0.9 and older): unknown since.
REMOVED = {
    "--speculative-model": "model",
    "--num-speculative-tokens": "num_speculative_tokens",
    "--speculative-method": "method",
    "--speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
    "--ngram-prompt-lookup-max": "prompt_lookup_max",
    "--ngram-prompt-lookup-min": "prompt_lookup_min",
}
_NUMBERS = {
    "--max-num-seqs": "max_num_seqs",
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--max-model-len": "max_model_len",
    "--tensor-parallel-size": "tensor_parallel_size",
    "-tp": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
    "-pp": "pipeline_parallel_size",
    "--max-cudagraph-capture-size": "max_cudagraph_capture_size",
}
_TEXTS = {
    "--kv-cache-dtype": "kv_cache_dtype",
    "--attention-backend": "attention_backend",
    "--mamba-cache-mode": "mamba_cache_mode",
    "--moe-backend": "moe_backend",
    "--reasoning-parser": "reasoning_parser",
    "--dtype": "dtype",
}
_SWITCHES = {
    "--enforce-eager": ("enforce_eager", True),
    "--enable-prefix-caching": ("prefix_caching", True),
    "--no-enable-prefix-caching": ("prefix_caching", False),
    "--async-scheduling": ("async_scheduling", True),
    "--disable-custom-all-reduce": ("disable_custom_all_reduce", True),
}
_SWITCH_NAMES = {*_SWITCHES, "--trust-remote-code", "--enable-auto-tool-choice", "--language-model-only",
                 "--enable-expert-parallel", "--enable-chunked-prefill", "--no-enable-chunked-prefill"}  # fmt: skip
_HUMAN = re.compile(r"^(\d+(?:\.\d+)?)([kKmMgG])$")


def parse(command: Command) -> Parsed:
    command = _normalised(command)
    problems: list[Problem] = []
    speculative = _speculative(command, problems)
    options = _options(command)
    if speculative:
        options["speculative_config"] = speculative
    _removed(command, speculative, problems)
    _contradictions(command, speculative, problems)
    method = speculative.get("method")
    model = speculative.get("model")
    tokens = speculative.get("num_speculative_tokens")
    backend = command.env.get("VLLM_ATTENTION_BACKEND")
    if backend and "attention_backend" not in options:
        options["attention_backend"] = backend
    return Parsed(
        command,
        target=_model(command),
        drafter=model if isinstance(model, str) else None,
        revision=speculative.get("revision") if isinstance(speculative.get("revision"), str) else None,
        method=method if isinstance(method, str) else _guessed(model),
        k=tokens if type(tokens) is int and tokens > 0 else None,
        options=options,
        problems=tuple(problems),
    )


def _normalised(command: Command) -> Command:
    """Underscores in flag names become dashes; a switch gives back the word that is no value of it."""
    found: list[Argument] = []
    for argument in command.arguments:
        flag = argument.flag
        if flag is not None and flag.startswith("--"):
            head, dot, keys = flag.partition(".")
            flag = head.replace("_", "-") + dot + keys
        if flag in _SWITCH_NAMES and argument.values and not argument.joined:
            found += [Argument(flag), *(Argument(None, (value,)) for value in argument.values)]
        else:
            found.append(replace(argument, flag=flag))
    return replace(command, arguments=tuple(found))


def _model(command: Command) -> str | None:
    named = command.last("--model")
    if named:
        return named
    return next((a.values[0] for a in command.arguments if a.flag is None and a.values), None)


def _guessed(model: Any) -> str | None:
    """vLLM's own guess where no method is given."""
    return "dflash" if isinstance(model, str) and "dflash" in model.lower() else None


def _speculative(command: Command, problems: list[Problem]) -> dict[str, Any]:
    whole_json = [text for flag in SPECULATIVE for text in command.repeated(flag)]
    if len(whole_json) > 1:
        problems.append(Problem("warning", "--speculative-config is given more than once; the last one counts", ""))
    given = _object(whole_json[-1], problems) if whole_json else {}
    spelled = dotted(command, SPECULATIVE)
    if given and spelled:
        lost = sorted(set(given) - set(spelled))
        problems.append(
            Problem(
                "warning" if not lost else "error",
                "--speculative-config is given as JSON and with dots: the dotted values replace the JSON"
                + (f", so {', '.join(lost)} from it has no effect" if lost else ""),
                "Give one of the two.",
            )
        )
    return spelled or given


def intended(command: Command) -> dict[str, Any]:
    """What both spellings together say: what a user who wrote both must have meant."""
    whole_json = [text for flag in SPECULATIVE for text in command.repeated(flag)]
    return (_object(whole_json[-1], []) if whole_json else {}) | dotted(command, SPECULATIVE)


def _object(text: str, problems: list[Problem]) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f" ({error.msg} at column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        problems.append(
            Problem("error", f"--speculative-config is not JSON{place}", 'Quote it: \'{"method": "dflash", …}\'')
        )
        return {}
    if not isinstance(value, dict):
        problems.append(Problem("error", "--speculative-config is no JSON object", ""))
        return {}
    return value


def dotted(command: Command, flags: tuple[str, ...]) -> dict[str, Any]:
    """Values of --flag.key and --flag.key+ as vLLM collects them."""
    found: dict[str, Any] = {}
    for argument in command.arguments:
        head, _, keys = (argument.flag or "").partition(".")
        if head not in flags or not keys or not argument.values:
            continue
        text: Any = argument.values[0]
        if keys.endswith("+"):
            keys, text = keys[:-1], json.dumps(text.split(","))
        *outer, last = keys.split(".")
        place = found
        for key in outer:
            inner = place.setdefault(key, {})
            place = inner if isinstance(inner, dict) else {}
        place[last] = value_of(text)
    return found


def value_of(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        number = human(text)
        return text if number is None else number


def human(text: str | None) -> int | None:
    """ "32k" is 32000, "32K" 32768, as vLLM reads them; None for anything that is no number."""
    found = _HUMAN.match((text or "").strip())
    if found is None:
        return whole(text)
    base = 1000 if found[2].islower() else 1024
    return int(float(found[1]) * base ** ("kmg".index(found[2].lower()) + 1))


def _options(command: Command) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for flag, key in _NUMBERS.items():
        value = human(command.last(flag))
        if value is not None:
            options[key] = value
    for flag, key in _TEXTS.items():
        if command.last(flag):
            options[key] = command.last(flag)
    for flag, (key, switch) in _SWITCHES.items():
        if command.has(flag):
            options[key] = switch
    sizes = _capture_sizes(command)
    if sizes:
        options["cudagraph_capture_sizes"] = sizes
    mode = _compilation(command).get("cudagraph_mode")
    if isinstance(mode, str):
        options["cudagraph_mode"] = mode
    return options


def _compilation(command: Command) -> dict[str, Any]:
    text = next((command.last(flag) for flag in COMPILATION if command.last(flag)), None)
    given = _object(text, []) if text and text.startswith("{") else {}
    return given | dotted(command, COMPILATION)


def _capture_sizes(command: Command) -> list[int]:
    stated = _compilation(command).get("cudagraph_capture_sizes")
    if not isinstance(stated, list):
        flagged = [
            word for flag in ("--cudagraph-capture-sizes", "--cuda-graph-sizes") for word in command.repeated(flag)
        ]
        stated = [whole(word) for text in flagged for word in text.replace(",", " ").split()]
    return sorted(size for size in stated if type(size) is int and size > 0)


def _removed(command: Command, speculative: dict[str, Any], problems: list[Problem]) -> None:
    used = {flag: key for flag, key in REMOVED.items() if command.has(flag)}
    if used:
        asked = {key: value_of(command.last(flag) or "") for flag, key in used.items()}
        problems.append(
            Problem(
                "error",
                f"{', '.join(used)}: vLLM knows no such flag since --speculative-config came",
                f"--speculative-config '{json.dumps({**asked, **speculative})}'",
            )
        )


def _contradictions(command: Command, speculative: dict[str, Any], problems: list[Problem]) -> None:
    unknown = sorted(set(speculative) - SPECULATIVE_FIELDS)
    if unknown:
        problems.append(
            Problem("error", f"--speculative-config has unknown keys: {', '.join(unknown)}", "Remove or correct them.")
        )
    if "tensor_parallel_size" in speculative:
        problems.append(
            Problem("error", "tensor_parallel_size in --speculative-config is refused", '"draft_tensor_parallel_size"')
        )
    if speculative.get("method") in ("dflash", "dspark") and not speculative.get("model"):
        problems.append(Problem("error", f"method {speculative['method']} needs a model", '"model": the drafter'))
    if speculative.get("method") in ("dflash", "dspark"):
        for key in (
            "prompt_lookup_max",
            "prompt_lookup_min",
            "speculative_token_tree",
            "suffix_decoding_max_tree_depth",
        ):
            if key in speculative:
                problems.append(
                    Problem("warning", f"{key} has no effect with method {speculative['method']}", "Remove it.")
                )
    tokens = speculative.get("num_speculative_tokens")
    if tokens is not None and (type(tokens) is not int or tokens < 1):
        problems.append(Problem("error", f"num_speculative_tokens={tokens!r} must be a whole number above 0", ""))
    if command.has("--enforce-eager") and _capture_sizes(command):
        problems.append(Problem("warning", "capture sizes have no effect with --enforce-eager", "Drop one of the two."))
    if command.has("--enable-prefix-caching") and command.has("--no-enable-prefix-caching"):
        problems.append(Problem("warning", "prefix caching is switched on and off; the last flag counts", ""))
