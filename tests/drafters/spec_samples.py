"""Configurations for the tests: one small drafter in three formats, and published ones by their values."""

from __future__ import annotations

import copy
import json
import struct
from pathlib import Path
from typing import Any

from draftproof.drafters.spec import DrafterSpec
from draftproof.drafters.tensors import expected_tensors

ABSENT = object()

SMALL: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "attention_bias": False,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "sliding_window": 16,
    "use_sliding_window": True,
    "rope_theta": 10000.0,
    "block_size": 8,
    "num_target_layers": 12,
    "dflash_config": {"target_layer_ids": [1, 5, 9], "mask_token_id": 99},
}

SMALL_SPECULATORS: dict[str, Any] = {
    "architectures": ["DFlashSpeculator"],
    "speculators_model_type": "dflash",
    "speculators_version": "0.9.0",
    "transformer_layer_config": {
        k: v for k, v in SMALL.items() if k not in ("architectures", "block_size", "num_target_layers", "dflash_config")
    },
    "draft_vocab_size": 100,
    "block_size": 8,
    "aux_hidden_state_layer_ids": [2, 6, 10],
    "mask_token_id": 99,
    "target_hidden_size": None,
    "sliding_window_non_causal": False,
    "sample_from_anchor": False,
    "speculators_config": {
        "algorithm": "dflash",
        "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 7}],
        "verifier": {"name_or_path": "some/target", "architectures": ["LlamaForCausalLM"]},
    },
}

# modelopt's causality and window speak for all layers, so its twin in z-lab's format has uniform ones.
SMALL_UNIFORM: dict[str, Any] = {**SMALL, "layer_types": ["sliding_attention"] * 3, "is_causal": False}
SMALL_MODELOPT: dict[str, Any] = {
    **{k: v for k, v in SMALL.items() if k != "use_sliding_window"},
    "layer_types": ["full_attention"] * 3,
    "dflash_config": {
        "target_layer_ids": [1, 5, 9],
        "mask_token_id": 99,
        "use_swa": True,
        "swa_window_size": 16,
        "causal": False,
    },
}

QWEN3_4B: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 2560,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9728,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "attention_bias": False,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 5,
    "rope_theta": 1000000,
    "rope_scaling": None,
    "block_size": 16,
    "num_target_layers": 36,
    "eos_token_id": 151645,
    "torch_dtype": "bfloat16",
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
}

QWEN35_4B: dict[str, Any] = {
    **{k: v for k, v in QWEN3_4B.items() if k not in ("rope_theta", "rope_scaling", "block_size")},
    "num_hidden_layers": 6,
    "num_target_layers": 32,
    "vocab_size": 248320,
    "eos_token_id": 248046,
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    "sliding_window": 4096,
    "use_sliding_window": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000},
    "dflash_config": {
        "block_size": 16,
        "mask_token_id": 248077,
        "target_layer_ids": [1, 5, 9, 13, 17, 21, 25, 29],
    },
}

QWEN38_27B_DFLASH2: dict[str, Any] = {
    **QWEN35_4B,
    "architectures": ["DFlash2DraftModel"],
    "hidden_size": 5120,
    "num_hidden_layers": 5,
    "num_target_layers": 64,
    "is_causal": False,
    "layer_types": ["sliding_attention"] * 5,
    "sliding_window": 2048,
    "dflash_config": {
        "block_size": 8,
        "mask_token_id": 248077,
        "target_layer_ids": [5, 19, 33, 47, 61],
        "conv_kernel_size": 2,
        "conv_group_size": 16,
        "selector_rank": 256,
        "selector_top_k": 16,
    },
}

MIMO: dict[str, Any] = {
    **{k: v for k, v in QWEN3_4B.items() if k not in ("sliding_window", "use_sliding_window")},
    "hidden_size": 6144,
    "num_target_layers": 70,
    "dflash_config": {
        "mask_token_id": 151669,
        "target_layer_ids": [0, 15, 31, 47, 69],
        "use_swa": True,
        "swa_window_size": 1024,
        "attention_value_scale": 0.612,
        "attention_sink_bias": True,
        "partial_rotary_factor": 0.5,
    },
}


def changed(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy with dotted keys replaced (``a__b`` is ``a.b``), or removed where the value is ``ABSENT``."""
    result = copy.deepcopy(config)
    for path, value in changes.items():
        *parents, key = path.split("__")
        place = result
        for parent in parents:
            place = place[parent]
        if value is ABSENT:
            place.pop(key, None)
        else:
            place[key] = value
    return result


Tensors = dict[str, tuple[str, tuple[int, ...]]]
_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "I64": 8, "I32": 4, "BOOL": 1, "F8_E4M3": 1}


def tensors_of(spec: DrafterSpec, dtype: str = "BF16") -> Tensors:
    """All tensors the spec expects, as name → (type, shape)."""
    return {n: ("I64" if n == "d2t" else dtype, shape) for n, shape in expected_tensors(spec).items()}


def write_safetensors(path: Path, tensors: Tensors) -> Path:
    """A valid file full of zeros."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, (dtype, shape) in tensors.items():
        size = _BYTES[dtype]
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(position))
    return path
