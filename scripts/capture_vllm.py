"""Captures of a real vLLM, healthy and with faults switched on inside it: what conformance and story both run.

vLLM is the interpreter that ``DRAFTPROOF_VLLM_PYTHON`` names (``make vllm``). One process per drafter: its cases run
one after the other in a live engine, each into a capture of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.bench.acceptance import AcceptanceCounts
from draftproof.bench.peers.child import run_child
from draftproof.bench.peers.vllm_cpu import _environment, find_vllm_python
from draftproof.bench.workloads import load_workload
from draftproof.errors import UnavailableError
from draftproof.proof.capture import carry
from draftproof.proof.capture.reading import Capture
from draftproof.targets.loading import folder_for_others

RUNNER = Path(__file__).resolve().parents[1] / "tests" / "conformance" / "vllm_capture_runner.py"
LONG = 200  # tokens that a context begins with, at least: past the drafter's window of 128


@dataclass(frozen=True)
class Case:
    """``faults``: names of LIVE in vllm_faults.py. ``expected``: names that a replay must give."""

    name: str
    faults: tuple[str, ...]
    expected: tuple[str, ...]
    max_tokens: int = 32
    prompts: int = 4
    capture: bool = True


def prompts(model: str, count: int) -> list[list[int]]:
    """Token ids of the built-in prompts, each after others of them, so that contexts pass the window."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    texts = [prompt.messages[-1]["content"] for prompt in load_workload("demo").prompts]
    found = []
    for i in range(count):
        ids: list[int] = []
        turns: list[dict[str, str]] = []
        for k in range(64):
            turns = [
                {"role": "user", "content": " ".join([*(t["content"] for t in turns), texts[(i + k * 5) % len(texts)]])}
            ]
            ids = list(tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)["input_ids"])
            if len(ids) >= LONG:
                break
        found.append(ids)
    return found


def run(
    target: str,
    drafter: Path,
    cases: Sequence[Case],
    folder: Path,
    ids: Sequence[Sequence[int]],
    old_runner: Path | None,
) -> dict[str, Any]:
    """vLLM's answer: version, and per case path, seconds, tokens and its own counters. Raises UnavailableError."""
    python = find_vllm_python()
    plugin = Path(tempfile.mkdtemp(prefix="draftproof-plugin-"))
    count = json.loads((drafter / "config.json").read_text())["block_size"] - 1
    job = {
        "model": folder_for_others(target),
        "drafter": str(drafter.resolve()),
        "num_speculative_tokens": count,
        "folder": str(folder),
        "max_model_len": 1024,
        "cases": [
            {
                "name": case.name,
                "faults": list(case.faults),
                "prompts": [list(row) for row in ids[: case.prompts]],
                "max_tokens": case.max_tokens,
                "rounds": 2000,
                "capture": case.capture,
            }
            for case in cases
        ],
    }
    env = _environment(python, 1, 1) | {
        "PYTHONPATH": str(carry.unpack(plugin)),
        "DRAFTPROOF_CAPTURE": str(folder),
        **({} if old_runner is None else {"DRAFTPROOF_TEST_OLD_RUNNER": str(old_runner)}),
    }
    try:
        found = run_child([str(python), str(RUNNER)], job, peer="vLLM", env=env, timeout_s=7200, remedy="fewer cases")
    finally:
        shutil.rmtree(plugin, ignore_errors=True)
    if "error" in found:
        raise UnavailableError(f"vLLM failed: {found['error']}")
    return found


def old_runner() -> Path | None:
    """gpu_model_runner.py of an unpacked 0.20.1, as conformance-installs keeps it."""
    named = os.environ.get("DRAFTPROOF_TEST_OLD_RUNNER")
    places = [Path(named)] if named else []
    cache = Path.home() / ".cache" / "draftproof" / "installs"
    trees = ("vllm-0.20.1-whole", "vllm-0.20.1")
    places += [cache / tree / "vllm" / "v1" / "worker" / "gpu_model_runner.py" for tree in trees]
    return next((place for place in places if place.is_file()), None)


def counts(capture: Capture) -> AcceptanceCounts:
    """Accepted tokens of every round whose successor is in the capture: the next rows but the anchor's."""
    rounds, groups = [], []
    for request in capture.requests:
        for step, after in zip(request.steps, request.steps[1:], strict=False):
            if after.start == step.end:
                rounds.append((len(step.drafts), min(len(after.positions) - 1, len(step.drafts))))
                groups.append(request.name)
    return AcceptanceCounts.from_rounds(rounds, groups)


def variant(drafter: Path, folder: Path, *, sliding: bool, causal: bool) -> Path:
    """The same weights with every layer sliding or every one full: a witness that vLLM's V1 runner can run."""
    config = json.loads((drafter / "config.json").read_text())
    kind = "sliding_attention" if sliding else "full_attention"
    config |= {"layer_types": [kind] * config["num_hidden_layers"], "is_causal": causal, "use_sliding_window": sliding}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    weights = folder / "model.safetensors"
    if not weights.exists():
        weights.symlink_to((drafter / "model.safetensors").resolve())
    return folder


def names(cases: Iterable[Case]) -> list[str]:
    return [case.name for case in cases]
