"""What all formats share: the decoder's sizes, attention kinds per layer, heads and DFlash2 extras."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from draftproof.drafters.formats.fields import Fields
from draftproof.drafters.formats.rope import read_rope
from draftproof.drafters.spec import LayerSpec
from draftproof.drafters.values import LIMITS, check_integer, show
from draftproof.errors import SpecError

LAYER_TYPES = ("full_attention", "sliding_attention")
_HF_HEAD_DIM = 128  # what a Qwen3 config means when it does not say
_HF_MAX_WINDOW_LAYERS = 28
# Settings of sequential heads; they are known, and a drafter that has such a head is reported as a whole.
_HEAD_SETTINGS = (
    "confidence_head_with_markov",
    "dspark_bonus_anchor",
    "dspark_draft_topk",
    "emb_dim",
    "enable_confidence_head",
    "gru_hidden_dim",
    "markov_head_type",
    "pure_draft_prefix_len",
    "use_confidence_head",
)
# Settings of a training run that some exporters leave in the file.
_TRAINING = (
    "auf",
    "ce_loss_alpha",
    "confidence_head_alpha",
    "l1_loss_alpha",
    "lambda_base_decay_ratio",
    "lambda_base_start",
    "loss_decay_gamma",
    "num_anchors",
)


def decoder_sizes(fields: Fields) -> dict[str, Any]:
    """Constructor arguments of DrafterSpec that describe an ordinary Qwen3-type decoder."""
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    kv_heads = fields.opt_integer("num_key_value_heads")
    if kv_heads is None:
        kv_heads = heads
        fields.warn(f"no num_key_value_heads in the config: as many as attention heads ({heads}) are assumed")
    eps = fields.opt_number("rms_norm_eps")
    if eps is None:
        eps = 1e-6
        fields.warn("no rms_norm_eps in the config: 1e-06 is assumed")
    return {
        "hidden_size": hidden,
        "num_layers": fields.integer("num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": _head_dim(fields, hidden, heads),
        "intermediate_size": fields.integer("intermediate_size"),
        "vocab_size": fields.integer("vocab_size"),
        "rms_norm_eps": eps,
        "hidden_act": fields.opt_text("hidden_act") or "silu",
        "attention_bias": bool(fields.opt_boolean("attention_bias")),
        "mlp_bias": bool(fields.opt_boolean("mlp_bias")),
        "max_position_embeddings": fields.opt_integer("max_position_embeddings") or 32768,
        "rope": read_rope(fields),
    }


def _head_dim(fields: Fields, hidden: int, heads: int) -> int:
    head_dim = fields.opt_integer("head_dim")
    if head_dim is not None:
        return head_dim
    if hidden % heads:
        raise SpecError(
            f"head_dim is missing, and hidden_size={hidden} is not a multiple of num_attention_heads={heads}"
        )
    if hidden // heads != _HF_HEAD_DIM:
        fields.warn(
            f"no head_dim in the config: hidden_size / num_attention_heads = {hidden // heads} is assumed "
            f"(an engine that loads it as a Hugging Face Qwen3 config assumes {_HF_HEAD_DIM})"
        )
    return hidden // heads


def sliding_layers(fields: Fields, num_layers: int, *, through_hf: bool) -> list[bool]:
    """Which layers slide: ``layer_types``, or Hugging Face's rule if that list is absent.

    ``through_hf``: other engines read this format through a Hugging Face config object, which forgets the
    window unless ``use_sliding_window`` is true.
    """
    use = fields.opt_boolean("use_sliding_window")
    first = fields.opt_integer("max_window_layers")
    found = fields.opt_list("layer_types")
    if found is None:
        if not use:
            return [False] * num_layers
        if first is None:
            fields.warn(f"use_sliding_window without max_window_layers: {_HF_MAX_WINDOW_LAYERS} is assumed")
            first = _HF_MAX_WINDOW_LAYERS
        return [i >= first for i in range(num_layers)]
    for kind in found.value:
        if kind not in LAYER_TYPES:
            raise SpecError(f"{found.name} holds {show(kind)}: allowed are {' and '.join(LAYER_TYPES)}")
    if len(found.value) != num_layers:
        raise SpecError(f"{found.name} has {len(found.value)} entries but num_hidden_layers={num_layers}")
    slides = [kind == "sliding_attention" for kind in found.value]
    if any(slides) and not use and through_hf:
        fields.warn(
            f"{found.name} has sliding layers but use_sliding_window={show(use)}: Hugging Face then drops "
            "sliding_window, and engines that read it from there refuse the drafter or run full attention"
        )
    return slides


def make_layers(slides: Sequence[bool], window: int | None, causal: Callable[[bool], bool]) -> tuple[LayerSpec, ...]:
    """``causal`` maps "this layer slides" to causality in the block. A missing window is the spec's error."""
    return tuple(LayerSpec(s, window if s else None, causal(s)) for s in slides)


