"""Run vLLM offline on prompts of token ids, several at once, and say how long it took.

A stand-alone script for vLLM's own environment; it imports nothing of draftproof. A job comes as JSON on standard
input, the answer goes as the last line of standard output, whatever vLLM and its workers print goes to standard
error::

    python vllm_runner.py < job.json

    {"model": FOLDER, "drafter": FOLDER or null, "num_speculative_tokens": N or null, "prompts": [[ids], ...],
     "levels": [1, 4, 16], "max_tokens": N, "dtype": "float32", "max_model_len": N, "runs": N}

Level n is the first n prompts in one ``generate`` call: greedy, ``max_tokens`` tokens each, end-of-text ignored,
no prefix cache. The answer is ``{"version", "levels": [{"streams", "seconds": [per run], "token_ids", "acceptance"}]}``
or ``{"error", "stage"}`` with the stage ``import`` or ``run``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

WARM_UP_TOKENS = 8
COUNTERS = {
    "vllm:spec_decode_num_drafts": "rounds",
    "vllm:spec_decode_num_draft_tokens": "drafted",
    "vllm:spec_decode_num_accepted_tokens": "accepted",
    "vllm:spec_decode_num_accepted_tokens_per_pos": "accepted_at_least",
}


def build(job: dict[str, Any]) -> Any:
    """The engine; eager, because compiling costs minutes and gains nothing on few cores."""
    from vllm import LLM

    more: dict[str, Any] = {}
    if job["drafter"]:
        more["speculative_config"] = {
            "method": "dflash",
            "model": job["drafter"],
            "num_speculative_tokens": job["num_speculative_tokens"],
        }
    return LLM(
        model=job["model"],
        dtype=job["dtype"],
        max_model_len=job["max_model_len"],
        max_num_seqs=max(job["levels"]),
        enforce_eager=True,
        enable_prefix_caching=False,
        skip_tokenizer_init=True,
        disable_log_stats=False,
        seed=0,
        **more,
    )


def generate(llm: Any, prompts: list[list[int]], count: int) -> tuple[float, list[list[int]]]:
    """Seconds of one call and every prompt's new tokens, of which there must be ``count``."""
    from vllm import SamplingParams

    params = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True, detokenize=False)
    start = time.perf_counter()
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False)
    seconds = time.perf_counter() - start
    token_ids = [list(output.outputs[0].token_ids) for output in outputs]
    short = [len(ids) for ids in token_ids if len(ids) != count]
    if short:
        raise RuntimeError(f"{len(short)} of {len(token_ids)} answers have not {count} tokens, one has {short[0]}")
    return seconds, token_ids


def counters(llm: Any) -> dict[str, Any]:
    """vLLM's own counters of speculative decoding since its start."""
    found: dict[str, Any] = {}
    for metric in llm.get_metrics():
        if metric.name in COUNTERS:
            found[COUNTERS[metric.name]] = getattr(metric, "values", None) or metric.value
    return found


def since(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What was counted between two readings."""

    def less(new: Any, old: Any) -> Any:
        return [x - y for x, y in zip(new, old, strict=True)] if isinstance(new, list) else new - old

    return {name: less(value, before[name]) if name in before else value for name, value in after.items()}


def measure(llm: Any, job: dict[str, Any], streams: int) -> dict[str, Any]:
    """One level: a short call that is not counted, then ``runs`` that are."""
    prompts = job["prompts"][:streams]
    generate(llm, prompts, min(WARM_UP_TOKENS, job["max_tokens"]))
    before = counters(llm) if job["drafter"] else {}
    seconds: list[float] = []
    token_ids: list[list[int]] = []
    for _ in range(job["runs"]):
        taken, token_ids = generate(llm, prompts, job["max_tokens"])
        seconds.append(taken)
    acceptance = since(before, counters(llm)) if job["drafter"] else None
    return {"streams": streams, "seconds": seconds, "token_ids": token_ids, "acceptance": acceptance}


def answer(job: dict[str, Any]) -> dict[str, Any]:
    try:
        import vllm
    except Exception as error:  # ImportError, and RuntimeError for an operator that is missing
        return {"stage": "import", "error": one_line(error)}
    try:
        llm = build(job)
        levels = [measure(llm, job, streams) for streams in job["levels"]]
    except Exception as error:
        return {"stage": "run", "error": one_line(error)}
    return {"version": vllm.__version__, "levels": levels}


def one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def main() -> None:
    """Keeps the real standard output for the answer; file descriptor 1 is the workers' too."""
    job = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    print(json.dumps(answer(job)), file=out, flush=True)


if __name__ == "__main__":  # vLLM's workers import this file again
    main()
