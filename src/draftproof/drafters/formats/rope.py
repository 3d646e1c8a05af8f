"""RoPE settings of a raw configuration, old and new spelling.

transformers 5 writes one ``rope_parameters`` object; before it, ``rope_theta`` stood at top level beside
``rope_scaling``. Files in the wild have either or both, and an engine that reads only the flat value runs
with the wrong base without any error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.drafters.formats.fields import Fields, Found, printable
from draftproof.drafters.spec import RopeSpec
from draftproof.drafters.values import check_number, show
from draftproof.errors import SpecError

DEFAULT_THETA = 1_000_000.0
_ATTENTION_TYPES = frozenset({"full_attention", "sliding_attention"})
_NOT_SCALING = frozenset({"rope_theta", "rope_type", "type", "partial_rotary_factor"})
_NUMBERS = frozenset(
    {
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "factor",
        "high_freq_factor",
        "low_freq_factor",
        "original_max_position_embeddings",
    }
)
_LISTS = frozenset({"long_factor", "short_factor"})
_PASSED_ON = frozenset({"mscale", "mscale_all_dim", "truncate"})
# M-RoPE describes image positions of the target; a drafter's positions are one-dimensional.
_MROPE = frozenset({"mrope_section", "mrope_interleaved"})


def read_rope(fields: Fields) -> RopeSpec:
    """Base from ``rope_parameters``, then the flat ``rope_theta``, else a default that is warned about."""
    name, block = _scaling_block(fields)
    theta = _theta(fields, name, block)
    kind = block["rope_type"] if block.get("rope_type") is not None else block.get("type")
    kind = "default" if kind is None else kind
    if not isinstance(kind, str):
        raise SpecError(f"{name}.rope_type={show(kind)} must be text")
    if kind == "mrope" or _MROPE & block.keys():
        fields.warn(f"{name} describes M-RoPE; a drafter's positions are plain, so its sections are not used")
        kind = "default" if kind == "mrope" else kind
    scaling = {k: v for k, v in block.items() if k not in _NOT_SCALING | _MROPE and v is not None}
    for key, value in scaling.items():
        _check_setting(fields, f"{name}.{key}", key, value)
    partial = fields.opt_number("partial_rotary_factor", upto=1.0)
    inner = block.get("partial_rotary_factor")
    if partial is None and inner is not None:
        partial = check_number(f"{name}.partial_rotary_factor", inner, upto=1.0)
    return RopeSpec(theta, kind, scaling, 1.0 if partial is None else partial)


def _check_setting(fields: Fields, name: str, key: str, value: object) -> None:
    if key in _NUMBERS:
        check_number(name, value)
    elif key in _LISTS:
        if not isinstance(value, list | tuple) or not value:
            raise SpecError(f"{name}={show(value)} must be a list of numbers")
        for i, entry in enumerate(value):
            check_number(f"{name}[{i}]", entry)
    elif key not in _PASSED_ON:
        fields.unread.append(f"{name.removesuffix(key)}{printable(key)}")


def _scaling_block(fields: Fields) -> tuple[str, Mapping[str, Any]]:
    new, old = _flat(fields, "rope_parameters"), _flat(fields, "rope_scaling")
    if new is None:
        return (old.name, old.value) if old is not None else ("rope_parameters", {})
    if old is not None and any(new.value.get(k) != v for k, v in old.value.items() if k != "type"):
        fields.warn(f"{new.name} is used; {old.name} disagrees with it")
    return new.name, new.value


def _flat(fields: Fields, key: str) -> Found | None:
    """The object at ``key``; one per attention type is accepted if they say the same."""
    fields.opt_object(key)
    found = fields.find(key)
    if found is None or not found.value or not found.value.keys() <= _ATTENTION_TYPES:
        return found
    blocks = list(found.value.values())
    if not all(isinstance(b, Mapping) for b in blocks):
        raise SpecError(f"{found.name}={show(found.value)} must hold one object per attention type")
    if any(b != blocks[0] for b in blocks):
        raise SpecError(f"{found.name} differs between attention types: one RoPE for all drafter layers is allowed")
    return Found(found.name, blocks[0])


def _theta(fields: Fields, name: str, block: Mapping[str, Any]) -> float:
    flat = fields.opt_number("rope_theta")
    if block.get("rope_theta") is None:
        if flat is None:
            fields.warn(f"no rope_theta in the config: {DEFAULT_THETA:g} is assumed")
            return DEFAULT_THETA
        return flat
    theta = check_number(f"{name}.rope_theta", block["rope_theta"])
    if flat is not None and flat != theta:
        fields.warn(f"{name}.rope_theta={theta:g} is used; the flat rope_theta={flat:g} disagrees")
    return theta
