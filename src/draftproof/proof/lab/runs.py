"""One pair, healthy or with a fault, on the same prompts under several conditions: counts of accepted tokens.

Conditions: ``short``: fresh questions; ``long``: the same questions late in a conversation, past the windows;
``cached``: ``long`` again, now with the conversation in the prefix cache; ``sampled``: ``short`` at temperature 1;
``batch``: ``short``, many at once. The target's part is recorded once and replayed (``recording``, ``replay``), but
for ``batch``, where every pass really runs.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from draftproof.bench.acceptance import AcceptanceCounts
from draftproof.bench.workloads import Message, WorkloadPrompt
from draftproof.drafters.loading import load_weights
from draftproof.engine.engine import Engine
from draftproof.engine.types import RequestOutput, SamplingParams
from draftproof.errors import UsageError
from draftproof.proof.lab.faults import NOISE, Fault
from draftproof.proof.lab.recording import Recording, record
from draftproof.proof.lab.replay import Coupled, ReplayTarget
from draftproof.proof.lab.wiring import Wiring
from draftproof.targets.loading import load_target, pick_device, pick_dtype
from draftproof.train.evaluation import rounds_before_loop

CONDITIONS = ("short", "long", "cached", "sampled", "batch")
USUAL = CONDITIONS[:4]  # rows do not depend on their company here, so ``batch`` repeats ``short``
LONG = 3  # windows that a long context reaches over, at least
TURN_TOKENS = 48  # of an earlier answer in a conversation
STREAMS = 16
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
        self.engine = self._open(noise=0.0)
        self.healthy = Wiring(*load_weights(self.drafter, self.engine.target, self.notes))
        if self.healthy.spec.unsupported():
            raise UsageError(f"{self.drafter}: {self.healthy.spec.unsupported()[0]}")
        self._noisy: Engine | None = None
        self.weights_sha256 = weights_sha256(self.drafter)

    def _open(self, noise: float) -> Engine:
        device = pick_device(self.device)
        loaded = load_target(self.target, device=device, dtype=pick_dtype(self.dtype, device))  # type: ignore[arg-type]
        if noise:
            _disturb(loaded.model, noise, self.seed)
        return Engine.from_model(loaded.model, loaded.tokenizer, max_num_seqs=STREAMS, kv_cache_gb=1.0)

    def engine_for(self, fault: Fault | None) -> Engine:
        """That of the target, or of the one whose weights have moved."""
        if fault is None or not fault.noisy_target:
            return self.engine
        self._noisy = self._noisy or self._open(NOISE)
        return self._noisy

    @property
    def long_tokens(self) -> int:
        """Of a context that is called long, at least."""
        return max(LONG * max((x.window or 0 for x in self.healthy.spec.layers), default=0), 256)

    def on(self, prompts: Sequence[WorkloadPrompt]) -> Session:
        return Session(self, prompts)

    def wired(self, fault: Fault | None, target: Any) -> Any:
        """The drafter beside ``target``, with what is wrong."""
        changed = fault.change(self.healthy, target) if fault is not None and fault.change is not None else self.healthy
        return changed.build(target)


class Session:
    """Some prompts, what the target says to them (recorded when first needed), and runs of faults on them."""

    def __init__(self, place: Laboratory, prompts: Sequence[WorkloadPrompt]) -> None:
        self.place, self.prompts = place, prompts
        self._long: list[tuple[Message, ...]] | None = None
        self._recorded: dict[tuple[Any, ...], list[Recording]] = {}

    def run(
        self,
        fault: Fault | None = None,
        conditions: Sequence[str] = USUAL,
        report: Callable[[str], None] = lambda line: None,
    ) -> Counts:
        """Counts per condition, rounds labelled by prompt. A fault that shows in one condition only leaves the others
        as they are: it is run in that one. What is no fault of the cache does to a cached prompt what it does to the
        same one read anew."""
        found: Counts = {}
        for condition in conditions:
            if fault is not None and fault.only not in (None, condition):
                continue
            if condition == "cached" and "long" in found and fault is not None:
                found[condition] = found["long"]  # greedy rounds after a hit are those without it: see the tests
                continue
            outputs = self._live(fault) if condition == "batch" else self._replayed(fault, condition)
            found[condition] = _counts(outputs)
            report(f"{fault.name if fault else 'healthy'}, {condition}: τ {found[condition].tau or 0:.2f}")
            gc.collect()  # engines hold themselves in circles, and a pool each: hundreds of them fill the memory
        return found

    def _replayed(self, fault: Fault | None, condition: str) -> list[RequestOutput]:
        place = self.place
        recordings = self._recordings(fault, condition)
        target = ReplayTarget(place.engine_for(fault).target)
        drafter = place.wired(fault, target)
        if condition == "sampled" and not (fault is not None and fault.greedy_drafts):
            drafter = Coupled(drafter, target, place.seed)
        engine = place.engine.around(
            target,
            drafter,
            length_policy="fixed",
            max_num_seqs=1 if fault is not None and fault.one_by_one else STREAMS,
            kv_cache_gb=0.25,
            max_num_batched_tokens=2048,
            enable_prefix_caching=condition == "cached",
        )
        prompts = [list(r.prompt) for r in recordings]
        if condition == "cached":
            for recording, ids in zip(recordings, prompts, strict=True):
                target.load([recording])
                engine.generate([ids], SamplingParams(max_tokens=1))
        target.load(recordings)
        return engine.generate(prompts, SamplingParams(max_tokens=place.max_tokens))

    def _live(self, fault: Fault | None) -> list[RequestOutput]:
        base = self.place.engine_for(fault)
        engine = base.with_drafter(
            lambda target: self.place.wired(fault, target), length_policy="fixed", enable_prefix_caching=False
        )
        return engine.generate(self._prompts(fault, "short"), SamplingParams(max_tokens=self.place.max_tokens))

    def _recordings(self, fault: Fault | None, condition: str) -> list[Recording]:
        long, sampled = condition in ("long", "cached"), condition == "sampled"
        key = (fault is not None and fault.noisy_target, fault is not None and fault.plain_prompts, long, sampled)
        if key not in self._recorded:
            place = self.place
            most = place.max_tokens + place.healthy.spec.num_draft_tokens + 2
            params = [
                SamplingParams(max_tokens=most, ignore_eos=True, temperature=float(sampled), seed=place.seed + i)
                for i in range(len(self.prompts))
            ]
            layers = sorted({near for i in place.healthy.spec.tap_layers for near in (i - 1, i, i + 1)} | {self._last})
            kept = [i for i in layers if 0 <= i <= self._last]
            ids = self._prompts(fault, condition)
            self._recorded[key] = record(place.engine_for(fault), ids, kept, params)
        return self._recorded[key]

    @property
    def _last(self) -> int:
        return self.place.engine.target.info.num_layers

    def _prompts(self, fault: Fault | None, condition: str) -> list[list[int]]:
        chosen = self._conversations() if condition in ("long", "cached") else [p.messages for p in self.prompts]
        if fault is not None and fault.plain_prompts:
            return [self.place.engine.encode("\n\n".join(m["content"] for m in messages)) for messages in chosen]
        return [self.place.engine.apply_chat_template(list(messages)) for messages in chosen]

    def _conversations(self) -> list[tuple[Message, ...]]:
        """Every prompt late in a conversation whose earlier turns are the other prompts, answered by the target."""
        if self._long is None:
            engine, prompts = self.place.engine, self.prompts
            wanted = self.place.long_tokens
            told = record_texts(engine, self._prompts(None, "short"))
            self._long = []
            for i, prompt in enumerate(prompts):
                turns: list[Message] = []
                for k in range(1, len(prompts)):
                    j = (i + k) % len(prompts)
                    turns += [*prompts[j].messages, {"role": "assistant", "content": told[j]}]
                    if len(engine.apply_chat_template([*turns, *prompt.messages])) >= wanted:
                        break
                self._long.append((*turns, *prompt.messages))
        return self._long


def record_texts(engine: Engine, prompts: Sequence[Sequence[int]]) -> list[str]:
    outputs = engine.generate([list(ids) for ids in prompts], SamplingParams(max_tokens=TURN_TOKENS))
    return [output.text.strip() for output in outputs]


def weights_sha256(drafter: str) -> str | None:
    """Of the weights file in a local folder: fingerprints belong to these very weights."""
    file = Path(drafter) / "model.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None


def _counts(outputs: Sequence[RequestOutput]) -> AcceptanceCounts:
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
