"""SGLang's command line (server_args.py, arg_groups/speculative_hook.py: _handle_dflash).

For DFLASH it forces one step and top-k 1; --speculative-dflash-block-size is another name for
--speculative-num-draft-tokens (the block, anchor included), and both must agree where both are given.
"""

from __future__ import annotations

from typing import Any

from draftproof.proof.launch.line import Command, Parsed, Problem, whole

ALGORITHM, DRAFT = ("--speculative-algorithm",), ("--speculative-draft-model-path", "--speculative-draft-model")
TOKENS, BLOCK = ("--speculative-num-draft-tokens",), ("--speculative-dflash-block-size",)
WINDOW = ("--speculative-draft-window-size", "--speculative-dflash-draft-window-size")
PIPELINE = ("--pp-size", "--pipeline-parallel-size", "--pp")
MODEL = ("--model-path", "--model")
_METHODS = {
    "DFLASH": "dflash",
    "DSPARK": "dspark",
    "EAGLE": "eagle",
    "EAGLE3": "eagle3",
    "NEXTN": "mtp",
    "STANDALONE": "draft_model",
    "NGRAM": "ngram",
}
_NUMBERS = {
    TOKENS: "speculative_num_draft_tokens",
    BLOCK: "block_size",
    ("--speculative-num-steps",): "num_steps",
    ("--speculative-eagle-topk",): "eagle_topk",
    PIPELINE: "pipeline_parallel_size",
    ("--tp-size", "--tensor-parallel-size", "--tp"): "tensor_parallel_size",
    ("--context-length",): "max_model_len",
    ("--max-running-requests",): "max_num_seqs",
    ("--chunked-prefill-size",): "chunked_prefill_size",
    ("--cuda-graph-max-bs",): "cuda_graph_max_bs",
}
_TEXTS = {
    ("--kv-cache-dtype",): "kv_cache_dtype",
    ("--attention-backend",): "attention_backend",
    ("--reasoning-parser",): "reasoning_parser",
    ("--dtype",): "dtype",
}


def parse(command: Command) -> Parsed:
    options: dict[str, Any] = {}
    for flags, key in _NUMBERS.items():
        value = whole(command.last(*flags))
        if value is not None:
            options[key] = value
    for flags, key in _TEXTS.items():
        if command.last(*flags):
            options[key] = command.last(*flags)
    if command.has("--disable-radix-cache"):
        options["prefix_caching"] = False
    if command.has("--disable-cuda-graph"):
        options["enforce_eager"] = True
    algorithm = (command.last(*ALGORITHM) or "").upper()
    if algorithm:
        options["speculative_algorithm"] = algorithm
    method = _METHODS.get(algorithm)
    return Parsed(
        command,
        target=command.last(*MODEL),
        drafter=command.last(*DRAFT),
        revision=command.last("--speculative-draft-model-revision"),
        method=method,
        k=_drafted(options, method),
        options=options,
        problems=tuple(_problems(command, algorithm, options)),
    )


def _drafted(options: dict[str, Any], method: str | None) -> int | None:
    """k: the block without its anchor for DFLASH, all drafted tokens otherwise."""
    tokens = options.get("speculative_num_draft_tokens", options.get("block_size"))
    if tokens is None:
        return None
    return tokens - 1 if method == "dflash" and tokens > 1 else tokens


def _problems(command: Command, algorithm: str, options: dict[str, Any]) -> list[Problem]:
    found: list[Problem] = []
    if algorithm and algorithm not in _METHODS:
        found.append(
            Problem("error", f"--speculative-algorithm {algorithm} is unknown", f"One of {', '.join(_METHODS)}")
        )
    if not algorithm and any(a.flag and a.flag.startswith("--speculative-") for a in command.arguments):
        found.append(
            Problem("warning", "speculative flags have no effect without --speculative-algorithm", "Add DFLASH.")
        )
    if algorithm in ("DFLASH", "DSPARK"):
        if not command.last(*DRAFT):
            found.append(Problem("error", f"{algorithm} needs --speculative-draft-model-path", "Name the drafter."))
        for key, flag in (("num_steps", "--speculative-num-steps"), ("eagle_topk", "--speculative-eagle-topk")):
            if options.get(key, 1) != 1:
                found.append(
                    Problem("warning", f"{flag} {options[key]} has no effect: {algorithm} forces 1", "Remove it.")
                )
        if command.has("--enable-mixed-chunk"):
            found.append(Problem("warning", f"--enable-mixed-chunk is switched off with {algorithm}", "Remove it."))
        window = whole(command.last(*WINDOW))
        block = options.get("speculative_num_draft_tokens", options.get("block_size"))
        if window is not None and block is not None and window < block:
            found.append(
                Problem("error", f"draft window {window} is smaller than the block of {block}", f"{WINDOW[0]} {block}")
            )
    return found
