"""One pair, healthy or with a fault, on the same prompts under several conditions: counts of accepted tokens.

Conditions: ``short``: fresh questions; ``long``: the same questions late in a conversation, past the windows;
``cached``: ``long`` again, now with the conversation in the prefix cache; ``batch``: ``short``, many at once;
``sampled``: ``short`` at temperature 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from draftproof.bench.acceptance import AcceptanceCounts
from draftproof.bench.workloads import Message, WorkloadPrompt
from draftproof.drafters.loading import load_weights
from draftproof.engine.engine import Engine
from draftproof.engine.types import SamplingParams
from draftproof.errors import UsageError
from draftproof.proof.lab.faults import NOISE, Fault
from draftproof.proof.lab.wiring import Wiring
from draftproof.targets.loading import load_target, pick_device, pick_dtype
from draftproof.train.evaluation import rounds_before_loop

CONDITIONS = ("short", "long", "cached", "batch", "sampled")
LONG = 3  # windows that a long context reaches over, at least
TURN_TOKENS = 48  # of an earlier answer in a conversation
Counts = dict[str, AcceptanceCounts]


@dataclass
class Laboratory:
    """A target and a drafter's healthy parts, once loaded. ``max_tokens`` per answer; ``seed`` of sampled answers."""

    target: str
    drafter: str
    dtype: str = "auto"
    device: str = "auto"
    max_tokens: int = 64
    seed: int = 0
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._engine = self._open(noise=0.0)
        self.healthy = Wiring(*load_weights(self.drafter, self._engine.target, self.notes))
        if self.healthy.spec.unsupported():
            raise UsageError(f"{self.drafter}: {self.healthy.spec.unsupported()[0]}")
        self._noisy: Engine | None = None

    def _open(self, noise: float) -> Engine:
        device = pick_device(self.device)
        loaded = load_target(self.target, device=device, dtype=pick_dtype(self.dtype, device))  # type: ignore[arg-type]
        if noise:
            _disturb(loaded.model, noise, self.seed)
        return Engine.from_model(loaded.model, loaded.tokenizer, max_num_seqs=16, kv_cache_gb=1.0)

    def conversations(self, prompts: Sequence[WorkloadPrompt]) -> list[tuple[Message, ...]]:
        """Every prompt late in a conversation whose earlier turns are the other prompts, answered by the target."""
        window = max((x.window or 0 for x in self.healthy.spec.layers), default=0)
        wanted = max(LONG * window, 256)
        params = SamplingParams(max_tokens=TURN_TOKENS)
        answers = self._engine.generate([self._ids(p.messages) for p in prompts], params)
        long: list[tuple[Message, ...]] = []
        for i, prompt in enumerate(prompts):
            turns: list[Message] = []
            for k in range(1, len(prompts)):
                j = (i + k) % len(prompts)
                turns += [*prompts[j].messages, {"role": "assistant", "content": answers[j].text.strip()}]
                if len(self._ids([*turns, *prompt.messages])) >= wanted:
                    break
            long.append((*turns, *prompt.messages))
        return long

    def _ids(self, messages: Sequence[Message], plain: bool = False) -> list[int]:
        if plain:
            return self._engine.encode("\n\n".join(m["content"] for m in messages))
        return self._engine.apply_chat_template(list(messages))

    def run(
        self,
        prompts: Sequence[WorkloadPrompt],
        fault: Fault | None = None,
        conditions: Sequence[str] = CONDITIONS,
        report: Callable[[str], None] = lambda line: None,
    ) -> Counts:
        """Counts per condition; a fault that shows in one condition only is run in that one."""
        wanted = [c for c in conditions if fault is None or fault.only in (None, c)]
        plain = fault is not None and fault.plain_prompts
        short = [self._ids(p.messages, plain) for p in prompts]
        long = [self._ids(c, plain) for c in self.conversations(prompts)] if {"long", "cached"} & set(wanted) else []
        found: Counts = {}
        for condition in wanted:
            engine = self._wired(fault, condition)
            ids = long if condition in ("long", "cached") else short
            if condition == "cached":
                self._fill_cache(engine, ids)
            elif engine.prefix_cache is not None:
                engine.prefix_cache.reset()
            found[condition] = self._count(engine, ids, condition, fault)
            report(f"{fault.name if fault else 'healthy'}, {condition}: τ {found[condition].tau or 0:.2f}")
        return found

    def _wired(self, fault: Fault | None, condition: str) -> Engine:
        base = self._engine
        if fault is not None and fault.noisy_target:
            self._noisy = self._noisy or self._open(NOISE)
            base = self._noisy
        wiring = self.healthy

        def make(target: Any) -> Any:
            changed = fault.change(wiring, target) if fault is not None and fault.change is not None else wiring
            return changed.build(target)

        greedy = fault is not None and fault.greedy_drafts
        return base.with_drafter(
            make,
            max_num_seqs=16 if condition == "batch" else 1,
            length_policy="fixed",
            draft_sample_method=None if condition != "sampled" else "greedy" if greedy else "probabilistic",
            enable_prefix_caching=condition == "cached",
        )

    def _fill_cache(self, engine: Engine, prompts: Sequence[Sequence[int]]) -> None:
        for ids in prompts:
            engine.generate([list(ids)], SamplingParams(max_tokens=1))

    def _count(
        self, engine: Engine, prompts: Sequence[Sequence[int]], condition: str, fault: Fault | None
    ) -> AcceptanceCounts:
        heat = 1.0 if condition == "sampled" else 0.0
        params = SamplingParams(max_tokens=self.max_tokens, temperature=heat, seed=self.seed if heat else None)
        outputs = engine.generate([list(ids) for ids in prompts], params)
        rounds, groups = [], []
        for i, output in enumerate(outputs):
            kept = rounds_before_loop(output)
            rounds += kept
            groups += [i] * len(kept)
        return AcceptanceCounts.from_rounds(rounds, groups)


def _disturb(model: Any, noise: float, seed: int) -> None:
    """Move every matrix of the layers by ``noise`` standard deviations, as a fine-tune would, at random."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and ".layers." in name:
                step = torch.randn(weight.shape, generator=random).to(weight.device, torch.float32)
                weight.add_((noise * float(weight.float().std()) * step).to(weight.dtype))
