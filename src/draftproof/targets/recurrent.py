"""Targets with gated-delta-net layers beside attention (Qwen3-Next, Qwen3.5): rows of a sequence run in order.

A recurrent layer keeps one state per sequence, not one entry per token. Before a pass the states are kept aside
and the layers' inputs recorded; when only the first rows stand, the states go back and those layers alone are
run again over the rows that stand. A tree has no single order of rows, so trees are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from draftproof import compat
from draftproof.engine.plan import Pass
from draftproof.native import LayerKV, RowPlan
from draftproof.targets.base import Capabilities
from draftproof.targets.huggingface import HuggingFaceTarget
from draftproof.targets.interface import PassContext, Probe

RECURRENT = "linear_attention"


@dataclass
class _Sequence:
    """A sequence's recurrent states (inside ``cache``), and what is needed to undo its last pass."""

    cache: Any
    before: dict[int, tuple[Tensor | None, Tensor | None, bool]] = field(default_factory=dict)
    inputs: dict[int, Tensor] = field(default_factory=dict)


class RecurrentTarget(HuggingFaceTarget):
    """Runs one sequence after the other within a pass."""

    def __init__(self, model: Any, *, use_native: bool = True) -> None:
        self._sequences: dict[int, _Sequence] = {}
        self._current: _Sequence | None = None
        config = compat.text_config(model.config)
        self._config = config
        super().__init__(model, use_native=use_native)
        self._recurrent: dict[int, Any] = {
            i: layer.linear_attn for i, layer in enumerate(self._layers) if config.layer_types[i] == RECURRENT
        }
        for index, layer in self._recurrent.items():
            layer.register_forward_pre_hook(self._recorder(index), with_kwargs=True)

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
            prefix_reuse=False,
            why_no_prefix_reuse="its recurrent layers keep one state per sequence, not one entry per token, so a "
            "sequence cannot begin where another one passed",
        )

    @torch.inference_mode()
    def _probe(self) -> Probe:
        probe = Probe()
        ids = torch.zeros(1, 1, dtype=torch.long, device=self.info.device)
        cache = compat.pass_through_cache(self._config)
        self.model(input_ids=ids, position_ids=ids, cache=cache, use_cache=True, draftproof_pass=probe)
        return probe

    def _recorder(self, index: int) -> Any:
        def keep(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
            if self._current is not None:
                self._current.inputs[index] = args[0] if args else kwargs["hidden_states"]

        return keep

    @torch.inference_mode()
    def forward(
        self,
        batch: Pass,
        kv: Sequence[LayerKV],
        *,
        taps: Sequence[int] = (),
        logits: Sequence[int] | Tensor = (),
    ) -> tuple[Tensor, Tensor | None]:
        wanted = torch.as_tensor(logits, dtype=torch.long)
        out_logits, out_taps = [], []
        for i, segment in enumerate(batch.segments):
            rows = batch.rows(i)
            part = Pass(batch.token_ids[rows], _slice_plan(batch.plan, rows), (segment,), (0,))
            mine = wanted[(wanted >= rows.start) & (wanted < rows.stop)] - rows.start
            part_logits, part_taps = self._run_sequence(segment.seq, part, kv, taps, mine.to(self.info.device))
            out_logits.append(part_logits)
            out_taps.append(part_taps)
        return torch.cat(out_logits), torch.cat(out_taps) if taps else None  # type: ignore[arg-type]

    def _run_sequence(
        self, seq: int, part: Pass, kv: Sequence[LayerKV], taps: Sequence[int], rows: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        state = self._sequences.setdefault(seq, _Sequence(compat.pass_through_cache(self._config)))
        state.before = {i: compat.recurrent_state(state.cache, i) for i in self._recurrent}
        state.inputs = {}
        context = PassContext(part, kv, self.kv_index, row_by_row=False, native=self._native)
        self._current = state
        try:
            return self._call(
                part.token_ids,
                part.plan.positions.long(),
                context,
                taps,
                rows,
                cache=state.cache,
                use_cache=True,
            )
        finally:
            self._current = None

    @torch.inference_mode()
    def commit(self, seq: int, rows: int, kept: int) -> None:
        state = self._sequences[seq]
        if kept < rows:
            for index, layer in self._recurrent.items():
                compat.restore_recurrent_state(state.cache, index, state.before[index])
                layer(hidden_states=state.inputs[index][:, :kept], cache=state.cache, attention_mask=None)
        state.before, state.inputs = {}, {}

    def release(self, seq: int) -> None:
        self._sequences.pop(seq, None)


def _slice_plan(plan: RowPlan, rows: slice) -> RowPlan:
    return RowPlan(
        positions=plan.positions[rows],
        slots=plan.slots[rows],
        request=plan.request[rows],
        table=plan.table,
        visible=plan.visible[rows],
        visible_block=None,
        extra_ptr=None,
        extra_slots=None,
    )
