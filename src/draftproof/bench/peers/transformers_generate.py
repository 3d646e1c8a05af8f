"""The speed of transformers' own ``generate``: greedy, one prompt at a time, no assistant, no compilation.

It runs in a child process, because OpenMP reads its settings once, when torch is loaded. The child is this
module itself (``python -m draftproof.bench.peers.transformers_generate``): a job as JSON on standard input,
the timings as JSON on standard output.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from draftproof.bench.peers import PeerResult, load_average
from draftproof.bench.peers.child import run_child
from draftproof.errors import UsageError
from draftproof.targets.source import resolve_model

DTYPES = ("bfloat16", "float16", "float32")
WAIT_POLICIES = ("active", "passive")
MODULE = "draftproof.bench.peers.transformers_generate"


@dataclass(frozen=True)
class Job:
    """What the child process is asked to do. A prompt is a text or a list of token ids."""

    target: str
    prompts: list[str | list[int]]
    new_tokens: int
    threads: int
    runs: int
    dtype: str

    def __post_init__(self) -> None:
        for name in ("new_tokens", "threads", "runs"):
            least = 2 if name == "new_tokens" else 1
            if getattr(self, name) < least:
                raise UsageError(f"{name}={getattr(self, name)} is out of range: it must be at least {least}")
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype={self.dtype!r}: it must be one of {', '.join(DTYPES)}")
        if not self.prompts or not all(self.prompts):
            raise UsageError("prompts: at least one is needed, and none may be empty")


def measure_transformers(
    target: str,
    prompts: Sequence[str | list[int]],
    *,
    new_tokens: int = 128,
    threads: int = 2,
    runs: int = 3,
    dtype: str = "bfloat16",
    wait_policy: str | None = "active",
    timeout_s: float = 1800.0,
) -> PeerResult:
    """Time ``generate`` on the prompts, ``runs`` times over, in a child process.

    Every prompt gets exactly ``new_tokens`` tokens. ``wait_policy`` is OpenMP's (None leaves the child the
    environment's): on a quiet machine "active" is the fastest, which is the fair choice for a peer.
    """
    check_wait_policy(wait_policy)
    job = Job(target, list(prompts), new_tokens, threads, runs, dtype)
    resolve_model(target)  # a wrong name is found here, in one line, not in the child
    command, load = [sys.executable, "-m", MODULE], load_average()
    timings = run_child(
        command,
        asdict(job),
        peer="transformers generate",
        env=child_env(threads, wait_policy),
        timeout_s=timeout_s,
        remedy="lower new_tokens or runs",
    )
    rates: list[float] = timings["decode_rates"]
    return PeerResult(
        peer="transformers generate",
        version=timings["version"],
        tokens_per_second=statistics.median(rates),
        runs=rates,
        end_to_end=statistics.median(timings["end_to_end_rates"]),
        command=["python", *command[1:]],  # not this machine's path to it
        settings={
            **{key: value for key, value in asdict(job).items() if key != "prompts"},
            "prompts": len(job.prompts),
            "prompt_tokens": timings["prompt_tokens"],
            "wait_policy": wait_policy,
            "attention": timings["attention"],
            "load_average": load,
        },
    )


def child_env(threads: int, wait_policy: str | None) -> dict[str, str]:
    """Our environment with the child's OpenMP settings."""
    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    if wait_policy is not None:
        env.pop("GOMP_SPINCOUNT", None)  # it would win over the policy
        env["OMP_WAIT_POLICY"] = wait_policy
    return env


def check_wait_policy(wait_policy: str | None) -> None:
    if wait_policy is not None and wait_policy not in WAIT_POLICIES:
        raise UsageError(f"wait_policy={wait_policy!r}: it must be one of {', '.join(WAIT_POLICIES)} or None")


# ----------------------------------------------------------------------------------- inside the child process


def load_tokenizer(target: str) -> Any:
    from transformers import AutoTokenizer

    source = resolve_model(target)
    more: dict[str, Any] = {"gguf_file": source.gguf_file} if source.gguf_file else {}
    return AutoTokenizer.from_pretrained(source.location, **more)


def load_model(target: str, dtype: str) -> Any:
    """The model the way a transformers user loads it; a GGUF file's weights are de-quantised."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    source = resolve_model(target)
    more: dict[str, Any] = {}
    if source.gguf_file:
        more = {"gguf_file": source.gguf_file, "quantization_config": GgufConfig(dequantize=True)}
    model = AutoModelForCausalLM.from_pretrained(source.location, dtype=getattr(torch, dtype), **more).eval()
    model.generation_config.eos_token_id = None  # every answer has the same length
    return model


def generate(model: Any, ids: Any, mask: Any, new_tokens: int) -> tuple[float, list[list[int]]]:
    """Seconds of one greedy ``generate`` call, and each row's new tokens."""
    import torch

    start = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=mask, max_new_tokens=new_tokens, do_sample=False, pad_token_id=0)
    seconds = time.perf_counter() - start
    if out.shape[1] != ids.shape[1] + new_tokens:
        raise RuntimeError(f"generate gave {out.shape[1] - ids.shape[1]} new tokens instead of {new_tokens}")
    return seconds, out[:, ids.shape[1] :].tolist()


def time_generate(model: Any, ids: Any, new_tokens: int) -> float:
    """Seconds for one prompt."""
    import torch

    return generate(model, ids, torch.ones_like(ids), new_tokens)[0]


def run_job(job: Job) -> dict[str, Any]:
    """All timings of a job. The first token's time, measured alone, is taken off for the decoding rate."""
    import torch
    import transformers

    torch.set_num_threads(job.threads)
    model, tokenizer = load_model(job.target, job.dtype), load_tokenizer(job.target)
    rows = [torch.tensor([tokenizer(p)["input_ids"] if isinstance(p, str) else p]) for p in job.prompts]
    time_generate(model, rows[0], min(8, job.new_tokens))  # warm-up
    decode, whole = [], []
    for _ in range(job.runs):
        first = sum(time_generate(model, ids, 1) for ids in rows)
        total = sum(time_generate(model, ids, job.new_tokens) for ids in rows)
        decode.append(len(rows) * (job.new_tokens - 1) / (total - first))
        whole.append(len(rows) * job.new_tokens / total)
    return {
        "version": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "decode_rates": decode,
        "end_to_end_rates": whole,
        "prompt_tokens": [ids.shape[1] for ids in rows],
        "attention": model.config._attn_implementation,
    }


if __name__ == "__main__":
    print(json.dumps(run_job(Job(**json.load(sys.stdin)))))
