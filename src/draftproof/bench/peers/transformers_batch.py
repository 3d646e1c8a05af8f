"""The throughput of transformers' ``generate`` on many prompts: one static batch, padded on the left, greedy.

A static batch is what ``generate`` offers without a server around it: all prompts start together and the batch
lives until the last answer has its length. Here all answers have the same length, its best case. It runs in a
child process, as the single-stream measurement does (see ``transformers_generate``): this module itself, with a
job as JSON on standard input.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from draftproof.bench.peers import ThroughputResult, check_prompts, load_average
from draftproof.bench.peers.child import run_child
from draftproof.bench.peers.transformers_generate import (
    DTYPES,
    check_wait_policy,
    child_env,
    generate,
    load_model,
)
from draftproof.errors import UsageError

MODULE = "draftproof.bench.peers.transformers_batch"
PEER = "transformers generate, static batch"
_WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class BatchJob:
    """What the child process is asked to do."""

    target: str
    prompts: list[list[int]]
    max_tokens: int
    threads: int
    runs: int
    dtype: str

    def __post_init__(self) -> None:
        for name in ("max_tokens", "threads", "runs"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)} is out of range: it must be at least 1")
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype={self.dtype!r}: it must be one of {', '.join(DTYPES)}")


def run_transformers_batch(
    model: str,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    dtype: str,
    threads: int,
    runs: int = 1,
    wait_policy: str | None = "active",
    timeout_s: float = 3600.0,
) -> ThroughputResult:
    """Time ``generate`` on all prompts at once, ``runs`` times over, after a short call that does not count.

    Every prompt gets exactly ``max_tokens`` tokens, end-of-text or not. A GGUF target runs from the de-quantised
    copy that the engine itself loads, so in float32 the answers can be compared token for token.
    """
    check_wait_policy(wait_policy)
    rows = check_prompts(prompts)
    BatchJob(model, rows, max_tokens, threads, runs, dtype)  # a wrong value is found before anything is unpacked
    from draftproof.targets.loading import folder_for_others

    job = BatchJob(folder_for_others(model), rows, max_tokens, threads, runs, dtype)
    command, load = [sys.executable, "-m", MODULE], load_average()
    found = run_child(
        command,
        asdict(job),
        peer=PEER,
        env=child_env(threads, wait_policy),
        timeout_s=timeout_s,
        remedy="lower max_tokens or the number of prompts",
    )
    seconds, tokens = statistics.median(found["seconds"]), len(rows) * max_tokens
    return ThroughputResult(
        peer=PEER,
        version=found["version"],
        streams=len(rows),
        tokens=tokens,
        seconds=seconds,
        tokens_per_second=tokens / seconds,
        runs=found["seconds"],
        token_ids=found["token_ids"],
        acceptance=None,
        command=["python", *command[1:]],  # not this machine's path to it
        settings={
            "target": model,
            **{key: value for key, value in asdict(job).items() if key not in ("prompts", "target")},
            "prompt_tokens": [len(row) for row in rows],
            "wait_policy": wait_policy,
            "attention": found["attention"],
            "load_average": load,
        },
    )


# ----------------------------------------------------------------------------------- inside the child process


def padded(rows: Sequence[Sequence[int]]) -> tuple[Any, Any]:
    """Ids and attention mask, padded on the left: the last column is every prompt's last token."""
    import torch

    width = max(len(row) for row in rows)
    ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


def run_job(job: BatchJob) -> dict[str, Any]:
    import torch
    import transformers

    torch.set_num_threads(job.threads)
    model = load_model(job.target, job.dtype)
    ids, mask = padded(job.prompts)
    generate(model, ids, mask, min(_WARM_UP_TOKENS, job.max_tokens))
    timed = [generate(model, ids, mask, job.max_tokens) for _ in range(job.runs)]
    return {
        "version": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "seconds": [seconds for seconds, _ in timed],
        "token_ids": timed[-1][1],
        "attention": model.config._attn_implementation,
    }


if __name__ == "__main__":
    print(json.dumps(run_job(BatchJob(**json.load(sys.stdin)))))
