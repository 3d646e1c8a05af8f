"""Our attention, registered with transformers: every family's layers call it with their own queries, keys,
values, window, soft-cap and sinks; it stores the keys in the engine's pool and reads them back from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from draftproof import compat, native
from draftproof.engine.attend import PlanView
from draftproof.engine.memory import KVShape
from draftproof.engine.plan import Pass
from draftproof.native import LayerKV

CONTEXT = "draftproof_pass"  # the keyword that travels from the model's forward to its attention layers


@dataclass
class PassContext:
    """One pass as the attention layers see it. ``kv_index`` maps a model's layer index to its pool."""

    batch: Pass
    kv: Sequence[LayerKV]
    kv_index: dict[int, int]
    row_by_row: bool
    native: bool
    view: PlanView | None = None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]) -> Tensor:
        """query [R, heads, d], key and value [R, kv, d]: store, then attend. Returns [R, heads, dv]."""
        pools = self.kv[self.kv_index[layer]]
        plan = self.batch.plan
        keep = plan.slots >= 0
        slots = plan.slots[keep].long()
        if pools.slot_map is not None:
            slots = pools.slot_map[slots].long()
        pools.key[slots] = key[keep]
        pools.value[slots] = value[keep]
        if self.native:
            return native.attention(
                query.contiguous(), plan, pools.key, pools.value, slot_map=pools.slot_map, **options
            )
        if self.view is None:
            self.view = PlanView(plan)
        return self.view.attend(query, pools, row_by_row=self.row_by_row, **options)


@dataclass
class Probe:
    """Stands in for a pass once, to learn which layers attend and with which shapes."""

    shapes: dict[int, KVShape] = field(default_factory=dict)


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention signature. query [1, heads, R, d] → output [1, R, heads, dv]."""
    context = kwargs[CONTEXT]
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    if isinstance(context, Probe):
        context.shapes[layer] = KVShape(key.shape[1], key.shape[3], value.shape[3], sliding_window)
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3]), None
    options = {
        "scale": scaling if scaling is not None else query.shape[3] ** -0.5,
        "window": sliding_window,
        "softcap": softcap,
        "sinks": s_aux,
    }
    out = context.attend(layer, query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1), options)
    return out[None], None


compat.register_attention(attention)
