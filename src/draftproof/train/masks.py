"""Which keys a block's rows see while training: asked of the engine's own plan and mask, so it cannot differ."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from draftproof.drafters.spec import DrafterSpec
from draftproof.engine.attend import PlanView
from draftproof.engine.plan import build_block_plan


@dataclass(frozen=True)
class Visibility:
    """What decides a layer's mask; layers with equal values share it."""

    window: int | None
    bidirectional: bool
    window_from_anchor: bool

    @classmethod
    def of(cls, spec: DrafterSpec, layer: int) -> Visibility:
        return cls(spec.reach(layer), not spec.layers[layer].causal, spec.window_from_anchor)


@lru_cache(maxsize=1 << 15)
def block_mask(anchor: int, rows: int, kind: Visibility) -> Tensor:
    """[rows, anchor + rows] bool: may the block at ``anchor`` see this position? The first ``anchor`` are context."""
    # One sequence whose slots are its positions; the plan reads nothing else of a pool.
    pool = cast(Any, SimpleNamespace(table=torch.arange(anchor + rows, dtype=torch.int32)[None]))
    plan = build_block_plan(pool, [(0, anchor, rows)], window_from_anchor=kind.window_from_anchor)
    return PlanView(plan).masks(kind.window, kind.bidirectional)[0]


def batch_masks(anchors: Tensor, rows: int, length: int, kind: Visibility) -> tuple[Tensor, Tensor]:
    """Additive masks of many blocks: over the context [S, n, rows, length] and the block itself [S, n, rows, rows].

    ``anchors`` [S, n]; positions past a sequence's anchor are closed, so padding is too. 0 is open, -inf closed.
    """
    closed = float("-inf")
    context = torch.full((*anchors.shape, rows, length), closed)
    block = torch.full((*anchors.shape, rows, rows), closed)
    for s, line in enumerate(anchors.tolist()):
        for i, anchor in enumerate(line):
            seen = block_mask(anchor, rows, kind)
            context[s, i, :, :anchor].masked_fill_(seen[:, :anchor], 0.0)
            block[s, i].masked_fill_(seen[:, anchor:], 0.0)
    return context, block
