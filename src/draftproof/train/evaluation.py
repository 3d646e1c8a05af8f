"""τ as it will be served: the exported drafter in the engine, on prompts it was not trained on, loops left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.bench.acceptance import AcceptanceCounts
from draftproof.drafters.loading import load_drafter
from draftproof.engine.engine import Engine
from draftproof.engine.options import EngineOptions
from draftproof.engine.types import RequestOutput, RoundStats, SamplingParams
from draftproof.train.loops import loop_start

NamedIds = tuple[str, list[int]]


@dataclass(frozen=True)
class Measured:
    """``counts``: rounds outside of loops, grouped by prompt; ``looping``: answers that ended in a loop."""

    counts: AcceptanceCounts
    prompts: int
    tokens: int
    looping: int

    def to_dict(self) -> dict[str, Any]:
        plain = self.counts.to_dict()
        rates = [p.rate for p in self.counts.positions()]
        extra = {"prompts": self.prompts, "tokens": self.tokens, "looping": self.looping, "rates": rates}
        return plain | extra


def drafting_engine(model: Any, tokenizer: Any, folder: Path, **options: Any) -> Engine:
    """An engine on a loaded transformers model with the drafter in ``folder``."""
    chosen = EngineOptions.make(str(folder), options)
    return Engine.from_model(
        model, tokenizer, drafter=lambda target: load_drafter(str(folder), target, chosen, []), **options
    )


def measure(engine: Engine, prompts: Sequence[NamedIds], max_tokens: int, temperature: float = 0.0) -> Measured:
    """Answer ``prompts`` and count what the drafts were worth."""
    params = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=0)
    outputs = engine.generate([ids for _, ids in prompts], params)
    rounds: list[RoundStats] = []
    groups: list[str] = []
    looping = 0
    for (name, _), output in zip(prompts, outputs, strict=True):
        kept = rounds_before_loop(output)
        looping += len(kept) < len(output.rounds)
        rounds += kept
        groups += [name] * len(kept)
    counts = AcceptanceCounts.from_rounds(rounds, groups)
    return Measured(counts, len(prompts), sum(len(o.token_ids) for o in outputs), looping)


def rounds_before_loop(output: RequestOutput) -> list[RoundStats]:
    """Rounds that began before the answer started to repeat itself."""
    start = loop_start(output.token_ids)
    if start is None:
        return list(output.rounds)
    kept, position = [], 1  # the first token came from prefill
    for stats in output.rounds:
        if position >= start:
            break
        kept.append(stats)
        position += stats.produced
    return kept
