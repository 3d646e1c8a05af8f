"""The DFlash drafter: one forward pass over [anchor, mask × N] proposes N tokens at their own positions.

Source: "DFlash: Block Diffusion for Flash Speculative Decoding", arXiv 2602.06036. Keys and values of the
context are made from the target's taps of committed tokens (``fc``, then ``hidden_norm``, then each layer's
k_proj/k_norm/RoPE and v_proj, without input norm) and live in the engine's pool; the block's own keys and values
use the slots after them and are overwritten at the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof import native
from draftproof.drafters.base import CommittedRows, Draft, DraftRequest
from draftproof.drafters.decoder import TorchDecoder, rms_norm
from draftproof.drafters.spec import DrafterSpec
from draftproof.engine.memory import KVShape
from draftproof.engine.plan import build_block_plan
from draftproof.engine.pool import KVPool
from draftproof.errors import CapabilityError
from draftproof.native import LayerWeights, NativeDecoder, PackedLinear, RowPlan
from draftproof.targets.base import Target


@dataclass
class DFlashWeights:
    """Tensors of a checkpoint, on the target's device and in its dtype. ``head`` None: the target's is used.

    ``draft_to_target`` [draft_vocab] maps a reduced vocabulary to target ids. ``mask_embedding`` [H] replaces
    the mask token's row of the embedding table.
    """

    fc: Tensor
    hidden_norm: Tensor
    norm: Tensor
    layers: list[LayerWeights]
    head: Tensor | None = None
    embedding: Tensor | None = None  # [V, H]; None: the target's is used
    draft_to_target: Tensor | None = None
    mask_embedding: Tensor | None = None


class DFlashDrafter:
    """Runs a :class:`DrafterSpec` with its weights beside a target."""

    def __init__(
        self,
        spec: DrafterSpec,
        weights: DFlashWeights,
        target: Target,
        *,
        num_draft_tokens: int | None = None,
    ) -> None:
        missing = spec.unsupported()
        if missing:
            raise CapabilityError(missing[0])
        self.name = "dflash"
        self.spec = spec
        self.weights = weights
        self.tap_layers = spec.tap_layers
        self.num_draft_tokens = num_draft_tokens or spec.num_draft_tokens
        self.max_position = spec.max_position_embeddings
        self.kv_shapes = [
            KVShape(spec.num_kv_heads, spec.head_dim, spec.head_dim, window=spec.reach(i))
            for i in range(spec.num_layers)
        ]
        self._target = target
        self._native = (
            target.info.device.type == "cpu"
            and target.info.dtype in (torch.float32, torch.bfloat16)
            and target.backend == "native"
            and native.available()
        )
        self._decoder = self._make_decoder(target)
        self._fc = PackedLinear(weights.fc) if self._native else None
        self._own_head = PackedLinear(weights.head) if self._native and weights.head is not None else None
        self._mask_row = self._embed_mask()
        self._vocabulary, self._ascending = weights.draft_to_target, None
        if self._vocabulary is not None and not bool((self._vocabulary.diff() > 0).all()):
            self._vocabulary, self._ascending = self._vocabulary.sort()

    def _make_decoder(self, target: Target) -> TorchDecoder | NativeDecoder:
        inv_freq, scaling = rope_frequencies(self.spec)
        make = NativeDecoder if self._native else TorchDecoder
        return make(
            self.weights.layers,
            hidden_size=self.spec.hidden_size,
            num_heads=self.spec.num_heads,
            num_kv_heads=self.spec.num_kv_heads,
            head_dim=self.spec.head_dim,
            rms_eps=self.spec.rms_norm_eps,
            inv_freq=inv_freq.to(target.info.device),
            rope_scaling=scaling,
            attn_scale=self.spec.head_dim**-0.5,
            final_norm=self.weights.norm,
            dtype=target.info.dtype,
        )

    # -- context ------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def observe(self, pool: KVPool, committed: Sequence[CommittedRows], taps: Tensor | None) -> None:
        rows: list[int] = []
        seqs: list[int] = []
        positions: list[int] = []
        for part in committed:
            rows += list(part.rows)
            seqs += [part.seq] * len(part.rows)
            positions += range(part.start, part.start + len(part.rows))
        if not rows or taps is None:
            return
        device = taps.device
        place = torch.tensor(positions, dtype=torch.int32, device=device)
        slots = pool.table[torch.tensor(seqs, device=device), place.long()]
        chosen = taps if rows == list(range(len(taps))) else taps[torch.tensor(rows, device=device)]
        features = self.context_features(chosen)
        self._decoder.append_context(features, place, slots, pool.drafter_kv)

    def context_features(self, taps: Tensor) -> Tensor:
        """Concatenated taps [R, k × Ht] → the input [R, H] of every layer's context keys and values."""
        if self._fc is not None:
            return native.rms_norm(self._fc(taps), self.weights.hidden_norm, self.spec.rms_norm_eps)
        fused = F.linear(taps.to(self.weights.fc.dtype), self.weights.fc)
        return rms_norm(fused, self.weights.hidden_norm, self.spec.rms_norm_eps)

    # -- block --------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def propose(self, pool: KVPool, requests: Sequence[DraftRequest]) -> list[Draft]:
        asked = [r for r in requests if r.count > 0]
        if not asked:
            return [Draft() for _ in requests]
        hidden, _ = self._decoder.forward(self.block_input(asked), self.block_plan(pool, asked), pool.drafter_kv)
        drafted = [first + k for first, r in _starts(asked) for k in range(1, r.count + 1)]
        logits = self.logits(hidden[1:] if len(asked) == 1 else hidden[torch.tensor(drafted, device=hidden.device)])
        parts = iter(torch.split(logits, [r.count for r in asked]))
        return [Draft(next(parts), vocabulary=self._vocabulary) if r.count > 0 else Draft() for r in requests]

    def block_plan(self, pool: KVPool, requests: Sequence[DraftRequest]) -> RowPlan:
        """Where the blocks' rows stand and what they see."""
        blocks = [(r.seq, len(r.token_ids) - 1, r.count + 1) for r in requests]
        return build_block_plan(pool, blocks, window_from_anchor=self.spec.window_from_anchor)

    @property
    def _embedding(self) -> Tensor:
        return self._target.embedding if self.weights.embedding is None else self.weights.embedding

    def _embed_mask(self) -> Tensor:
        if self.weights.mask_embedding is not None:
            row = self.weights.mask_embedding
        else:
            row = self._embedding[self.spec.mask_token_id]
        return row.to(self._target.info.dtype) * self.spec.input_embedding_scale

    def block_input(self, requests: Sequence[DraftRequest]) -> Tensor:
        """[anchor, mask × N] per request. The table's bare rows are used: a target's own embedding scale is not."""
        device = self._target.info.device
        starts = _starts(requests)
        anchors = torch.tensor([r.token_ids[-1] for r in requests], device=device)
        rows = self._embedding[anchors] * self.spec.input_embedding_scale
        block = self._mask_row.repeat(sum(r.count + 1 for r in requests), 1)
        block[torch.tensor([first for first, _ in starts], device=device)] = rows
        return block.float() if self._native else block

    def logits(self, hidden: Tensor) -> Tensor:
        """Final-normed hidden rows → float32 logits over the drafter's vocabulary [R, C]."""
        if self._own_head is not None:
            out = self._own_head(hidden)
        elif self.weights.head is not None:
            out = F.linear(hidden.to(self.weights.head.dtype), self.weights.head).float()
        else:
            out = self._target.project(hidden)
        if self.spec.output_multiplier != 1.0:
            out = out * self.spec.output_multiplier
        if self.spec.final_logit_softcapping is not None:
            out = self.spec.final_logit_softcapping * torch.tanh(out / self.spec.final_logit_softcapping)
        if self._vocabulary is not None:
            return out[:, self._ascending] if self._ascending is not None else out
        return out[:, : self._target.info.vocab_size]  # padding rows of an own head are no tokens


def _starts(requests: Sequence[DraftRequest]) -> list[tuple[int, DraftRequest]]:
    """First row of each request's block."""
    starts, row = [], 0
    for request in requests:
        starts.append((row, request))
        row += request.count + 1
    return starts


def rope_frequencies(spec: DrafterSpec) -> tuple[Tensor, float]:
    """Inverse frequencies [rotary_dim / 2] and the attention factor, by transformers' own RoPE initialisers."""
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    if spec.rope.rope_type in ("dynamic", "longrope"):
        raise CapabilityError(f"rope_type={spec.rope.rope_type!r} changes with the length, which drafters here cannot")
    rotary = int(spec.head_dim * spec.rope.partial_rotary_factor)
    config = Qwen3Config(
        hidden_size=spec.hidden_size,
        num_attention_heads=spec.num_heads,
        head_dim=rotary,
        max_position_embeddings=spec.max_position_embeddings,
        rope_parameters={"rope_type": spec.rope.rope_type, "rope_theta": spec.rope.theta} | dict(spec.rope.scaling),
    )
    embedding = Qwen3RotaryEmbedding(config)
    return embedding.inv_freq.float(), float(embedding.attention_scaling)
