"""Any transformers causal LM whose attention goes through the attention interface, as a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from draftproof import compat, native
from draftproof.engine.plan import Pass
from draftproof.errors import CapabilityError
from draftproof.native import LayerKV, RowPlan
from draftproof.targets.base import Capabilities, TargetInfo
from draftproof.targets.interface import CONTEXT, PassContext, Probe
from draftproof.targets.taps import TapRecorder

INVARIANT_ROWS = 16  # every decoding pass of the invariant mode has exactly this many rows
KNOWN_LAYERS = {"full_attention", "sliding_attention"}


class HuggingFaceTarget:
    """Runs passes through the model's own modules; only attention and the K/V pool are ours.

    ``invariant`` makes every pass of at most ``INVARIANT_ROWS`` rows exactly that many (padding what is
    missing), so a row's rounding does not depend on how many rows were needed.
    """

    backend = "torch"

    def __init__(self, model: Any, *, invariant: bool = False, use_native: bool = True) -> None:
        config = compat.text_config(model.config)
        self.model = model
        self.base = model.base_model
        self._layers = find_layers(model, config)
        self.info = target_info(model, config)
        self._refuse_what_is_unknown(config)
        compat.use_attention(model)
        self.invariant = invariant
        probe = self._probe()
        self.kv_index = {layer: i for i, layer in enumerate(sorted(probe.shapes))}
        self.kv_shapes = [probe.shapes[layer] for layer in sorted(probe.shapes)]
        same_width = all(s.key_dim == s.value_dim for s in self.kv_shapes)
        self._native = (
            use_native
            and self.info.device.type == "cpu"
            and self.info.dtype in (torch.float32, torch.bfloat16)
            and same_width
            and native.available()
        )
        self._taps = TapRecorder(self._layers, self.base.norm if hasattr(self.base, "norm") else None)
        self.capabilities = self._capabilities(config)

    # -- what the family is -------------------------------------------------------------------------------

    def _refuse_what_is_unknown(self, config: Any) -> None:
        name = type(self.model).__name__
        strange = set(getattr(config, "layer_types", None) or []) - KNOWN_LAYERS
        if strange:
            raise CapabilityError(f"{name}: layers of type {', '.join(sorted(strange))} are not supported")
        if getattr(config, "use_bidirectional_attention", None):
            raise CapabilityError(f"{name}: use_bidirectional_attention is set, so it cannot be decoded token by token")

    def _capabilities(self, config: Any) -> Capabilities:
        experts = getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None)
        if experts:
            return Capabilities(why_not_invariant="its experts see as many rows at once as were routed to them")
        return Capabilities(row_invariant=True)

    @torch.inference_mode()
    def _probe(self) -> Probe:
        probe = Probe()
        ids = torch.zeros(1, 1, dtype=torch.long, device=self.info.device)
        self.model(input_ids=ids, position_ids=ids, use_cache=False, **{CONTEXT: probe})
        if not probe.shapes:
            raise CapabilityError(
                f"{type(self.model).__name__}: this family does not route its attention through transformers' "
                "attention interface, so the engine cannot run it"
            )
        return probe

    # -- what drafters borrow -----------------------------------------------------------------------------

    @property
    def embedding(self) -> Tensor:
        return self.model.get_input_embeddings().weight

    def project(self, hidden: Tensor) -> Tensor:
        head = self.model.get_output_embeddings()
        return head(hidden.to(head.weight.dtype)).float()

    # -- passes -------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def forward(
        self,
        batch: Pass,
        kv: Sequence[LayerKV],
        *,
        taps: Sequence[int] = (),
        logits: Sequence[int] | Tensor = (),
    ) -> tuple[Tensor, Tensor | None]:
        rows = torch.as_tensor(logits, dtype=torch.long, device=self.info.device)
        if not self.invariant:
            return self._run(batch, kv, taps, rows)
        parts = [self._run(part, kv, taps, torch.arange(len(part.token_ids))) for part in fixed_shapes(batch)]
        every = torch.cat([part[0] for part in parts])
        every_tap = torch.cat([part[1] for part in parts if part[1] is not None]) if taps else None
        count = len(batch.token_ids)
        return every[:count][rows], None if every_tap is None else every_tap[:count]

    def _run(
        self, batch: Pass, kv: Sequence[LayerKV], taps: Sequence[int], rows: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        context = PassContext(batch, kv, self.kv_index, row_by_row=self.invariant, native=self._native)
        return self._call(batch.token_ids, batch.plan.positions.long(), context, taps, rows)

    def _call(
        self,
        ids: Tensor,
        positions: Tensor,
        context: PassContext,
        taps: Sequence[int],
        rows: Tensor,
        **more: Any,
    ) -> tuple[Tensor, Tensor | None]:
        kwargs = {"use_cache": False} | more
        with self._taps.recording(taps) as recorder:
            out = self.model(
                input_ids=ids[None],
                position_ids=positions[None],
                logits_to_keep=rows if len(rows) else 1,
                **kwargs,
                **{CONTEXT: context},
            )
        logits = out.logits[0].float() if len(rows) else out.logits[0, :0].float()
        return logits, recorder.collect()

    def commit(self, seq: int, rows: int, kept: int) -> None:
        pass  # keys and values are addressed by position: what is not kept is overwritten

    def release(self, seq: int) -> None:
        pass


def find_layers(model: Any, config: Any) -> torch.nn.ModuleList:
    """The decoder layers of a causal LM, also inside multimodal wrappers."""
    candidates = [
        m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == config.num_hidden_layers
    ]
    if not candidates:
        raise CapabilityError(f"{type(model).__name__}: its decoder layers were not found")
    return candidates[0]


def target_info(model: Any, config: Any) -> TargetInfo:
    """Facts from the configuration; end-of-sequence ids from generation config and config together."""
    eos: list[int] = []
    for source in (getattr(model, "generation_config", None), config):
        ids = getattr(source, "eos_token_id", None)
        eos += ids if isinstance(ids, list) else [] if ids is None else [ids]
    return TargetInfo(
        family=config.model_type,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        vocab_size=model.get_output_embeddings().weight.shape[0],
        max_position=int(getattr(config, "max_position_embeddings", None) or 2048),
        eos_token_ids=tuple(dict.fromkeys(int(i) for i in eos)),
        dtype=model.get_input_embeddings().weight.dtype,
        device=model.get_input_embeddings().weight.device,
        config=config.to_dict() | {"vocab_size": model.get_output_embeddings().weight.shape[0]},
    )


def fixed_shapes(batch: Pass) -> list[Pass]:
    """The pass cut and padded to pieces of exactly ``INVARIANT_ROWS`` rows. Parents precede children, so a later
    piece finds the keys of an earlier one in the pool."""
    plan, total = batch.plan, len(batch.token_ids)
    pieces = []
    for begin in range(0, total, INVARIANT_ROWS):
        end = min(begin + INVARIANT_ROWS, total)
        missing = INVARIANT_ROWS - (end - begin)

        def pad(values: Tensor, fill: int, begin: int = begin, end: int = end, missing: int = missing) -> Tensor:
            return torch.cat([values[begin:end], values.new_full((missing,), fill)])

        extra_ptr, extra_slots = plan.extra_ptr, plan.extra_slots
        if extra_ptr is not None:
            first, last = int(extra_ptr[begin]), int(extra_ptr[end])
            extra_ptr = torch.cat([extra_ptr[begin : end + 1], extra_ptr[end].expand(missing)]) - first
            extra_slots = None if extra_slots is None else extra_slots[first:last]
        part = RowPlan(
            positions=pad(plan.positions, 0),
            slots=pad(plan.slots, -1),
            request=pad(plan.request, int(plan.request[begin])),
            table=plan.table,
            visible=pad(plan.visible, 0),
            visible_block=None if plan.visible_block is None else pad(plan.visible_block, 0),
            extra_ptr=extra_ptr,
            extra_slots=extra_slots,
        )
        pieces.append(Pass(pad(batch.token_ids, 0), part, (), ()))
    return pieces
