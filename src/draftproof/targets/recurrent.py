"""Targets with gated-delta-net layers beside attention (Qwen3-Next, Qwen3.5): rows of a sequence run in order.

A recurrent layer keeps one state per sequence, not one entry per token. All other layers run a pass's rows together
as in any family; a recurrent layer takes the sequences that have as many rows as one batch. States are never
written to: a pass makes new ones, so taking rows back is keeping the old state and running those layers alone again
over the rows that stand. A tree has no single order of rows, so trees are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from draftproof import compat
from draftproof.engine.plan import Pass
from draftproof.native import LayerKV
from draftproof.targets.base import Capabilities, Snapshot
from draftproof.targets.huggingface import HuggingFaceTarget
from draftproof.targets.interface import PassContext, Probe

RECURRENT = "linear_attention"
States = dict[int, compat.RecurrentState]


@dataclass
class _Sequence:
    """A sequence's states by layer, those before its last pass, and what that pass gave the recurrent layers."""

    states: States = field(default_factory=dict)
    before: States = field(default_factory=dict)
    inputs: dict[int, Tensor] = field(default_factory=dict)


class RecurrentTarget(HuggingFaceTarget):
    """See the module's docstring."""

    def __init__(self, model: Any, *, use_native: bool = True) -> None:
        self._sequences: dict[int, _Sequence] = {}
        self._pass: list[tuple[slice, _Sequence]] | None = None
        config = compat.text_config(model.config)
        self._config = config
        super().__init__(model, use_native=use_native)
        self._recurrent: dict[int, Callable[..., Tensor]] = {}
        for i, layer in enumerate(self._layers):
            if config.layer_types[i] == RECURRENT:
                module: Any = layer.linear_attn
                self._recurrent[i] = module.forward
                module.forward = partial(self._run_layer, i)
        self._cache = compat.pass_through_cache(config)

    def _refuse_what_is_unknown(self, config: Any) -> None:
        types = config.layer_types
        config.layer_types = [t for t in types if t != RECURRENT]
        try:
            super()._refuse_what_is_unknown(config)
        finally:
            config.layer_types = types

    def _capabilities(self, config: Any) -> Capabilities:
        return Capabilities(
            trees=False,
            why_no_trees="its recurrent layers keep one state per sequence, which cannot branch into a tree",
            why_not_invariant="its recurrent layers take another algorithm for one row than for several",
            snapshots=True,
        )

    @torch.inference_mode()
    def _probe(self) -> Probe:
        probe = Probe()
        ids = torch.zeros(1, 1, dtype=torch.long, device=self.info.device)
        cache = compat.pass_through_cache(self._config)
        self.model(input_ids=ids, position_ids=ids, cache=cache, use_cache=True, draftproof_pass=probe)
        return probe

    # -- passes -------------------------------------------------------------------------------------------

    def _run(
        self, batch: Pass, kv: Sequence[LayerKV], taps: Sequence[int], rows: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        sequences = [self._sequences.setdefault(segment.seq, _Sequence()) for segment in batch.segments]
        for sequence in sequences:
            sequence.before, sequence.inputs = dict(sequence.states), {}
        self._pass = [(batch.rows(i), sequence) for i, sequence in enumerate(sequences)]
        context = PassContext(batch, kv, self.kv_index, row_by_row=False, native=self._native)
        positions = batch.plan.positions.long()
        try:
            return self._call(batch.token_ids, positions, context, taps, rows, cache=self._cache, use_cache=True)
        finally:
            self._pass = None

    def _run_layer(self, index: int, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        """One recurrent layer over a pass's rows [1, R, H]: sequences of one length as one batch."""
        if self._pass is None:  # not one of the engine's passes
            return self._recurrent[index](hidden_states=hidden_states, **kwargs)
        alike: dict[tuple[int, bool], list[tuple[slice, _Sequence]]] = {}
        for rows, sequence in self._pass:
            sequence.inputs[index] = hidden_states[:, rows]
            alike.setdefault((rows.stop - rows.start, index in sequence.states), []).append((rows, sequence))
        out = torch.empty_like(hidden_states)
        for group in alike.values():
            inputs = torch.cat([hidden_states[:, rows] for rows, _ in group])
            results = self._advance(index, [sequence for _, sequence in group], inputs)
            for i, (rows, _) in enumerate(group):
                out[0, rows] = results[i]
        return out

    def _advance(self, index: int, sequences: Sequence[_Sequence], inputs: Tensor) -> Tensor:
        """Run the layer over ``inputs`` [B, L, H] from the sequences' states, all of which exist or none."""
        before = [s.states[index] for s in sequences if index in s.states]
        start = (torch.cat([conv for conv, _ in before]), torch.cat([state for _, state in before])) if before else None
        compat.set_recurrent_state(self._cache, index, start)
        out = self._recurrent[index](hidden_states=inputs, cache=self._cache, attention_mask=None)
        conv, state = compat.recurrent_state(self._cache, index)
        for i, sequence in enumerate(sequences):
            sequence.states[index] = (conv[i : i + 1].clone(), state[i : i + 1].clone())
        return out

    @torch.inference_mode()
    def commit(self, seq: int, rows: int, kept: int) -> None:
        sequence = self._sequences[seq]
        if kept < rows:
            sequence.states = dict(sequence.before)
            for index, inputs in sequence.inputs.items() if kept else ():
                self._advance(index, [sequence], inputs[:, :kept])
        sequence.before, sequence.inputs = {}, {}

    def snapshot(self, seq: int) -> Snapshot | None:
        states = dict(self._sequences[seq].states)
        return Snapshot(states, sum(t.numel() * t.element_size() for pair in states.values() for t in pair))

    def restore(self, seq: int, snapshot: Snapshot) -> None:
        self._sequences[seq] = _Sequence(dict(snapshot.state))

    def release(self, seq: int) -> None:
        self._sequences.pop(seq, None)
