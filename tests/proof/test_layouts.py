"""What the three layouts say, in one vocabulary; values of wrong types are as good as absent."""

from __future__ import annotations

from typing import Any

from draftproof.proof.case import Case, Drafter
from draftproof.proof.layouts import default_taps, drafter_method, layout_of, read_layout

ZLAB: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "dflash_config": {"target_layer_ids": [1, 9, 17], "mask_token_id": 7, "block_size": 8},
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 64,
    "rope_theta": 1e6,
    "vocab_size": 100,
}
SPECULATORS: dict[str, Any] = {
    "speculators_model_type": "dflash",
    "aux_hidden_state_layer_ids": [2, 10, 18],
    "draft_vocab_size": 50,
    "transformer_layer_config": {"vocab_size": 100, "sliding_window": 32, "rope_parameters": {"rope_theta": 5e5}},
}


def test_taps_in_one_unit() -> None:
    zlab, speculators = read_layout(ZLAB), read_layout(SPECULATORS)
    gguf = read_layout({"gguf": {"dflash.target_layers": [2, 10, 18], "dflash.block_size": 16}})
    assert zlab.hidden_state_taps == speculators.hidden_state_taps == gguf.hidden_state_taps == (2, 10, 18)
    assert zlab.taps is not None and zlab.taps.path == "dflash_config.target_layer_ids"
    assert [one.kind for one in (zlab, speculators, gguf)] == ["z-lab", "speculators", "gguf"]


def test_values_and_places() -> None:
    zlab, speculators = read_layout(ZLAB), read_layout(SPECULATORS)
    assert zlab.block is not None and zlab.block.path == "dflash_config.block_size" and zlab.block_is_nested_only
    assert zlab.slides and zlab.mixed and zlab.has_full_layer
    assert zlab.flat_theta is not None and zlab.nested_theta is None
    assert speculators.reduced_vocabulary and speculators.vocab_size == 100
    assert speculators.window is not None and speculators.window.path == "transformer_layer_config.sliding_window"
    assert speculators.nested_theta is not None and speculators.nested_theta.value == 5e5
    assert not read_layout({"_truncated": True, "block_size": 4}).complete


def test_wrong_types_are_absent() -> None:
    odd = read_layout(
        {"dflash_config": {"target_layer_ids": ["1"], "block_size": True}, "layer_types": 3, "vocab_size": "x"}
    )
    assert odd.taps is None and odd.block is None and odd.layer_types is None and odd.vocab_size is None
    assert read_layout({"dflash_config": []}).kind == "unknown"


def test_methods() -> None:
    def method(config: dict[str, Any] | None, served: str | None) -> str | None:
        return drafter_method(Case(method=served, drafter=Drafter(config=config)))

    assert method({"architectures": ["DFlash2DraftModel"]}, "dflash") == "dflash2"
    assert method({"architectures": ["DFlashDraftModel"]}, "dflash2") == "dflash2"
    assert (
        method({"architectures": ["DFlashDraftModel"], "dflash_config": {"projector_type": "dspark"}}, None) == "dspark"
    )
    assert method(None, "mtp") == "mtp"
    assert layout_of(Case()).kind == "unknown"


def test_default_taps() -> None:
    assert default_taps(36, 5) == (1, 9, 17, 25, 33) and default_taps(36, 0) == ()
    assert default_taps(36, 10**25) == ()  # no file makes anybody count that far
