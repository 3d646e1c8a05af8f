"""The three formats: the same drafter read from each, published drafters, and each format's own rules."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from draftproof.drafters.formats import build_target_layer_ids, detect_format, read_spec
from draftproof.drafters.spec import DrafterSpec, LayerSpec

from .spec_samples import (
    ABSENT,
    MIMO,
    QWEN3_4B,
    QWEN35_4B,
    QWEN38_27B_DFLASH2,
    SMALL,
    SMALL_MODELOPT,
    SMALL_SPECULATORS,
    SMALL_UNIFORM,
    changed,
)

FULL = LayerSpec()


def assert_same(one: DrafterSpec, other: DrafterSpec) -> None:
    for field in dataclasses.fields(DrafterSpec):
        if field.compare:
            assert getattr(one, field.name) == getattr(other, field.name), field.name
    assert one == other


def warned(config: dict[str, Any], text: str) -> bool:
    return any(text in warning for warning in read_spec(config).warnings)


def test_zlab_and_speculators_describe_the_same_drafter() -> None:
    zlab, speculators = read_spec(SMALL), read_spec(SMALL_SPECULATORS)
    assert (zlab.source_format, speculators.source_format) == ("z-lab", "speculators")
    # One thing the formats mean differently: where a sliding layer's window is measured from.
    assert speculators.window_from_anchor and not zlab.window_from_anchor
    assert_same(zlab, dataclasses.replace(speculators, window_from_anchor=False))


def test_zlab_and_modelopt_describe_the_same_drafter() -> None:
    modelopt = read_spec(SMALL_MODELOPT)
    assert modelopt.source_format == "modelopt"
    assert_same(read_spec(SMALL_UNIFORM), modelopt)


def test_all_three_formats_describe_the_same_drafter() -> None:
    all_slide = ["sliding_attention"] * 3
    config = changed(SMALL_SPECULATORS, transformer_layer_config__layer_types=all_slide, sliding_window_non_causal=True)
    speculators = dataclasses.replace(read_spec(config), window_from_anchor=False)
    assert_same(read_spec(SMALL_MODELOPT), speculators)


@pytest.mark.parametrize("config", [SMALL, SMALL_SPECULATORS, QWEN3_4B, QWEN35_4B, QWEN38_27B_DFLASH2])
def test_good_configs_give_no_warning(config: dict[str, Any]) -> None:
    assert read_spec(config).warnings == ()
    assert read_spec(config).unknown_keys == ()


# --- published drafters ---


def test_qwen3_4b() -> None:
    spec = read_spec(QWEN3_4B)
    assert (spec.source_format, spec.version, spec.block_size, spec.num_draft_tokens) == ("z-lab", 1, 16, 15)
    assert spec.tap_layers == (2, 10, 18, 26, 34)
    assert spec.layers == (FULL,) * 5
    assert spec.rope.theta == 1e6
    assert list(spec.tap_layers) == [i + 1 for i in build_target_layer_ids(36, 5)]


def test_qwen35_4b_hybrid() -> None:
    spec = read_spec(QWEN35_4B)
    assert spec.tap_layers == (2, 6, 10, 14, 18, 22, 26, 30)
    assert spec.layers == (LayerSpec(True, 4096, True),) * 5 + (FULL,)
    assert (spec.block_size, spec.mask_token_id, spec.rope.theta) == (16, 248077, 1e7)


def test_qwen38_27b_dflash2() -> None:
    spec = read_spec(QWEN38_27B_DFLASH2)
    assert (spec.version, spec.block_size, spec.selector_top_k, spec.conv_kernel_size) == (2, 8, 16, 2)
    assert spec.layers == (LayerSpec(True, 2048, False),) * 5
    assert spec.tap_layers == (6, 20, 34, 48, 62)


def test_mimo() -> None:
    spec = read_spec(MIMO)
    assert (spec.source_format, spec.attention_sinks, spec.attention_value_scale) == ("modelopt", True, 0.612)
    assert spec.layers == (LayerSpec(True, 1024, True),) * 5
    assert spec.rope.partial_rotary_factor == 0.5
    assert spec.tap_layers == (1, 16, 32, 48, 70)


def test_muse_style_scales() -> None:
    spec = read_spec(
        changed(QWEN3_4B, dflash_config__final_logit_softcapping=20.0, dflash_config__output_multiplier=0.19612)
    )
    assert (spec.final_logit_softcapping, spec.output_multiplier) == (20.0, 0.19612)


# --- causality ---


@pytest.mark.parametrize(
    ("changes", "causal"),
    [
        ({}, (True, True, False)),
        ({"is_causal": False}, (False, False, False)),
        ({"is_causal": True}, (True, True, True)),
        ({"dflash_config__causal": False}, (False, False, False)),
        ({"dflash_config__causal": True}, (True, True, True)),
        ({"is_causal": False, "dflash_config__causal": True}, (False, False, False)),
        ({"is_causal": True, "dflash_config__causal": False}, (True, True, True)),
        ({"is_causal": None}, (True, True, False)),
    ],
)
def test_causality_zlab(changes: dict[str, Any], causal: tuple[bool, ...]) -> None:
    assert tuple(layer.causal for layer in read_spec(changed(SMALL, **changes)).layers) == causal


@pytest.mark.parametrize(
    ("changes", "causal"),
    [
        ({}, (True, True, False)),
        ({"sliding_window_non_causal": True}, (False, False, False)),
        ({"sliding_window_non_causal": ABSENT}, (True, True, False)),
        ({"sliding_window_non_causal": ABSENT, "speculators_model_type": "dflash2"}, (False, False, False)),
    ],
)
def test_causality_speculators(changes: dict[str, Any], causal: tuple[bool, ...]) -> None:
    assert tuple(layer.causal for layer in read_spec(changed(SMALL_SPECULATORS, **changes)).layers) == causal


# --- which layers slide, and how wide ---


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({}, (16, 16, None)),
        ({"layer_types": ABSENT, "use_sliding_window": False}, (None, None, None)),
        ({"layer_types": ABSENT, "use_sliding_window": ABSENT}, (None, None, None)),
        ({"layer_types": ABSENT, "max_window_layers": 1}, (None, 16, 16)),
        ({"layer_types": ABSENT, "max_window_layers": 0}, (16, 16, 16)),
        ({"layer_types": ABSENT, "max_window_layers": 3, "sliding_window": None}, (None, None, None)),
        ({"max_window_layers": 0}, (16, 16, None)),
        ({"use_sliding_window": False}, (16, 16, None)),
        ({"dflash_config__use_swa": True, "dflash_config__swa_window_size": 32}, (32, 32, None)),
        (
            {"dflash_config__use_swa": True, "dflash_config__swa_window_size": 32, "layer_types": ABSENT}
            | {"use_sliding_window": ABSENT},
            (32, 32, 32),
        ),
        (
            {"dflash_config__use_swa": True, "layer_types": ABSENT, "use_sliding_window": ABSENT},
            (16, 16, 16),
        ),
        (
            {"dflash_config__use_swa": False, "layer_types": ABSENT, "use_sliding_window": ABSENT},
            (None, None, None),
        ),
    ],
)
def test_windows(changes: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    layers = read_spec(changed(SMALL, **changes)).layers
    assert tuple(layer.window for layer in layers) == windows
    assert all(layer.sliding == (layer.window is not None) for layer in layers)


def test_window_that_hugging_face_drops_is_warned_about() -> None:
    assert warned(changed(SMALL, use_sliding_window=False), "use_sliding_window=False")
    assert warned(changed(SMALL, use_sliding_window=ABSENT), "use_sliding_window=None")
    quiet = changed(SMALL_SPECULATORS, transformer_layer_config__use_sliding_window=ABSENT)
    assert read_spec(quiet).warnings == ()


def test_modelopt_window_warnings() -> None:
    assert warned(SMALL_MODELOPT, "engines that read layer_types only run full attention")
    assert warned(changed(SMALL_MODELOPT, sliding_window=32), "sliding_window=32 disagrees")
    assert warned(changed(SMALL_MODELOPT, dflash_config__use_swa=False), "swa_window_size=16 has no effect")


# --- where values may stand ---


def test_nested_values_win_and_a_disagreement_is_reported() -> None:
    config = changed(SMALL, dflash_config__block_size=4)
    assert read_spec(config).block_size == 4
    assert warned(config, "dflash_config.block_size=4 is used; block_size=8 disagrees")


def test_everything_at_top_level() -> None:
    flat = changed(SMALL, dflash_config=ABSENT, **SMALL["dflash_config"])
    assert_same(read_spec(flat), read_spec(SMALL))


@pytest.mark.parametrize(
    ("changes", "attribute", "value", "warning"),
    [
        ({"block_size": ABSENT}, "block_size", 16, "block_size"),
        ({"head_dim": ABSENT}, "head_dim", 8, "head_dim"),
        ({"rms_norm_eps": ABSENT}, "rms_norm_eps", 1e-6, "rms_norm_eps"),
        ({"num_key_value_heads": None}, "num_kv_heads", 4, "num_key_value_heads"),
        ({"dflash_config__target_layer_ids": ABSENT}, "tap_layers", (2, 6, 10), "evenly spread"),
        ({"eos_token_id": [3, 99]}, "eos_token_ids", (3, 99), "EOS"),
    ],
)
def test_assumptions_are_reported(changes: dict[str, Any], attribute: str, value: object, warning: str) -> None:
    config = changed(SMALL, **changes)
    assert getattr(read_spec(config), attribute) == value
    assert warned(config, warning)


def test_unknown_keys_are_reported_by_their_place() -> None:
    config = changed(SMALL, future_thing=1, dflash_config__other=2, rope_parameters={"rope_theta": 1e4, "x": 1})
    assert set(read_spec(config).unknown_keys) == {"future_thing", "dflash_config.other", "rope_parameters.x"}
    config = changed(SMALL_SPECULATORS, top=1, transformer_layer_config__inner=2)
    assert read_spec(config).unknown_keys == ("top", "transformer_layer_config.inner")


@pytest.mark.parametrize(
    ("n", "k", "ids"),
    [
        (36, 5, [1, 9, 17, 25, 33]),
        (30, 5, [1, 8, 14, 20, 27]),
        (32, 8, [1, 5, 9, 13, 17, 21, 25, 29]),
        (64, 5, [1, 16, 31, 46, 61]),
        (36, 1, [18]),
        (12, 2, [1, 9]),
    ],
)
def test_even_spread(n: int, k: int, ids: list[int]) -> None:
    assert build_target_layer_ids(n, k) == ids


# --- speculators only ---


def test_speculators_vocabulary_and_verifier() -> None:
    spec = read_spec(changed(SMALL_SPECULATORS, draft_vocab_size=40))
    assert (spec.vocab_size, spec.draft_vocab_size, spec.head_vocab_size) == (100, 40, 40)
    assert (spec.target_name, spec.target_architectures) == ("some/target", ("LlamaForCausalLM",))
    assert warned(changed(SMALL_SPECULATORS, speculators_config=ABSENT), "verifier is missing")


def test_speculators_states_the_number_of_tokens_twice() -> None:
    wrong = changed(SMALL_SPECULATORS, speculators_config__proposal_methods=[{"speculative_tokens": 8}])
    assert warned(wrong, "speculative_tokens=8, but block_size=8 drafts 7 tokens")
    assert read_spec(changed(wrong, sample_from_anchor=True)).warnings == ()


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (SMALL, "z-lab"),
        (SMALL_SPECULATORS, "speculators"),
        (SMALL_MODELOPT, "modelopt"),
        ({"architectures": ["DFlashDraftModel"]}, "z-lab"),
        ({"target_layer_ids": [1], "mask_token_id": 1}, "z-lab"),
        ({"speculators_config": {}}, "speculators"),
    ],
)
def test_detection(config: dict[str, Any], name: str) -> None:
    assert detect_format(config) == name
