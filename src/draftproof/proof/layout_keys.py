"""Names under which the layouts keep the same settings."""

from __future__ import annotations

DFLASH_FAMILY = ("dflash", "dflash2", "dspark")
TAP_KEYS = (
    "target_layer_ids",
    "aux_hidden_state_layer_ids",
    "eagle_aux_hidden_state_layer_ids",
    "dspark_target_layer_ids",
)
MASK_KEYS = ("mask_token_id", "mask_token", "dspark_noise_token_id")
# What a GGUF calls the keys of a config.json (llama.cpp's converter, architecture "dflash").
GGUF_NAMES: dict[str, tuple[str, ...]] = {
    "target_layer_ids": ("dflash.target_layers", "target_layers"),
    "mask_token_id": ("tokenizer.ggml.mask_token_id", "dflash.mask_token_id"),
    "block_size": ("dflash.block_size",),
    "n_extract": ("dflash.n_extract",),
    "vocab_size": ("dflash.vocab_size",),
    "hidden_size": ("dflash.embedding_length",),
    "intermediate_size": ("dflash.feed_forward_length",),
    "num_hidden_layers": ("dflash.block_count",),
    "num_attention_heads": ("dflash.attention.head_count",),
    "num_key_value_heads": ("dflash.attention.head_count_kv",),
    "head_dim": ("dflash.attention.key_length",),
    "max_position_embeddings": ("dflash.context_length",),
    "rope_theta": ("dflash.rope.freq_base",),
    "sliding_window": ("dflash.attention.sliding_window",),
    "layer_types": ("dflash.attention.sliding_window_pattern",),
    "causal": ("dflash.attention.causal", "attention.causal"),
    "sample_from_anchor": ("dflash.sample_from_anchor",),
    "selector_rank": ("dflash.selector_rank",),
    "selector_top_k": ("dflash.selector_top_k",),
    "conv_kernel_size": ("dflash.conv_kernel_size",),
    "eos_token_id": ("tokenizer.ggml.eos_token_id",),
    "bos_token_id": ("tokenizer.ggml.bos_token_id",),
    "pad_token_id": ("tokenizer.ggml.padding_token_id",),
}
SPECULATORS_KEYS = ("speculators_model_type", "speculators_config", "aux_hidden_state_layer_ids")
ROPE_PLACES = ("rope_parameters", "rope_scaling")
