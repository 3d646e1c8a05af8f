"""What a training run did, in sums and as the record that travels with the drafter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from draftproof.bench.provenance import provenance
from draftproof.train.config import TrainConfig
from draftproof.train.shards import read_manifest
from draftproof.train.sources import Source
from draftproof.train.throughput import gemm_peak
from draftproof.train.trainer import StepResult

STOPPED_STEP = 10.0  # a step that took so many times the usual was a stopped process; it counts as so many only


@dataclass
class Totals:
    """Sums since the run began, over all its processes."""

    seconds: float = 0.0
    blocks: int = 0
    draft_tokens: int = 0
    flops: float = 0.0
    usual: float = 0.0  # seconds of an ordinary step

    def add(self, seconds: float, result: StepResult, flops: float) -> None:
        counted = min(seconds, STOPPED_STEP * self.usual) if self.usual else seconds
        self.usual = 0.9 * self.usual + 0.1 * counted if self.usual else counted
        self.seconds += counted
        self.blocks += result.blocks
        self.draft_tokens += result.drafted
        self.flops += flops


def training_record(
    target: str,
    config: TrainConfig,
    sources: Sequence[Source],
    answers: Path,
    totals: Totals,
    steps: int,
    metrics: Mapping[str, Any],
    device: torch.device,
) -> dict[str, Any]:
    """Everything one must know to make the same drafter again, as plain data. ``answers``: the cache's folder."""
    return provenance(config.seed) | {
        "target": target,
        "config": config.to_dict() | {"init": Path(config.init).name},
        "data": _data(answers, sources),
        "training": _training(totals, steps, device),
        "metrics": dict(metrics),
    }


def _data(folder: Path, sources: Sequence[Source]) -> dict[str, Any]:
    entries = read_manifest(folder)
    answers = [a for e in entries for a in e.answers]
    tokens, cut = sum(a["tokens"] for a in answers), sum(a["cut"] for a in answers)
    return {
        "sources": [
            {"name": s.name, "prompts": len(s.prompts), "sha256": s.sha256, "weight": s.weight} for s in sources
        ],
        "answers": len(answers),
        "answer_tokens": tokens,
        "sampled_share": sum(a["temperature"] > 0 for a in answers) / max(len(answers), 1),
        "looping_share": sum(a["finish"] == "loop" for a in answers) / max(len(answers), 1),
        "share_cut": cut / max(tokens + cut, 1),
        "shards": [{"file": e.file, "sha256": e.sha256} for e in entries],
    }


def _training(totals: Totals, steps: int, device: torch.device) -> dict[str, Any]:
    seconds = max(totals.seconds, 1e-9)
    peak = gemm_peak(device)
    return {
        "steps": steps,
        "blocks": totals.blocks,
        "draft_tokens": totals.draft_tokens,
        "minutes": seconds / 60,
        "threads": torch.get_num_threads(),
        "draft_tokens_per_s": totals.draft_tokens / seconds,
        "flops_per_s": totals.flops / seconds,
        "gemm_peak_bf16": peak,
        "share_of_peak": totals.flops / seconds / peak,
    }
