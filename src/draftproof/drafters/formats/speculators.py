"""vllm-project/speculators' format: draft layers under ``transformer_layer_config``, the rest at top level.

Three things differ from z-lab's: layer ids already are hidden-states indices, full layers are never causal,
and drafting from a reduced vocabulary is possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.drafters.formats import layout
from draftproof.drafters.formats.fields import Fields, Section
from draftproof.drafters.spec import DrafterSpec
from draftproof.drafters.values import MAX_TAP, show
from draftproof.errors import SpecError

ALGORITHMS = ("dflash", "dflash2", "dspark")
DEFAULT_BLOCK = 8
_DEFAULT_DRAFT_VOCAB = 32000
_NO_EFFECT = ("speculators_version",)


def looks_like(config: Mapping[str, Any]) -> bool:
    return "speculators_model_type" in config or "speculators_config" in config


def read(config: Mapping[str, Any]) -> DrafterSpec:
    """The drafter that a speculators ``config.json`` describes."""
    fields = Fields.of(config)
    algorithm = fields.opt_text("speculators_model_type")
    if algorithm not in ALGORITHMS:
        raise SpecError(
            f"speculators_model_type={show(algorithm)} is not a DFlash drafter: allowed are {', '.join(ALGORITHMS)}"
        )
    fields.touch(*_NO_EFFECT)
    decoder = _decoder(fields)
    architectures = fields.texts("architectures")
    sizes, found = layout.decoder_sizes(decoder), layout.extras(fields)
    found["projector"] = found["projector"] or ("dspark" if algorithm == "dspark" else None)
    layers = _layers(fields, decoder, sizes["num_layers"], algorithm)
    given = {
        **sizes,
        **found,
        **layout.special_tokens(decoder),
        **_verifier(fields),
        "source_format": "speculators",
        "architectures": architectures,
        "version": 2 if algorithm == "dflash2" else layout.version_of(architectures, found),
        "layers": layers,
        # Its trainer lets the whole block see the W tokens before the anchor; other formats slide row by row.
        "window_from_anchor": any(layer.sliding for layer in layers),
        "tap_layers": _taps(fields),
        "block_size": layout.block_size(fields, DEFAULT_BLOCK),
        "mask_token_id": fields.integer("mask_token_id"),
        "target_hidden_size": fields.opt_integer("target_hidden_size"),
        "draft_vocab_size": _draft_vocab(fields, sizes["vocab_size"]),
        "sample_from_anchor": _flag(fields, "sample_from_anchor", algorithm == "dspark"),
    }
    _check_proposal(fields, given["block_size"], given["sample_from_anchor"])
    return DrafterSpec(
        **given,
        unknown_keys=(*fields.unknown(), *decoder.unknown()),
        warnings=(*fields.warnings, *decoder.warnings),
    )


def _decoder(fields: Fields) -> Fields:
    inner = fields.opt_object("transformer_layer_config")
    if inner is None:
        raise SpecError("transformer_layer_config is missing: a speculators config describes its layers there")
    decoder = Fields(Section("transformer_layer_config", inner))
    decoder.touch("architectures")  # the target's, copied along
    return decoder


def _flag(fields: Fields, key: str, default: bool) -> bool:
    value = fields.opt_boolean(key)
    return default if value is None else value


def _layers(fields: Fields, decoder: Fields, num_layers: int, algorithm: str) -> tuple[Any, ...]:
    slides = layout.sliding_layers(decoder, num_layers, through_hf=False)
    symmetric = _flag(fields, "sliding_window_non_causal", algorithm == "dflash2")
    return layout.make_layers(slides, decoder.opt_integer("sliding_window"), lambda s: s and not symmetric)


def _taps(fields: Fields) -> tuple[int, ...]:
    ids = layout.layer_ids(fields, "aux_hidden_state_layer_ids", f"0 to {MAX_TAP}", 0, MAX_TAP)
    if ids is None:
        raise SpecError(
            "aux_hidden_state_layer_ids is missing: the config must list the hidden states it was trained on"
        )
    return ids


def _draft_vocab(fields: Fields, vocab_size: int) -> int | None:
    """Size of a reduced vocabulary; None if drafts come from the whole one."""
    size = fields.opt_integer("draft_vocab_size")
    if size is None:
        size = min(_DEFAULT_DRAFT_VOCAB, vocab_size)
        fields.warn(f"no draft_vocab_size in the config: {size} is assumed")
    return layout.reduced(size, vocab_size)


def _verifier(fields: Fields) -> dict[str, Any]:
    """Which target the drafter was trained for, as far as the file says."""
    outer = fields.opt_object("speculators_config")
    inner = (outer or {}).get("verifier")
    if inner is None:
        fields.warn("speculators_config.verifier is missing: the target this drafter belongs to is not named")
        return {}
    if not isinstance(inner, Mapping):
        raise SpecError(f"speculators_config.verifier={show(inner)} must be an object")
    verifier = Fields(Section("speculators_config.verifier", inner))
    return {
        "target_name": verifier.opt_text("name_or_path"),
        "target_architectures": verifier.texts("architectures"),
    }


def _check_proposal(fields: Fields, block: int, from_anchor: bool) -> None:
    """The number of tokens to draft is stated a second time; engines use it as their default."""
    methods = (fields.opt_object("speculators_config") or {}).get("proposal_methods")
    if not isinstance(methods, list) or not methods or not isinstance(methods[0], Mapping):
        return
    stated, natural = methods[0].get("speculative_tokens"), block if from_anchor else block - 1
    if stated is not None and stated != natural:
        fields.warn(
            f"speculators_config.proposal_methods[0].speculative_tokens={show(stated)}, but "
            f"block_size={block} drafts {natural} tokens"
        )
