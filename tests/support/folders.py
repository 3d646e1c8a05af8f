"""Checkpoints on disk, as users have them: a target folder and drafters in the formats of the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from draftproof.drafters.dflash import DFlashWeights
from draftproof.drafters.spec import DrafterSpec
from support.tiny import VOCAB, tiny_model
from support.tokenizer import tiny_tokenizer


def save_target(folder: Path, family: str = "llama") -> Path:
    tiny_model(family).save_pretrained(folder)
    tiny_tokenizer(VOCAB).save_pretrained(folder)
    return folder


def tensors_of(weights: DFlashWeights) -> dict[str, torch.Tensor]:
    """Named as every format of the field names them."""
    names = (
        {
            "input_norm": "input_layernorm",
            "post_norm": "post_attention_layernorm",
            "gate": "mlp.gate_proj",
            "up": "mlp.up_proj",
            "down": "mlp.down_proj",
        }
        | {n: f"self_attn.{n}_proj" for n in "qkvo"}
        | {n: f"self_attn.{n}" for n in ("q_norm", "k_norm")}
    )
    out = {"fc.weight": weights.fc, "hidden_norm.weight": weights.hidden_norm, "norm.weight": weights.norm}
    for i, layer in enumerate(weights.layers):
        out |= {f"layers.{i}.{full}.weight": getattr(layer, short) for short, full in names.items()}
    return out


def zlab_config(spec: DrafterSpec) -> dict[str, Any]:
    window = next((layer.window for layer in spec.layers if layer.sliding), None)
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": spec.hidden_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "intermediate_size": spec.intermediate_size,
        "hidden_act": "silu",
        "rms_norm_eps": spec.rms_norm_eps,
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.max_position_embeddings,
        "attention_bias": False,
        "layer_types": ["sliding_attention" if layer.sliding else "full_attention" for layer in spec.layers],
        "sliding_window": window,
        "use_sliding_window": window is not None,
        "rope_parameters": {"rope_type": "default", "rope_theta": spec.rope.theta},
        "block_size": spec.block_size,
        "num_target_layers": spec.num_target_layers,
        "dflash_config": {
            "target_layer_ids": [tap - 1 for tap in spec.tap_layers],
            "mask_token_id": spec.mask_token_id,
        },
    }


def save_zlab(folder: Path, spec: DrafterSpec, weights: DFlashWeights) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(zlab_config(spec)))
    save_file(tensors_of(weights), folder / "model.safetensors")
    return folder


def save_speculators(folder: Path, spec: DrafterSpec, weights: DFlashWeights, keep: list[int] | None = None) -> Path:
    """``keep``: target ids of a reduced vocabulary; its head is the target's rows (given in ``weights.head``)."""
    folder.mkdir(parents=True, exist_ok=True)
    layer_config = {
        k: v
        for k, v in zlab_config(spec).items()
        if k not in ("architectures", "dflash_config", "block_size", "num_target_layers")
    }
    config = {
        "architectures": ["DFlashSpeculator"],
        "speculators_model_type": "dflash",
        "speculators_version": "0.9.0",
        "transformer_layer_config": layer_config,
        "draft_vocab_size": len(keep) if keep else spec.vocab_size,
        "block_size": spec.block_size,
        "aux_hidden_state_layer_ids": list(spec.tap_layers),
        "mask_token_id": spec.mask_token_id,
        "sliding_window_non_causal": False,
        "sample_from_anchor": False,
        "speculators_config": {
            "algorithm": "dflash",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": spec.block_size - 1}],
            "verifier": {"name_or_path": "tiny", "architectures": ["LlamaForCausalLM"]},
        },
    }
    (folder / "config.json").write_text(json.dumps(config))
    tensors = tensors_of(weights)
    if keep is not None:
        assert weights.head is not None
        ids = torch.tensor(keep)
        tensors |= {"lm_head.weight": weights.head, "d2t": ids - torch.arange(len(keep))}
        tensors["t2d"] = torch.zeros(spec.vocab_size, dtype=torch.bool).index_fill(0, ids, True)
    save_file(tensors, folder / "model.safetensors")
    return folder
