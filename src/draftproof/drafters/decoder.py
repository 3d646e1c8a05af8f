"""A stack of Llama/Qwen3-type decoder layers over the K/V pool, in plain torch.

The same calls as :class:`draftproof.native.NativeDecoder`, whose reference it is: pre-norm layers with optional
per-head norms of queries and keys, half-rotation RoPE, SwiGLU; window and direction per layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.engine.attend import PlanView
from draftproof.native import LayerKV, LayerWeights, RowPlan


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last axis, computed in float32, returned in x's dtype."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


def rotate(x: Tensor, positions: Tensor, inv_freq: Tensor, scaling: float) -> Tensor:
    """RoPE by half rotation on [R, heads, d]; only the first 2·len(inv_freq) dimensions turn."""
    angles = positions.float()[:, None] * inv_freq.float()[None, :]
    cos = (torch.cat([angles.cos()] * 2, dim=-1) * scaling).to(x.dtype)[:, None, :]
    sin = (torch.cat([angles.sin()] * 2, dim=-1) * scaling).to(x.dtype)[:, None, :]
    width = cos.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    half = width // 2
    swapped = torch.cat([-turned[..., half:], turned[..., :half]], dim=-1)
    return torch.cat([turned * cos + swapped * sin, rest], dim=-1)


class TorchDecoder:
    """See the module's docstring. All weights in one dtype on one device."""

    def __init__(
        self,
        layers: Sequence[LayerWeights],
        *,
        hidden_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        rms_eps: float,
        inv_freq: Tensor,
        rope_scaling: float,
        attn_scale: float,
        final_norm: Tensor | None,
        dtype: torch.dtype,
    ) -> None:
        self.layers = layers
        self.heads, self.kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.eps = rms_eps
        self.inv_freq, self.rope_scaling = inv_freq, rope_scaling
        self.scale = attn_scale
        self.final_norm = final_norm
        self.dtype = dtype

    def forward(
        self, x: Tensor, plan: RowPlan, kv: Sequence[LayerKV], taps: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """[R, H] → (final-normed hidden [R, H], taps [R, len(taps) × H]); K/V of the rows go to their slots."""
        view = PlanView(plan)
        states = [x.to(self.dtype)]
        for layer, pools in zip(self.layers, kv, strict=True):
            hidden = states[-1]
            hidden = hidden + self._attention(layer, rms_norm(hidden, layer.input_norm, self.eps), view, pools)
            hidden = hidden + self._mlp(layer, rms_norm(hidden, layer.post_norm, self.eps))
            states.append(hidden)
        if self.final_norm is not None:
            states[-1] = rms_norm(states[-1], self.final_norm, self.eps)
        return states[-1], torch.cat([states[j] for j in taps], dim=-1) if taps else None

    def append_context(self, x: Tensor, positions: Tensor, slots: Tensor, kv: Sequence[LayerKV]) -> None:
        """Context K/V of every layer from one input [R, H]; the layers' input norms are not applied to it."""
        for layer, pools in zip(self.layers, kv, strict=True):
            self._store(layer, x.to(self.dtype), positions, slots, pools)

    def _store(self, layer: LayerWeights, x: Tensor, positions: Tensor, slots: Tensor, pools: LayerKV) -> None:
        key = F.linear(x, layer.k, layer.k_bias).unflatten(-1, (self.kv_heads, self.head_dim))
        value = F.linear(x, layer.v, layer.v_bias).unflatten(-1, (self.kv_heads, self.head_dim))
        if layer.k_norm is not None:
            key = rms_norm(key, layer.k_norm, self.eps)
        where = slots.long() if pools.slot_map is None else pools.slot_map[slots.long()].long()
        pools.key[where] = rotate(key, positions, self.inv_freq, self.rope_scaling)
        pools.value[where] = value

    def _attention(self, layer: LayerWeights, x: Tensor, view: PlanView, pools: LayerKV) -> Tensor:
        plan = view.plan
        self._store(layer, x, plan.positions, plan.slots, pools)
        query = F.linear(x, layer.q, layer.q_bias).unflatten(-1, (self.heads, self.head_dim))
        if layer.q_norm is not None:
            query = rms_norm(query, layer.q_norm, self.eps)
        query = rotate(query, plan.positions, self.inv_freq, self.rope_scaling)
        out = view.attend(query, pools, scale=self.scale, window=layer.window, bidirectional=layer.bidirectional)
        return F.linear(out.flatten(1), layer.o, layer.o_bias)

    def _mlp(self, layer: LayerWeights, x: Tensor) -> Tensor:
        return F.linear(F.silu(F.linear(x, layer.gate)) * F.linear(x, layer.up), layer.down)