def layer_ids(fields: Fields, key: str, allowed: str, lo: int, hi: int) -> tuple[int, ...] | None:
    """Distinct layer numbers in list order, None if absent; errors speak in the file's own unit."""
    found = fields.opt_list(key)
    if found is None:
        return None
    if not found.value:
        raise SpecError(f"{found.name}=[] is empty: a drafter reads at least one hidden state of the target")
    for i, entry in enumerate(found.value):
        if type(entry) is not int:
            raise SpecError(f"{found.name}[{i}]={show(entry)} must be a whole number")
        if not lo <= entry <= hi:
            raise SpecError(f"{found.name}[{i}]={show(entry)} is out of range: allowed are {allowed}")
        if entry in found.value[:i]:
            raise SpecError(f"{found.name} names layer {entry} twice: {show(found.value)}")
    return tuple(found.value)


def block_size(fields: Fields, default: int, *aliases: str) -> int:
    size = fields.opt_integer(pick(fields, "block_size", *aliases))
    if size is None:
        fields.warn(f"no block_size in the config: {default} is assumed")
        return default
    return size


def reduced(size: int | None, vocab_size: int) -> int | None:
    """A drafter's own vocabulary size, None if it is the target's."""
    return None if size == vocab_size else size


def pick(fields: Fields, key: str, *aliases: str) -> str:
    """``key``, or the first of its other spellings if the file has that one only."""
    return next((name for name in (key, *aliases) if fields.find(name) is not None), key)


def extras(fields: Fields) -> dict[str, Any]:
    """Scales, DFlash2 and sequential-head settings; absent ones keep the spec's defaults."""
    found: dict[str, Any] = {}
    for name in ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"):
        found[name] = fields.opt_integer(name)
    for name in ("input_embedding_scale", "output_multiplier"):
        value = fields.opt_number(name)
        found[name] = 1.0 if value is None else value
    for name in ("final_logit_softcapping", "attention_value_scale"):
        found[name] = fields.opt_number(name)
    fields.touch(*_HEAD_SETTINGS, *_TRAINING)
    quantization = fields.opt_object("quantization_config")
    if quantization is not None:
        found["quantization"] = show(str(quantization.get("quant_method", "method not named"))).strip("'\"")
    sinks = bool(fields.opt_boolean("attention_sink_bias"))
    return {**found, "projector": _projector(fields), "attention_sinks": sinks}


def _projector(fields: Fields) -> str | None:
    """The sequential head, from its own key or from settings and names only such drafters have."""
    named, shifted = fields.opt_text("projector_type"), fields.opt_boolean("shift_label")
    rank = fields.find("markov_rank")
    if named is not None and named != "dflash":  # "dflash" is how a plain block is spelled
        return named
    models = [str(n).lower() for n in (*fields.texts("architectures"), fields.opt_text("model_type"))]
    for head in ("dspark", "domino"):
        if any(head in model for model in models):
            return head
    if rank is not None and rank.value:
        return "dspark"
    return "domino" if shifted else None


def special_tokens(fields: Fields) -> dict[str, Any]:
    """EOS and padding ids, for the check that the mask token is none of them."""
    eos, pad = fields.find("eos_token_id"), fields.opt_integer("pad_token_id")
    ids = [] if eos is None else eos.value if isinstance(eos.value, list | tuple) else [eos.value]
    if eos is not None:
        ids = [check_integer(eos.name, i, 0, LIMITS["vocab_size"][1]) for i in ids]
    return {"eos_token_ids": tuple(ids), "pad_token_id": pad}


def version_of(architectures: Sequence[str], found: dict[str, Any]) -> int:
    """2 if the architecture or any of its settings is DFlash2's."""
    named = any(a.startswith("DFlash2") for a in architectures)
    return 2 if named or found["conv_kernel_size"] or found["selector_rank"] else 1
