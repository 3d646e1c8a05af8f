"""z-lab's format: a Hugging Face config of the draft layers with a ``dflash_config`` object inside.

SpecForge and modelopt write the same layout; :func:`read_layout` is shared with ``formats.modelopt``.
Published files are inconsistent about what is nested, so everything is looked for in ``dflash_config`` first
and at top level second, as z-lab's own reader does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from draftproof.drafters.formats import layout
from draftproof.drafters.formats.fields import Fields
from draftproof.drafters.spec import DrafterSpec
from draftproof.drafters.values import MAX_TAP
from draftproof.errors import SpecError

DEFAULT_BLOCK = 16
Window = Callable[[Fields, list[bool]], tuple[Sequence[bool], int | None]]


def build_target_layer_ids(num_target_layers: int, count: int) -> list[int]:
    """The 0-based layers a drafter reads when its file does not say: evenly spread from 1 to n - 3."""
    if count == 1:
        return [num_target_layers // 2]
    step = (num_target_layers - 4) / (count - 1)
    return [round(1 + i * step) for i in range(count)]


def read(config: Mapping[str, Any]) -> DrafterSpec:
    """The drafter that a z-lab ``config.json`` describes."""
    return read_layout(config, "z-lab", plain_window)


def plain_window(fields: Fields, slides: list[bool]) -> tuple[Sequence[bool], int | None]:
    """``layer_types`` decides, ``sliding_window`` is the width."""
    return slides, fields.opt_integer("sliding_window")


def read_layout(config: Mapping[str, Any], source_format: str, window: Window) -> DrafterSpec:
    """Shared reader; ``window`` may change which layers slide and where the width comes from."""
    fields = Fields.of(config, nested="dflash_config")
    architectures = fields.texts("architectures")
    sizes = layout.decoder_sizes(fields)
    found = layout.extras(fields)
    num_target_layers = fields.opt_integer("num_target_layers")
    slides, width = window(fields, layout.sliding_layers(fields, sizes["num_layers"], through_hf=True))
    given = {
        **sizes,
        **found,
        **layout.special_tokens(fields),
        "source_format": source_format,
        "architectures": architectures,
        "version": layout.version_of(architectures, found),
        "layers": layout.make_layers(slides, width, _causality(fields)),
        "num_target_layers": num_target_layers,
        "tap_layers": _taps(fields, num_target_layers, sizes["num_layers"]),
        "block_size": layout.block_size(fields, DEFAULT_BLOCK, "dspark_block_size"),
        "mask_token_id": fields.integer(layout.pick(fields, "mask_token_id", "dspark_noise_token_id")),
        "draft_vocab_size": layout.reduced(fields.opt_integer("draft_vocab_size"), sizes["vocab_size"]),
        "target_hidden_size": fields.opt_integer("target_hidden_size"),
        "sample_from_anchor": _from_anchor(fields, found["projector"]),
    }
    return DrafterSpec(**given, unknown_keys=tuple(fields.unknown()), warnings=tuple(fields.warnings))


def _causality(fields: Fields) -> Callable[[bool], bool]:
    """``is_causal`` speaks for all layers, then ``dflash_config.causal``; else sliding layers are causal."""
    top, nested = fields.opt_boolean("is_causal"), fields.opt_boolean("causal")
    forced = top if top is not None else nested
    return lambda slides: slides if forced is None else forced


def _from_anchor(fields: Fields, projector: str | None) -> bool:
    """DSpark samples from the anchor unless told otherwise; DFlash never does by itself."""
    stated = fields.opt_boolean("sample_from_anchor")
    return projector == "dspark" if stated is None else stated


def _taps(fields: Fields, num_target_layers: int | None, num_layers: int) -> tuple[int, ...]:
    """``target_layer_ids`` count layer outputs from 0, so the hidden-states index is one more."""
    last = (num_target_layers if num_target_layers is not None else MAX_TAP) - 1
    known = "" if num_target_layers is None else f" (num_target_layers={num_target_layers})"
    key = layout.pick(fields, "target_layer_ids", "dspark_target_layer_ids")
    ids = layout.layer_ids(fields, key, f"0 to {last}{known}", 0, last)
    if ids is None:
        if num_target_layers is None:
            raise SpecError(
                "target_layer_ids is missing: it belongs in dflash_config, or give num_target_layers "
                "to have the layers spread evenly"
            )
        spread = build_target_layer_ids(num_target_layers, num_layers)
        if len(set(spread)) != len(spread) or not 0 <= min(spread) <= max(spread) <= last:
            raise SpecError(
                f"target_layer_ids is missing, and num_target_layers={num_target_layers} is too few "
                f"to spread {num_layers} of them"
            )
        fields.warn(f"no target_layer_ids in the config: {spread}, evenly spread, is assumed")
        ids = tuple(spread)
    return tuple(i + 1 for i in ids)
