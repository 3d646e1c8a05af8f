"""Rules about files: each says its piece, and keeps silent one step beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from draftproof.proof.case import Case, Drafter, Engine, Observation, Target
from draftproof.proof.rules import judge
from proof.configs import TARGET, changed, speculators, zlab

FC = {"fc.weight": {"shape": [64, 192], "dtype": "BF16"}}
WHOLE = FC | {f"layers.{i}.{part}": {"shape": [8], "dtype": "BF16"} for i in range(2) for part in ("a", "b", "c")}


def case(config: dict[str, Any] | None = None, target: dict[str, Any] | None = None, **more: Any) -> Case:
    drafter = Drafter(config=zlab() if config is None else config, **more)
    return Case(method="dflash", drafter=drafter, target=Target(None, target))


def said(given: Case) -> dict[str, str]:
    """Counted findings: code → severity."""
    return {f.code: f.severity for f in judge(given, areas=["FILES"]).findings if f.counts}


def test_a_sound_pair_is_let_alone() -> None:
    assert said(case(target=TARGET, tensors=WHOLE)) == {}
    assert said(case(speculators(), target=TARGET)) == {}


@pytest.mark.parametrize(
    ("config", "tensors", "expected"),
    [
        (zlab(), FC, False),
        (zlab(dflash_config__target_layer_ids=[1, 5]), FC, True),
        (zlab(target_hidden_size=48), FC, True),
        (zlab(hidden_size=0), FC, False),
        (zlab(target_hidden_size=48), {"fc.weight": {"shape": [64, 144]}}, False),
        (zlab(dflash_config__target_layer_ids=[1, 5]), {"fc.weight": {"shape": None}}, False),
        (zlab(dflash_config__target_layer_ids=[1, 5]), None, False),
        ({"gguf": {"n_extract": 2, "dflash.embedding_length": 64}}, FC, True),
        (speculators(aux_hidden_state_layer_ids=[2, 6]), FC, True),
    ],
)
def test_fc_taps_mismatch(config: dict[str, Any], tensors: Any, expected: bool) -> None:
    assert ("FC_TAPS_MISMATCH" in said(case(config, tensors=tensors))) == expected


def test_target_layer_ids_missing() -> None:
    missing = zlab(dflash_config__target_layer_ids=None)
    assert said(case(missing))["TARGET_LAYER_IDS_MISSING"] == "error"
    fits = case(missing | {"num_hidden_layers": 3}, tensors=FC)
    assert said(fits)["TARGET_LAYER_IDS_MISSING"] == "warning"
    assert "TARGET_LAYER_IDS_MISSING" not in said(case(missing | {"_truncated": True}))
    eagle = Case(
        method="eagle3", drafter=Drafter(config={"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": 9})
    )
    assert said(eagle) == {}


@pytest.mark.parametrize(
    ("config", "target", "expected"),
    [
        (zlab(dflash_config__target_layer_ids=[1, 11]), None, False),
        (zlab(dflash_config__target_layer_ids=[1, 12]), None, True),
        (zlab(dflash_config__target_layer_ids=[-1, 5]), None, True),
        (zlab(dflash_config__target_layer_ids=[1, 12], num_target_layers=None), None, False),
        (zlab(dflash_config__target_layer_ids=[1, 12], num_target_layers=None), TARGET, True),
        (speculators(aux_hidden_state_layer_ids=[2, 12]), TARGET, False),
        (speculators(aux_hidden_state_layer_ids=[2, 13]), TARGET, True),
        ({"gguf": {"dflash.target_layers": [2, 12]}}, TARGET, False),
        ({"gguf": {"max_target_layer_id": 13}, "_truncated": True}, TARGET, True),
    ],
)
def test_target_layer_id_out_of_range(config: dict[str, Any], target: Any, expected: bool) -> None:
    assert ("TARGET_LAYER_ID_OUT_OF_RANGE" in said(case(config, target))) == expected


def test_layer_id_convention_unclear() -> None:
    # The usual spread of 3 taps over 12 layers is 1, 5, 9.
    assert said(case(speculators(aux_hidden_state_layer_ids=[1, 5, 9]), TARGET)) == {
        "LAYER_ID_CONVENTION_UNCLEAR": "info"
    }
    assert said(case(zlab(dflash_config__target_layer_ids=[2, 6, 10]))) == {"LAYER_ID_CONVENTION_UNCLEAR": "info"}
    assert said(case(zlab(dflash_config__target_layer_ids=[2, 6, 10], num_target_layers=None))) == {}


@pytest.mark.parametrize(
    ("mask", "target", "expected"),
    [
        (500, TARGET, False),
        (511, TARGET, False),
        (512, TARGET, True),
        (-1, None, True),
        (None, None, True),
        (1.5, None, True),
        (512, changed(TARGET, {"vocab_size": 576}), False),  # a padded row of the target's table
    ],
)
def test_mask_token_invalid(mask: Any, target: Any, expected: bool) -> None:
    assert ("MASK_TOKEN_INVALID" in said(case(zlab(dflash_config__mask_token_id=mask), target))) == expected


def test_mask_token_elsewhere() -> None:
    assert said(case(zlab(dflash_config__mask_token_id=None, mask_token="<|MASK|>"))) == {}
    assert said(case(zlab(dflash_config__mask_token_id=None, dspark_noise_token_id=7))) == {}
    assert said(case(zlab(dflash_config__mask_token_id=None, _truncated=True))) == {}


def test_mask_token_is_special() -> None:
    assert said(case(zlab(dflash_config__mask_token_id=2))) == {"MASK_TOKEN_IS_SPECIAL": "warning"}
    assert said(case(zlab(), changed(TARGET, {"eos_token_id": [499, 500]}))) == {"MASK_TOKEN_IS_SPECIAL": "warning"}
    assert said(case(zlab(dflash_config__mask_token_id=1))) == {}  # low is not special


def test_d2t_missing() -> None:
    reduced = speculators(draft_vocab_size=128)
    assert said(case(reduced)) == {}  # a config alone proves nothing
    assert said(case(reduced, tensors=WHOLE)) == {"D2T_MISSING": "error"}
    assert said(case(reduced, tensors=WHOLE | {"d2t": {}, "lm_head.weight": {}})) == {}
    assert said(case(reduced, tensors={"norm.weight": {}})) == {}  # a part of the list
    absent = Observation("index", {"static": True}, {"tensors_absent": ["d2t"]})
    assert "D2T_MISSING" in said(replace(case(reduced), observations=(absent,)))


def test_unclaimed_tensors() -> None:
    def loaded(log: str) -> Case:
        return replace(case(), observations=(Observation("load", {}, {}, (log,)),))

    assert "UNCLAIMED_TENSORS" in said(loaded("warning: 7 unclaimed tensors"))
    assert said(loaded("0 unexpected keys")) == {}
    head = {"mtp.fc.qweight": {}, "mtp.fc.scales": {}}
    assert "UNCLAIMED_TENSORS" in said(Case(method="mtp", drafter=Drafter(tensors=head)))
    assert said(Case(method="mtp", drafter=Drafter(tensors=head | {"mtp.fc.weight": {}}))) == {}
    gates = case(tensors={"layers.0.self_attn.g_proj.weight": {}})
    assert said(gates) == {}
    assert "UNCLAIMED_TENSORS" in said(replace(gates, engine=Engine("llama.cpp", "b11434")))


BOTH = zlab(rope_parameters={"rope_theta": 5e5, "rope_type": "default"})
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}


@pytest.mark.parametrize(
    ("config", "target", "options", "severity"),
    [
        (BOTH, None, {}, "error"),
        (zlab(rope_parameters={"rope_theta": 1e6}), None, {}, None),
        (zlab(), changed(TARGET, {"rope_theta": 1e7}), {}, None),  # another model's base
        (zlab(), changed(TARGET, {"rope_scaling": YARN}), {}, "warning"),
        (zlab(max_position_embeddings=16384), changed(TARGET, {"rope_scaling": YARN}), {}, None),
        (zlab(rope_scaling=YARN), changed(TARGET, {"rope_scaling": YARN}), {}, None),
        (speculators(), changed(TARGET, {"partial_rotary_factor": 0.25}), {}, "warning"),
        (speculators(), changed(TARGET, {"rope_parameters": {"partial_rotary_factor": 0.5}}), {}, "warning"),
        (zlab(), changed(TARGET, {"partial_rotary_factor": 0.25}), {}, None),
        (zlab(rope_scaling=None), None, {"rope_applied_to_drafter": "yarn factor 64"}, "error"),
        (zlab(), None, {"rope_applied_to_drafter": {"rope_type": "yarn", "factor": 64}}, "error"),
        (zlab(), None, {"rope_applied_to_drafter": 10000}, "error"),
        (zlab(), None, {"rope_applied_to_drafter": 1000000}, None),
        (zlab(rope_scaling=YARN), None, {"rope_applied_to_drafter": "none"}, "error"),
        (zlab(rope_scaling=YARN), None, {"rope_applied_to_drafter": "yarn factor 4"}, None),
    ],
)
def test_rope_mismatch(config: dict[str, Any], target: Any, options: Any, severity: str | None) -> None:
    given = replace(case(config, target), engine=Engine("atlas", None, options))
    assert said(given).get("ROPE_MISMATCH") == severity


def test_rope_that_the_engine_does_not_read() -> None:
    nested = zlab(rope_theta=None, rope_parameters={"rope_theta": 1e7})
    for version, expected in (("0.5.11", True), ("0.5.13", False)):
        given = replace(case(nested), engine=Engine("sglang", version))
        assert ("ROPE_MISMATCH" in said(given)) == expected
    usual = zlab(rope_theta=None, rope_parameters={"rope_theta": 1e6})
    assert said(replace(case(usual), engine=Engine("sglang", "0.5.11"))) == {}


@pytest.mark.parametrize(
    ("config", "target", "expected"),
    [
        (zlab(), changed(TARGET, {"num_hidden_layers": 13}), True),
        (zlab(target_hidden_size=48), TARGET, True),
        (zlab(hidden_size=96), TARGET, True),
        (zlab(hidden_size=96, target_hidden_size=64), TARGET, False),
        (zlab(), changed(TARGET, {"vocab_size": 576}), False),
        (zlab(vocab_size=509), TARGET, False),  # rounded up to a multiple of 64
        (zlab(), changed(TARGET, {"vocab_size": 515}), True),
        (zlab(), changed(TARGET, {"vocab_size": 2048}), True),
        (speculators(), changed(TARGET, {"architectures": ["LlamaForCausalLM"]}), True),
        (speculators(), changed(TARGET, {"architectures": ["Qwen3ForConditionalGeneration"]}), False),
    ],
)
def test_pair_mismatch(config: dict[str, Any], target: Any, expected: bool) -> None:
    assert ("PAIR_MISMATCH" in said(case(config, target))) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen/Qwen3-8B", False),
        ("RedHatAI/Qwen3-8B-FP8-dynamic", False),
        ("/models/Qwen3-8B-AWQ-4bit", False),
        ("Qwen3-8B UD-Q4_K_XL", False),
        ("Qwen3-8B-Abliterated", True),
        ("(a Qwen)", False),
        (None, False),
    ],
)
def test_target_is_finetune(name: str | None, expected: bool) -> None:
    given = replace(case(speculators()), target=Target(name))
    assert ("TARGET_IS_FINETUNE" in said(given)) == expected


def test_a_finetune_that_is_measured() -> None:
    related = Target("mine", {"base_model": "Qwen/Qwen3-8B", "base_model_relation": "merge"})
    low = Observation("mine", {}, {"mean_acceptance_length": 2.0})
    base = Observation("base", {"target": "Qwen/Qwen3-8B"}, {"mean_acceptance_length": 4.0})
    assert said(replace(case(), target=related)) == {"TARGET_IS_FINETUNE": "warning"}
    assert said(replace(case(), target=related, observations=(low, base))) == {"TARGET_IS_FINETUNE": "error"}
    quantised = Target("mine", {"base_model": "Qwen/Qwen3-8B", "base_model_relation": "quantized"})
    assert said(replace(case(speculators()), target=quantised)) == {}


def test_drafter_revision_mismatch() -> None:
    def seen(revision: str, length: float) -> Observation:
        return Observation(revision, {"drafter_revision": revision}, {"mean_acceptance_length": length})

    base = replace(case(), k=7)
    assert said(replace(base, observations=(seen("a", 2.0), seen("b", 4.0)))) == {"DRAFTER_REVISION_MISMATCH": "error"}
    assert said(replace(base, observations=(seen("a", 1.1), seen("b", 1.6)))) == {}  # low itself
    assert said(replace(base, observations=(seen("a", 3.9), seen("b", 4.0)))) == {}
    named = Drafter("RadixArk/Qwen3.8-27B-DSpark", "v1")
    assert said(Case(method="dspark", drafter=named)) == {"DRAFTER_REVISION_MISMATCH": "warning"}
    assert said(Case(method="dspark", drafter=replace(named, revision="v2"))) == {}
