"""The drafter as a trainable module: the arithmetic of ``draftproof.drafters.dflash`` over many blocks at once.

Parameters carry the names of the checkpoint format, so a state dict is a checkpoint. A test holds this module to
the engine's drafts on the same context.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from draftproof.drafters.dflash import rope_frequencies
from draftproof.drafters.spec import DrafterSpec
from draftproof.train.masks import Visibility, batch_masks


@dataclass(frozen=True)
class Blocks:
    """S sequences with n blocks of R rows each. ``taps`` [S, T, k × Ht] padded; ``anchors`` [S, n] positions;
    ``tokens`` [S, n] the anchors' ids. Rows of a block stand at anchor, anchor + 1, …"""

    taps: Tensor
    anchors: Tensor
    tokens: Tensor
    rows: int

    @property
    def positions(self) -> Tensor:
        """[S, n, R] of every row."""
        return self.anchors[..., None] + torch.arange(self.rows, device=self.anchors.device)


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight, self.eps)


class Rotary:
    """Half-rotation tables [P, rotary / 2] of all positions, made once."""

    def __init__(self, spec: DrafterSpec) -> None:
        inv_freq, self.scaling = rope_frequencies(spec)
        angles = torch.arange(spec.max_position_embeddings).float()[:, None] * inv_freq[None]
        self.cos, self.sin = angles.cos() * self.scaling, angles.sin() * self.scaling

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        """x [..., heads, D] at ``positions`` [...]."""
        if self.cos.device != x.device:
            self.cos, self.sin = self.cos.to(x.device), self.sin.to(x.device)
        cos, sin = self.cos[positions][..., None, :], self.sin[positions][..., None, :]
        half = cos.shape[-1]
        first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


class Attention(nn.Module):
    def __init__(self, spec: DrafterSpec, rotary: Rotary) -> None:
        super().__init__()
        self.heads, self.kv, self.dim = spec.num_heads, spec.num_kv_heads, spec.head_dim
        bias = spec.attention_bias
        self.q_proj = nn.Linear(spec.hidden_size, self.heads * self.dim, bias=bias)
        self.k_proj = nn.Linear(spec.hidden_size, self.kv * self.dim, bias=bias)
        self.v_proj = nn.Linear(spec.hidden_size, self.kv * self.dim, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.dim, spec.hidden_size, bias=bias)
        self.q_norm = RMSNorm(self.dim, spec.rms_norm_eps)
        self.k_norm = RMSNorm(self.dim, spec.rms_norm_eps)
        self.rotary = rotary

    def keys_values(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """x [..., H] → keys and values [..., kv, D]; used for context and block rows alike."""
        key = self.k_norm(self.k_proj(x).unflatten(-1, (self.kv, self.dim)))
        return self.rotary(key, positions), self.v_proj(x).unflatten(-1, (self.kv, self.dim))

    def forward(self, x: Tensor, context: Tensor, at: Tensor, masks: tuple[Tensor, Tensor]) -> Tensor:
        """x [S, n, R, H] block rows at positions ``at``; context [S, T, H]."""
        s, n, r, _ = x.shape
        length, groups = context.shape[1], self.heads // self.kv
        query = self.rotary(self.q_norm(self.q_proj(x).unflatten(-1, (self.heads, self.dim))), at)
        ctx_k, ctx_v = self.keys_values(context, torch.arange(length, device=x.device).expand(s, length))
        own_k, own_v = self.keys_values(x, at)
        kind = own_v.dtype
        # [S, kv, groups, n, R, D]: query heads beside the key head they share
        q = query.view(s, n, r, self.kv, groups, self.dim).permute(0, 3, 4, 1, 2, 5).to(kind)
        k, v = ctx_k.permute(0, 2, 3, 1).to(kind), ctx_v.permute(0, 2, 1, 3)
        bk = own_k.permute(0, 3, 1, 4, 2)[:, :, None].to(kind)  # [S, kv, 1, n, D, R]
        bv = own_v.permute(0, 3, 1, 2, 4)[:, :, None]
        far = (q.reshape(s, self.kv, -1, self.dim) @ k).view(s, self.kv, groups, n, r, length)
        near = q @ bk
        scores = torch.cat([far + masks[0], near + masks[1]], dim=-1)
        weights = torch.softmax(scores.float() * self.dim**-0.5, dim=-1).to(kind)
        out = (weights[..., :length].reshape(s, self.kv, -1, length) @ v).view(q.shape) + weights[..., length:] @ bv
        return self.o_proj(out.permute(0, 3, 4, 1, 2, 5).reshape(s, n, r, -1))


class Mlp(nn.Module):
    def __init__(self, spec: DrafterSpec) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(spec.hidden_size, spec.intermediate_size, bias=False)
        self.up_proj = nn.Linear(spec.hidden_size, spec.intermediate_size, bias=False)
        self.down_proj = nn.Linear(spec.intermediate_size, spec.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, spec: DrafterSpec, rotary: Rotary) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(spec.hidden_size, spec.rms_norm_eps)
        self.self_attn = Attention(spec, rotary)
        self.post_attention_layernorm = RMSNorm(spec.hidden_size, spec.rms_norm_eps)
        self.mlp = Mlp(spec)

    def forward(self, x: Tensor, context: Tensor, at: Tensor, masks: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), context, at, masks)
        return x + self.mlp(self.post_attention_layernorm(x))


class DrafterModule(nn.Module):
    """``embedding`` [V, H] is the target's and stays as it is; so does its output head, which is applied outside."""

    def __init__(self, spec: DrafterSpec, embedding: Tensor) -> None:
        super().__init__()
        self.spec = spec
        self.fc = nn.Linear(spec.fc_in, spec.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(spec.hidden_size, spec.rms_norm_eps)
        rotary = Rotary(spec)
        self.layers = nn.ModuleList(Layer(spec, rotary) for _ in range(spec.num_layers))
        self.norm = RMSNorm(spec.hidden_size, spec.rms_norm_eps)
        self.kinds = [Visibility.of(spec, i) for i in range(spec.num_layers)]
        self.embedding: Tensor
        self.register_buffer("embedding", embedding, persistent=False)

    def forward(self, blocks: Blocks) -> Tensor:
        """Final-normed hidden rows of the drafted slots [S, n, R - 1, H]."""
        context = self.hidden_norm(self.fc(blocks.taps.to(self.fc.weight.dtype)))
        kinds = {kind: self._masks(blocks, kind) for kind in set(self.kinds)}
        x, at = self._inputs(blocks), blocks.positions
        for layer, kind in zip(self.layers, self.kinds, strict=True):
            x = layer(x, context, at, kinds[kind])
        return self.norm(x[:, :, 1:])

    def _masks(self, blocks: Blocks, kind: Visibility) -> tuple[Tensor, Tensor]:
        length = blocks.taps.shape[1]
        device = blocks.taps.device
        far, near = batch_masks(blocks.anchors.cpu(), blocks.rows, length, kind)
        return far[:, None, None].to(device), near[:, None, None].to(device)

    def _inputs(self, blocks: Blocks) -> Tensor:
        anchor = self.embedding[blocks.tokens].float()[..., None, :]
        mask = self.embedding[self.spec.mask_token_id].float().expand(*blocks.tokens.shape, blocks.rows - 1, -1)
        return torch.cat([anchor, mask], dim=2) * self.spec.input_embedding_scale
