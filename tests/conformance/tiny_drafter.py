"""A DFlash drafter in its plainest form, to train one and to compute expected drafts: no cache, one block.

Written for the tiny pairs only (small, float32, CPU). Tensor names are those of the z-lab file format, so the
state dict is the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FULL, SLIDING = "full_attention", "sliding_attention"
ROPE_THETA = 10000.0


@dataclass(frozen=True)
class TinyPair:
    """Everything that decides the two folders' content. ``target_layer_ids`` are 0-based layer outputs.

    ``is_causal`` None leaves the key out of the drafter's file (then sliding layers are causal and full ones
    are not). ``steps`` 0 leaves the drafter random (then almost nothing is accepted).
    """

    layer_types: tuple[str, ...] = (SLIDING, FULL, SLIDING)
    window: int = 16
    block: int = 8
    is_causal: bool | None = None
    seed: int = 0
    vocab: int = 64
    target_layers: int = 5
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    target_layer_ids: tuple[int, ...] = (1, 2, 3)
    target_steps: int = 60
    steps: int = 160

    @property
    def mask_token_id(self) -> int:
        return self.vocab - 1

    def is_layer_causal(self, layer: int) -> bool:
        return self.layer_types[layer] == SLIDING if self.is_causal is None else self.is_causal


class _Attention(nn.Module):
    def __init__(self, pair: TinyPair) -> None:
        super().__init__()
        inner, kv_inner = pair.heads * pair.head_dim, pair.kv_heads * pair.head_dim
        self.head_dim, self.groups = pair.head_dim, pair.heads // pair.kv_heads
        self.q_proj = nn.Linear(pair.width, inner, bias=False)
        self.k_proj = nn.Linear(pair.width, kv_inner, bias=False)
        self.v_proj = nn.Linear(pair.width, kv_inner, bias=False)
        self.o_proj = nn.Linear(inner, pair.width, bias=False)
        self.q_norm, self.k_norm = nn.RMSNorm(pair.head_dim, eps=1e-6), nn.RMSNorm(pair.head_dim, eps=1e-6)

    def forward(self, block: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        keys_in = torch.cat([context, block], dim=1)

        def split(x: Tensor) -> Tensor:
            return x.unflatten(-1, (-1, self.head_dim))

        total = keys_in.shape[1]
        positions = torch.arange(total)
        q = rotate(self.q_norm(split(self.q_proj(block))), positions[total - block.shape[1] :])
        k = rotate(self.k_norm(split(self.k_proj(keys_in))), positions)
        v = split(self.v_proj(keys_in))
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        k, v = (x.repeat_interleave(self.groups, dim=1) for x in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class _Layer(nn.Module):
    def __init__(self, pair: TinyPair) -> None:
        super().__init__()
        self.self_attn = _Attention(pair)
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(pair.width, 2 * pair.width, bias=False),
                "up_proj": nn.Linear(pair.width, 2 * pair.width, bias=False),
                "down_proj": nn.Linear(2 * pair.width, pair.width, bias=False),
            }
        )
        self.input_layernorm = nn.RMSNorm(pair.width, eps=1e-6)
        self.post_attention_layernorm = nn.RMSNorm(pair.width, eps=1e-6)

    def forward(self, block: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        block = block + self.self_attn(self.input_layernorm(block), context, mask)
        x = self.post_attention_layernorm(block)
        return block + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](x)) * self.mlp["up_proj"](x))


class TinyDrafter(nn.Module):
    """A DFlash drafter in its plainest form: no cache, one block, tensor names as in the file format."""

    def __init__(self, pair: TinyPair) -> None:
        super().__init__()
        self.pair = pair
        self.layers = nn.ModuleList(_Layer(pair) for _ in pair.layer_types)
        self.fc = nn.Linear(len(pair.target_layer_ids) * pair.width, pair.width, bias=False)
        self.hidden_norm = nn.RMSNorm(pair.width, eps=1e-6)
        self.norm = nn.RMSNorm(pair.width, eps=1e-6)

    def forward(self, block: Tensor, taps: Tensor, flipped_layer: int | None = None) -> Tensor:
        context = self.hidden_norm(self.fc(taps))
        for i, layer in enumerate(self.layers):
            causal = self.pair.is_layer_causal(i) != (i == flipped_layer)
            window = self.pair.window if self.pair.layer_types[i] == SLIDING else None
            block = layer(block, context, block_mask(taps.shape[1], block.shape[1], causal, window))
        return self.norm(block)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary embedding of [batch, position, head, dim], halves rotated against each other."""
    half = x.shape[-1] // 2
    rates = ROPE_THETA ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = positions[:, None].float() * rates
    cos, sin = angles.cos()[:, None, :], angles.sin()[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def block_mask(context: int, block: int, causal: bool, window: int | None) -> Tensor:
    """Which of the context's and the block's keys each block query may see, as booleans."""
    q = torch.arange(context, context + block)[:, None]
    k = torch.arange(context + block)[None, :]
    visible = (k <= q) | (not causal)
    if window is not None:
        visible = visible & (q - k < window) & (k - q < window)
    return visible


@torch.no_grad()
def draft_rounds(
    drafter: TinyDrafter,
    target: nn.Module,
    text: list[int],
    anchor: int,
    produced: list[int],
    sizes: list[int],
) -> list[list[int]]:
    """The drafts of every round of a finished text: round i drafts ``sizes[i]``, commits ``produced[i]``."""
    states = target(torch.tensor([text]), output_hidden_states=True).hidden_states
    taps = torch.cat([states[i + 1] for i in drafter.pair.target_layer_ids], dim=-1)
    drafts = []
    for step, size in zip(produced, sizes, strict=True):
        block = torch.tensor([[text[anchor]] + [drafter.pair.mask_token_id] * size])
        hidden = drafter(target.get_input_embeddings()(block), taps[:, :anchor])[:, 1:]
        drafts.append(target.get_output_embeddings()(hidden)[0].argmax(-1).tolist())
        anchor += step
    return drafts
