"""Llama-type targets (Llama, Mistral, Qwen2, Qwen3) run by the compiled decoder, one call per pass.

Every row's result is the same bits whatever else is in the pass, so plain, chain, tree and batched decoding
agree exactly in bfloat16 too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from draftproof import native
from draftproof.engine.memory import KVShape
from draftproof.engine.plan import Pass
from draftproof.native import LayerKV, LayerWeights, NativeDecoder, PackedLinear
from draftproof.targets.base import Capabilities
from draftproof.targets.huggingface import target_info

FAMILIES = {"llama", "mistral", "qwen2", "qwen3"}
ROPE_TYPES = {"default", "linear", "llama3", "yarn"}


def why_not_native(model: Any, config: Any) -> str:
    """The reason the compiled decoder cannot run this model, or an empty string."""
    dtype = model.get_input_embeddings().weight.dtype
    if model.device.type != "cpu":
        return f"compiled passes are for CPUs, the model is on {model.device.type}"
    if config.model_type not in FAMILIES:
        return f"no compiled pass for the {config.model_type} family"
    if dtype not in (torch.float32, torch.bfloat16):
        return f"compiled passes are for float32 and bfloat16, not {dtype}"
    if config.hidden_act != "silu" or getattr(config, "mlp_bias", False):
        return "its MLP is not a plain SwiGLU"
    rope = config.rope_parameters or {}
    if rope.get("rope_type", "default") not in ROPE_TYPES or rope.get("partial_rotary_factor", 1.0) != 1.0:
        return f"its RoPE ({rope.get('rope_type')}) changes with the length or turns only a part"
    if not native.available():
        return f"no compiled kernels ({native.reason()})"
    return ""


class NativeTarget:
    """Packs a transformers model's weights once and lets go of the modules."""

    backend = "native"
    invariant = True
    capabilities = Capabilities(row_invariant=True)

    def __init__(self, model: Any, config: Any) -> None:
        self.info = target_info(model, config)
        self.embedding: Tensor = model.get_input_embeddings().weight.detach()
        head = model.get_output_embeddings()
        self._head = PackedLinear(head.weight.detach(), head.bias)
        base = model.base_model
        attention = base.layers[0].self_attn
        layers = [layer_weights(layer, config) for layer in base.layers]
        self.kv_shapes: Sequence[KVShape] = [
            KVShape(config.num_key_value_heads, attention.head_dim, attention.head_dim, window=layer.window)
            for layer in layers
        ]
        self._decoder = NativeDecoder(
            layers,
            hidden_size=config.hidden_size,
            num_heads=config.num_attention_heads,
            num_kv_heads=config.num_key_value_heads,
            head_dim=attention.head_dim,
            rms_eps=config.rms_norm_eps,
            inv_freq=base.rotary_emb.inv_freq.float(),
            rope_scaling=float(base.rotary_emb.attention_scaling),
            attn_scale=attention.scaling,
            final_norm=base.norm.weight.detach(),
            dtype=self.info.dtype,
        )

    @torch.inference_mode()
    def forward(
        self,
        batch: Pass,
        kv: Sequence[LayerKV],
        *,
        taps: Sequence[int] = (),
        logits: Sequence[int] | Tensor = (),
    ) -> tuple[Tensor, Tensor | None]:
        x = self.embedding[batch.token_ids].float()
        hidden, tapped = self._decoder.forward(x, batch.plan, kv, taps)
        if not len(logits):
            return hidden.new_zeros(0, self.info.vocab_size), tapped
        if isinstance(logits, range) and logits == range(len(hidden)):
            return self._head(hidden), tapped
        return self._head(hidden[torch.as_tensor(logits, dtype=torch.long)].contiguous()), tapped

    def project(self, hidden: Tensor) -> Tensor:
        return self._head(hidden)

    def commit(self, seq: int, rows: int, kept: int) -> None:
        pass  # keys and values are addressed by position: what is not kept is overwritten

    def release(self, seq: int) -> None:
        pass


def layer_weights(layer: Any, config: Any) -> LayerWeights:
    """The tensors of one transformers decoder layer of Llama type."""
    attention, mlp = layer.self_attn, layer.mlp
    # Mistral reads its window from the configuration, Qwen's layers hold their own.
    everywhere = config.sliding_window if config.model_type == "mistral" else None

    def norm(name: str) -> Tensor | None:
        module = getattr(attention, name, None)
        return None if module is None else module.weight.detach()

    return LayerWeights(
        input_norm=layer.input_layernorm.weight.detach(),
        q=attention.q_proj.weight.detach(),
        k=attention.k_proj.weight.detach(),
        v=attention.v_proj.weight.detach(),
        o=attention.o_proj.weight.detach(),
        q_bias=attention.q_proj.bias,
        k_bias=attention.k_proj.bias,
        v_bias=attention.v_proj.bias,
        o_bias=attention.o_proj.bias,
        q_norm=norm("q_norm"),
        k_norm=norm("k_norm"),
        post_norm=layer.post_attention_layernorm.weight.detach(),
        gate=mlp.gate_proj.weight.detach(),
        up=mlp.up_proj.weight.detach(),
        down=mlp.down_proj.weight.detach(),
        window=getattr(attention, "sliding_window", everywhere),
    )
