"""modelopt's and NVIDIA's variant of the z-lab layout.

It says "all layers slide" with ``dflash_config.use_swa`` and ``swa_window_size`` while ``layer_types`` may
list full attention only, and always states ``dflash_config.causal``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from draftproof.drafters.formats.fields import Fields
from draftproof.drafters.formats.zlab import plain_window, read_layout
from draftproof.drafters.spec import DrafterSpec

MARKS = frozenset({"use_swa", "swa_window_size", "causal"})


def looks_like(config: Mapping[str, Any]) -> bool:
    """True if ``dflash_config`` has a key only this exporter writes."""
    nested = config.get("dflash_config")
    return isinstance(nested, Mapping) and bool(MARKS & nested.keys())


def read(config: Mapping[str, Any]) -> DrafterSpec:
    """The drafter that a modelopt export describes."""
    return read_layout(config, "modelopt", _window)


def _window(fields: Fields, slides: list[bool]) -> tuple[Sequence[bool], int | None]:
    """``use_swa`` makes every layer slide, unless ``layer_types`` already names the ones that do."""
    use, own = fields.opt_boolean("use_swa"), fields.opt_integer("swa_window_size")
    layers, plain = plain_window(fields, slides)
    width = own if own is not None else plain
    if not use:
        if own is not None and not any(slides):
            fields.warn(f"swa_window_size={own} has no effect: use_swa is not true and no layer slides")
        return layers, width
    if own is not None and plain is not None and own != plain:
        fields.warn(f"swa_window_size={own} is used; sliding_window={plain} disagrees")
    if not any(slides):
        fields.warn(
            f"use_swa makes all layers slide (window {width}), which layer_types does not say: "
            "engines that read layer_types only run full attention"
        )
        return [True] * len(slides), width
    return layers, width
