"""Run vLLM offline, in one process, and capture it once per case: healthy, or with a live fault switched on.

For vLLM's own environment, with the capture plugin's folder on PYTHONPATH and ``DRAFTPROOF_CAPTURE`` set. A job comes
as JSON on standard input, the answer as the last line of standard output::

    {"model", "drafter", "num_speculative_tokens", "folder", "max_model_len",
     "cases": [{"name", "faults": [names of LIVE], "prompts": [[ids]], "max_tokens", "rounds",
                "capture": true}]}

Answer: ``{"version", "cases": [{"name", "path", "seconds", "cpu_seconds", "tokens", "token_ids", "acceptance"}]}``
or ``{"error"}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
COUNTERS = {
    "vllm:spec_decode_num_drafts": "rounds",
    "vllm:spec_decode_num_draft_tokens": "drafted",
    "vllm:spec_decode_num_accepted_tokens": "accepted",
    "vllm:spec_decode_num_accepted_tokens_per_pos": "accepted_at_least",
}


def build(job: dict[str, Any]) -> Any:
    from vllm import LLM

    return LLM(
        model=job["model"],
        dtype=job.get("dtype", "float32"),
        max_model_len=job["max_model_len"],
        max_num_seqs=job.get("max_num_seqs", 4),
        enforce_eager=True,
        enable_prefix_caching=False,
        skip_tokenizer_init=True,
        disable_log_stats=False,
        seed=0,
        speculative_config={
            "method": "dflash",
            "model": job["drafter"],
            "num_speculative_tokens": job["num_speculative_tokens"],
        },
    )


def recording(folder: str, rounds: int) -> Any:
    """A fresh recorder in place of the last one."""
    from draftproof_capture.hooks import Runs
    from draftproof_capture.recorder import Recorder
    from draftproof_capture.settings import Settings

    Runs.recorder = Recorder(Settings(folder, rounds=rounds, bytes=1 << 30))
    return Runs.recorder


def counters(llm: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for metric in llm.get_metrics():
        if metric.name in COUNTERS:
            found[COUNTERS[metric.name]] = getattr(metric, "values", None) or metric.value
    return found


def since(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    def less(new: Any, old: Any) -> Any:
        return [x - y for x, y in zip(new, old, strict=True)] if isinstance(new, list) else new - old

    return {name: less(value, before[name]) if name in before else value for name, value in after.items()}


def run(llm: Any, runner: Any, case: dict[str, Any], folder: str) -> dict[str, Any]:
    from draftproof_capture.hooks import Runs
    from vllm import SamplingParams

    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import vllm_faults

    recorder = recording(os.path.join(folder, case["name"]), case["rounds"]) if case.get("capture", True) else None
    if recorder is None:
        Runs.recorder = None
    params = SamplingParams(temperature=0.0, max_tokens=case["max_tokens"], ignore_eos=True, detokenize=False)
    before = counters(llm)
    with contextlib.ExitStack() as faults:
        for name in case["faults"]:
            faults.enter_context(vllm_faults.LIVE[name](runner))
        start, busy = time.perf_counter(), time.process_time()
        outputs = llm.generate([{"prompt_token_ids": ids} for ids in case["prompts"]], params, use_tqdm=False)
        seconds = time.perf_counter() - start
    if recorder is not None:
        recorder.close()
    busy = time.process_time() - busy  # the recorder's thread included
    ids = [list(output.outputs[0].token_ids) for output in outputs]
    return {
        "name": case["name"],
        "path": recorder.path if recorder is not None else None,
        "seconds": seconds,
        "cpu_seconds": busy,
        "tokens": sum(map(len, ids)),
        "token_ids": ids,
        "acceptance": since(before, counters(llm)),
    }


def answer(job: dict[str, Any]) -> dict[str, Any]:
    import torch
    import vllm

    llm = build(job)
    core = llm.llm_engine.engine_core.engine_core
    runner = core.model_executor.driver_worker.worker.model_runner
    with torch.inference_mode():
        cases = [run(llm, runner, case, job["folder"]) for case in job["cases"]]
    return {"version": vllm.__version__, "cases": cases}


def main() -> None:
    job = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        found = answer(job)
    except Exception as error:
        if os.environ.get("DRAFTPROOF_DEBUG"):
            raise
        found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
    print(json.dumps(found), file=out, flush=True)


if __name__ == "__main__":
    main()
