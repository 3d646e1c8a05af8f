"""Writing a drafter's configuration, complete: every setting stands where each reader of the field looks for it.

``read_spec(config)`` of what is written here gives the spec back, and whatever a format cannot express is refused
with a sentence instead of being written as something else.
"""

from __future__ import annotations

from typing import Any

from draftproof.drafters.spec import DrafterSpec
from draftproof.errors import SpecError, UsageError

FORMATS = ("zlab", "speculators")
_SPECULATORS_VERSION = "0.9.0"


def write_config(spec: DrafterSpec, form: str, *, dtype: str = "bfloat16") -> dict[str, Any]:
    """The ``config.json`` of ``spec`` in format ``form``: ``zlab`` or ``speculators``."""
    if form not in FORMATS:
        raise UsageError(f"format={form!r} is unknown: use {' or '.join(FORMATS)}")
    _check(spec)
    return zlab_config(spec, dtype) if form == "zlab" else speculators_config(spec, dtype)


def _check(spec: DrafterSpec) -> None:
    if spec.projector is not None or spec.attention_sinks or spec.quantization is not None:
        raise SpecError("drafters with a sequential head, attention sinks or quantised weights are not written yet")
    windows = {layer.window for layer in spec.layers if layer.sliding}
    if len(windows) > 1:
        raise SpecError(f"sliding layers of different windows ({sorted(map(str, windows))}) have no format to go into")


def _decoder(spec: DrafterSpec, dtype: str) -> dict[str, Any]:
    """The part every format shares: an ordinary Qwen3 configuration of the draft layers."""
    window = next((layer.window for layer in spec.layers if layer.sliding), None)
    rope: dict[str, Any] = {"rope_type": spec.rope.rope_type, "rope_theta": spec.rope.theta, **spec.rope.scaling}
    if spec.rope.partial_rotary_factor != 1.0:
        rope["partial_rotary_factor"] = spec.rope.partial_rotary_factor
    return {
        "model_type": "qwen3",
        "hidden_size": spec.hidden_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "intermediate_size": spec.intermediate_size,
        "hidden_act": spec.hidden_act,
        "rms_norm_eps": spec.rms_norm_eps,
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.max_position_embeddings,
        "attention_bias": spec.attention_bias,
        "mlp_bias": spec.mlp_bias,
        "attention_dropout": 0.0,
        "layer_types": ["sliding_attention" if layer.sliding else "full_attention" for layer in spec.layers],
        "sliding_window": window,
        "use_sliding_window": window is not None,
        "rope_parameters": rope,
        "rope_theta": spec.rope.theta,
        "tie_word_embeddings": False,
        "dtype": dtype,
    }


def zlab_config(spec: DrafterSpec, dtype: str) -> dict[str, Any]:
    """z-lab's layout. Layer ids count outputs from 0; causality is one flag, or the rule "causal iff sliding"."""
    if min(spec.tap_layers) < 1:
        raise SpecError("tap 0 (the embeddings) has no layer id in z-lab's format; use speculators")
    nested: dict[str, Any] = {
        "target_layer_ids": [tap - 1 for tap in spec.tap_layers],
        "mask_token_id": spec.mask_token_id,
        "block_size": spec.block_size,
    }
    for name, neutral in (
        ("input_embedding_scale", 1.0),
        ("output_multiplier", 1.0),
        ("final_logit_softcapping", None),
    ):
        if getattr(spec, name) != neutral:
            nested[name] = getattr(spec, name)
    nested |= _dflash2(spec)
    config: dict[str, Any] = {"architectures": [f"DFlash{'' if spec.version == 1 else 2}DraftModel"]}
    config |= _decoder(spec, dtype) | {"block_size": spec.block_size, "dflash_config": nested}
    if spec.num_target_layers is not None:
        config["num_target_layers"] = spec.num_target_layers
    if spec.target_hidden_size != spec.hidden_size:
        config["target_hidden_size"] = spec.target_hidden_size
    if spec.draft_vocab_size is not None:
        config["draft_vocab_size"] = spec.draft_vocab_size
    causal = {layer.causal for layer in spec.layers}
    if len(causal) == 1:
        config["is_causal"] = causal.pop()
    elif any(layer.causal != layer.sliding for layer in spec.layers):
        raise SpecError("z-lab's format has one is_causal for all layers, or sliding layers causal and full ones not")
    return config


def speculators_config(spec: DrafterSpec, dtype: str) -> dict[str, Any]:
    """speculators' layout. Its full layers are never causal, its sliding layers all or none."""
    if any(layer.causal for layer in spec.layers if not layer.sliding):
        raise SpecError("speculators' format cannot say that a full layer is causal; use zlab")
    sliding = {layer.causal for layer in spec.layers if layer.sliding}
    if len(sliding) > 1:
        raise SpecError("speculators' format has one causality for all sliding layers; use zlab")
    for name, neutral in (
        ("input_embedding_scale", 1.0),
        ("output_multiplier", 1.0),
        ("final_logit_softcapping", None),
    ):
        if getattr(spec, name) != neutral:
            raise SpecError(f"speculators' format has no {name} ({getattr(spec, name)}); use zlab")
    kind = "dflash" if spec.version == 1 else "dflash2"
    return {
        "architectures": ["DFlashSpeculator" if spec.version == 1 else "DFlash2DraftModel"],
        "speculators_model_type": kind,
        "speculators_version": _SPECULATORS_VERSION,
        "transformer_layer_config": _decoder(spec, dtype),
        "draft_vocab_size": spec.draft_vocab_size or spec.vocab_size,
        "block_size": spec.block_size,
        "aux_hidden_state_layer_ids": list(spec.tap_layers),
        "mask_token_id": spec.mask_token_id,
        "target_hidden_size": spec.target_hidden_size,
        "sliding_window_non_causal": sliding == {False},
        "sample_from_anchor": spec.sample_from_anchor,
        **_dflash2(spec),
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {
                    "proposal_type": "greedy",
                    "speculative_tokens": spec.num_draft_tokens,
                    "accept_tolerance": 0.0,
                    "verifier_accept_k": 1,
                }
            ],
            "verifier": {
                "name_or_path": spec.target_name or "",
                "architectures": list(spec.target_architectures),
            },
        },
        "dtype": dtype,
    }


def _dflash2(spec: DrafterSpec) -> dict[str, Any]:
    names = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
    return {name: getattr(spec, name) for name in names if getattr(spec, name) is not None}


def notes(spec: DrafterSpec, form: str) -> list[str]:
    """What a reader of the written file will understand a little differently, one sentence each."""
    said: list[str] = []
    if any(layer.sliding for layer in spec.layers):
        if form == "speculators" and not spec.window_from_anchor:
            said.append(
                "speculators measures windows from the anchor: past the window, the later rows of a block see up to "
                "block_size tokens more than they were trained with"
            )
        if form == "zlab" and spec.window_from_anchor:
            said.append(
                "z-lab measures windows from each row: past the window, the later rows of a block see up to "
                "block_size tokens fewer than they were trained with"
            )
    return said
