"""The peers of the benchmark under load, each as a call that gives its tokens a second by streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from draftproof.bench.peers import ThroughputResult
from draftproof.bench.peers.transformers_batch import run_transformers_batch
from draftproof.bench.peers.vllm_cpu import run_vllm_cpu

Prompts = Sequence[list[int]]
Peer = Callable[[], Mapping[str, Any]]


def stream_peers(
    model: str,
    prompts: Prompts,
    streams: Sequence[int],
    *,
    max_tokens: int,
    dtype: str,
    threads: int,
    uniform: Path | None = None,
) -> dict[str, Peer]:
    """transformers' static batch, vLLM for CPUs plain and, with a ``uniform`` drafter, speculating."""
    shared: dict[str, Any] = {"max_tokens": max_tokens, "dtype": dtype, "threads": threads}
    found: dict[str, Peer] = {
        "transformers, static batch": partial(_batches, model, prompts, streams, shared),
        "vLLM (CPU build)": partial(_vllm, model, prompts, streams, shared),
    }
    if uniform is not None:
        found["vLLM (CPU build) with a uniform drafter"] = partial(
            _vllm, model, prompts, streams, shared | {"drafter": str(uniform)}
        )
    return found


def _batches(model: str, prompts: Prompts, streams: Sequence[int], shared: Mapping[str, Any]) -> dict[str, Any]:
    return _told([run_transformers_batch(model, prompts[:n], **shared) for n in streams])


def _vllm(model: str, prompts: Prompts, streams: Sequence[int], shared: Mapping[str, Any]) -> dict[str, Any]:
    return _told(run_vllm_cpu(model, prompts, streams, **shared))


def _told(results: Sequence[ThroughputResult]) -> dict[str, Any]:
    """One peer's results by streams; the answers themselves are not kept."""
    first = results[0]
    return {
        "peer": first["peer"],
        "version": first["version"],
        "settings": first["settings"],
        "streams": {str(r["streams"]): r["tokens_per_second"] for r in results},
        "acceptance": {str(r["streams"]): r["acceptance"] for r in results if r["acceptance"]},
    }
