"""Do this drafter and this target belong together? Answered from two configurations, without weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from draftproof.drafters.formats.zlab import build_target_layer_ids
from draftproof.drafters.spec import DrafterSpec
from draftproof.drafters.values import show
from draftproof.errors import MismatchError

if TYPE_CHECKING:
    from draftproof.drafters.tensors import WeightsInfo

# Targets of one family pad their tables differently; a larger difference is another tokenizer.
MAX_PADDING = 1024
_TEXT_PARTS = ("text_config", "language_config", "llm_config", "thinker_config")


def check_pair(spec: DrafterSpec, target_config: Mapping[str, Any], weights: WeightsInfo | None = None) -> list[str]:
    """Raise on what cannot work (width, vocabulary, layers); return what is doubtful, one line each.

    ``target_config`` is the target's raw ``config.json``, multimodal ones included. With ``weights`` a
    drafter that brings its own embedding and head may be narrower than the target.
    """
    if not isinstance(target_config, Mapping):
        raise MismatchError(f"the target's config is {show(target_config)}, not an object")
    text = text_part(target_config)
    notes: list[str] = []
    _check_width(spec, text, weights, notes)
    _check_vocabulary(spec, text, notes)
    _check_depth(spec, text, notes)
    _check_tokens(spec, {**target_config, **text}, notes)
    _check_names(spec, target_config, notes)
    _check_positions(spec, text, notes)
    return notes


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model inside a multimodal config, else the config itself."""
    for _ in range(4):  # a thinker's text part is two levels down
        inner = next((config[k] for k in _TEXT_PARTS if isinstance(config.get(k), Mapping)), None)
        if inner is None:
            break
        config = inner
    return config


def _size(text: Mapping[str, Any], key: str, notes: list[str]) -> int | None:
    value = text.get(key)
    if value is None:
        notes.append(f"the target's config has no {key}: it was not compared")
        return None
    if type(value) is not int or not 0 < value < 2**31:
        raise MismatchError(f"the target's {key}={show(value)} must be a whole number above 0")
    return value


def _check_width(spec: DrafterSpec, text: Mapping[str, Any], weights: WeightsInfo | None, notes: list[str]) -> None:
    width = _size(text, "hidden_size", notes)
    if width is None:
        return
    if spec.target_width != width:
        raise MismatchError(f"the drafter reads taps {spec.target_width} wide, the target's are {width} wide")
    own = weights is not None and weights.has_own_embedding and weights.has_own_head
    if spec.hidden_size != width and not own:
        raise MismatchError(
            f"the drafter is {spec.hidden_size} wide, the target {width}, and it has no embedding and head of its own"
        )


def _check_vocabulary(spec: DrafterSpec, text: Mapping[str, Any], notes: list[str]) -> None:
    size = _size(text, "vocab_size", notes)
    if size is None:
        return
    if spec.mask_token_id >= size:
        raise MismatchError(f"mask_token_id={spec.mask_token_id} is not in the target's vocabulary of {size}")
    if abs(size - spec.vocab_size) > MAX_PADDING:
        raise MismatchError(
            f"the drafter was made for a vocabulary of {spec.vocab_size} tokens, the target has {size}: "
            "another tokenizer"
        )
    if size != spec.vocab_size:
        notes.append(
            f"vocab_size={spec.vocab_size} in the drafter, {size} in the target: taken for padding of the table"
        )


def _check_depth(spec: DrafterSpec, text: Mapping[str, Any], notes: list[str]) -> None:
    depth = _size(text, "num_hidden_layers", notes)
    if depth is None:
        return
    if spec.num_target_layers is not None and spec.num_target_layers != depth:
        raise MismatchError(f"the drafter was made for {spec.num_target_layers} target layers, the target has {depth}")
    last = max(spec.tap_layers)
    if last > depth:
        raise MismatchError(
            f"the drafter reads hidden state {last}, the target's go from 0 to {depth} ({depth} layers)"
        )
    if last == depth:
        notes.append(f"tap {last} is the target's last layer: some engines read it before, some after the final norm")
    _check_convention(spec, depth, notes)


def _check_convention(spec: DrafterSpec, depth: int, notes: list[str]) -> None:
    """The usual even spread, shifted by one, is what mixing up the two ways of counting layers leaves."""
    usual = [i + 1 for i in build_target_layer_ids(depth, len(spec.tap_layers))]
    shift = -1 if spec.source_format == "speculators" else 1
    if sorted(spec.tap_layers) == [i + shift for i in usual]:
        notes.append(
            f"taps {show(list(spec.tap_layers))} are the usual ones moved by {shift:+d}: "
            "the config may count layers the other format's way"
        )


def _check_tokens(spec: DrafterSpec, config: Mapping[str, Any], notes: list[str]) -> None:
    for key, name in (("eos_token_id", "EOS"), ("pad_token_id", "padding")):
        value = config.get(key)
        if spec.mask_token_id in (value if isinstance(value, list | tuple) else [value]):
            notes.append(f"mask_token_id={spec.mask_token_id} is the target's {name} token")


def _check_names(spec: DrafterSpec, config: Mapping[str, Any], notes: list[str]) -> None:
    names = config.get("architectures")
    if not spec.target_architectures or not isinstance(names, list | tuple) or not names:
        return
    if not set(spec.target_architectures) & set(map(str, names)):
        notes.append(
            f"the drafter was trained for {', '.join(map(show, spec.target_architectures))}, "
            f"the target is {', '.join(map(show, names))}"
        )


def _check_positions(spec: DrafterSpec, text: Mapping[str, Any], notes: list[str]) -> None:
    """Positions and RoPE are the drafter's own; copied wrongly from the target they cost acceptance only."""
    length = text.get("max_position_embeddings")
    if type(length) is int and spec.max_position_embeddings < length:
        notes.append(
            f"the drafter knows {spec.max_position_embeddings} positions, the target {show(length)}: "
            "drafting ends there"
        )
    block = text.get("rope_parameters") or text.get("rope_scaling")
    nested = block.get("rope_theta") if isinstance(block, Mapping) else None
    theta = nested if nested is not None else text.get("rope_theta")
    if type(theta) in (int, float) and theta != spec.rope.theta:
        notes.append(
            f"RoPE base {spec.rope.theta:g} in the drafter, {show(theta)} in the target: right only if trained so"
        )
