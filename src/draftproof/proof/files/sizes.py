"""Sizes that a config states must be sizes: an engine would stop there, and every comparison would pass them over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from draftproof.drafters.values import show
from draftproof.errors import SpecError
from draftproof.proof.case import Case

_ANY = ("hidden_size", "num_hidden_layers", "vocab_size")
# Targets of some families state these layer by layer, drafters never do.
_DRAFTER = (*_ANY, "num_attention_heads", "num_key_value_heads", "head_dim", "block_size", "num_target_layers")
_NESTED = ("", "dflash_config", "transformer_layer_config", "text_config")


def must_be_sizes(case: Case) -> None:
    """Raises SpecError with file and line for the first size that is no whole number above 0; absent and null pass."""
    for path, value in _stated(case):
        if value is not None and (type(value) is not int or value < 1):
            key = path.rpartition(".")[2]
            raise SpecError(f"{case.where(path)}: {key} = {show(value)}, where a whole number above 0 is needed")


def _stated(case: Case) -> Iterator[tuple[str, Any]]:
    for side, config, keys in (
        ("drafter", case.drafter.config, _DRAFTER),
        ("target", case.target.config, _ANY),
    ):
        for outer in _NESTED:
            holder = config if not outer else (config or {}).get(outer)
            if isinstance(holder, Mapping):
                prefix = f"{side}.config.{outer}." if outer else f"{side}.config."
                yield from ((f"{prefix}{key}", holder[key]) for key in keys if key in holder)
