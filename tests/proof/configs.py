"""Small drafter and target configs of every layout, for tests of the proof half."""

from __future__ import annotations

import copy
from typing import Any

ZLAB: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "block_size": 8,
    "num_target_layers": 12,
    "dtype": "bfloat16",
    "eos_token_id": 2,
    "dflash_config": {"target_layer_ids": [1, 5, 9], "mask_token_id": 500},
}
TARGET: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "num_hidden_layers": 12,
    "vocab_size": 512,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "rope_theta": 1000000.0,
}
SPECULATORS: dict[str, Any] = {
    "architectures": ["DFlashSpeculator"],
    "speculators_model_type": "dflash",
    "speculators_version": "0.9.0",
    "block_size": 8,
    "draft_vocab_size": 512,
    "aux_hidden_state_layer_ids": [2, 6, 10],
    "mask_token_id": 500,
    "sliding_window_non_causal": False,
    "speculators_config": {
        "algorithm": "dflash",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 7}],
        "verifier": {"name_or_path": "Qwen/Qwen3-8B", "architectures": ["Qwen3ForCausalLM"]},
    },
    "transformer_layer_config": {
        key: ZLAB[key]
        for key in (
            "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta",
        )
    },
}  # fmt: skip


def zlab(**changes: Any) -> dict[str, Any]:
    return changed(ZLAB, changes)


def sliding(full: int = 1, **changes: Any) -> dict[str, Any]:
    """One sliding layer before ``full`` full ones."""
    types = ["sliding_attention", *["full_attention"] * full]
    windows = {"layer_types": types, "num_hidden_layers": 1 + full, "sliding_window": 256, "use_sliding_window": True}
    return changed(ZLAB, {**windows, **changes})


def speculators(**changes: Any) -> dict[str, Any]:
    return changed(SPECULATORS, changes)


def changed(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with other values; None removes a key, a dotted name ("dflash_config__mask_token_id") goes inside."""
    found = copy.deepcopy(config)
    for name, value in changes.items():
        *outer, last = name.split("__")
        place = found
        for key in outer:
            place = place[key]
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return found
