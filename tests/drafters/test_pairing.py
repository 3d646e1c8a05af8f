"""Drafter against target, from two configurations."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from draftproof.drafters.formats import read_spec
from draftproof.drafters.pairing import MAX_PADDING
from draftproof.drafters.tensors import WeightsInfo, check_pair
from draftproof.errors import MismatchError

from .spec_samples import ABSENT, MIMO, SMALL, SMALL_SPECULATORS, changed

SPEC = read_spec(SMALL)
TARGET: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "vocab_size": 100,
    "num_hidden_layers": 12,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "eos_token_id": 2,
}


def test_good_pair() -> None:
    assert check_pair(SPEC, TARGET) == []
    assert check_pair(read_spec(SMALL_SPECULATORS), TARGET) == []


@pytest.mark.parametrize("outer", ["text_config", "language_config", "llm_config"])
def test_multimodal_targets(outer: str) -> None:
    assert check_pair(SPEC, {"architectures": ["X"], "hidden_size": 7, outer: TARGET}) == []
    assert check_pair(SPEC, {"thinker_config": {"text_config": TARGET}}) == []
    with pytest.raises(MismatchError, match="64 wide"):
        check_pair(SPEC, {"hidden_size": 32, outer: changed(TARGET, hidden_size=64)})


@pytest.mark.parametrize(
    ("spec", "target", "message"),
    [
        ({}, {"hidden_size": 64}, "the drafter reads taps 32 wide, the target's are 64 wide"),
        ({"target_hidden_size": 64}, {}, "the drafter reads taps 64 wide, the target's are 32 wide"),
        ({"target_hidden_size": 64}, {"hidden_size": 64}, "no embedding and head of its own"),
        ({}, {"vocab_size": 99}, "mask_token_id=99 is not in the target's vocabulary of 99"),
        ({}, {"vocab_size": 101 + MAX_PADDING}, "another tokenizer"),
        ({}, {"num_hidden_layers": 13}, "made for 12 target layers, the target has 13"),
        (
            {"num_target_layers": None},
            {"num_hidden_layers": 9},
            "reads hidden state 10, the target's go from 0 to 9",
        ),
        ({}, {"hidden_size": "32"}, "the target's hidden_size='32' must be a whole number"),
        ({}, {"vocab_size": True}, "vocab_size=True must be a whole number"),
        ({}, {"num_hidden_layers": 0}, "num_hidden_layers=0 must be"),
    ],
)
def test_mismatch(spec: dict[str, Any], target: dict[str, Any], message: str) -> None:
    with pytest.raises(MismatchError, match=message):
        check_pair(dataclasses.replace(SPEC, **spec), changed(TARGET, **target))


def test_target_config_that_is_no_object() -> None:
    with pytest.raises(MismatchError, match="not an object"):
        check_pair(SPEC, [])  # type: ignore[arg-type]


def test_own_embedding_and_head_allow_another_width() -> None:
    spec = dataclasses.replace(SPEC, target_hidden_size=64)
    target = changed(TARGET, hidden_size=64)
    assert check_pair(spec, target, WeightsInfo({}, has_own_embedding=True, has_own_head=True)) == []
    with pytest.raises(MismatchError):
        check_pair(spec, target, WeightsInfo({}, has_own_embedding=True))


@pytest.mark.parametrize(
    ("spec", "target", "warning"),
    [
        ({}, {"vocab_size": 100 + MAX_PADDING}, "taken for padding"),
        ({}, {"hidden_size": ABSENT}, "has no hidden_size: it was not compared"),
        ({}, {"vocab_size": None}, "has no vocab_size"),
        ({}, {"num_hidden_layers": ABSENT}, "has no num_hidden_layers"),
        ({"tap_layers": (2, 12)}, {}, "tap 12 is the target's last layer"),
        ({}, {"eos_token_id": [2, 99]}, "mask_token_id=99 is the target's EOS token"),
        ({}, {"pad_token_id": 99}, "mask_token_id=99 is the target's padding token"),
        ({"target_architectures": ("Qwen3ForCausalLM",)}, {}, "trained for 'Qwen3ForCausalLM'"),
        ({}, {"max_position_embeddings": 1024}, "knows 512 positions, the target 1024"),
        ({}, {"rope_theta": 1e6}, "RoPE base 10000 in the drafter, 1000000.0 in the target"),
        ({}, {"rope_parameters": {"rope_theta": 1e6}}, "RoPE base 10000 in the drafter"),
        # 2, 6, 10 is the usual spread over 12 layers
        ({"tap_layers": (3, 7, 11)}, {}, "moved by +1"),
        ({"tap_layers": (1, 5, 9), "source_format": "speculators"}, {}, "moved by -1"),
    ],
)
def test_warning(spec: dict[str, Any], target: dict[str, Any], warning: str) -> None:
    (only,) = check_pair(dataclasses.replace(SPEC, **spec), changed(TARGET, **target))
    assert warning in only


def test_shift_is_judged_by_the_format() -> None:
    """The same ids shifted the other way cannot come from that mix-up."""
    assert check_pair(dataclasses.replace(SPEC, tap_layers=(1, 5, 9)), TARGET) == []


def test_last_layer_of_a_published_drafter() -> None:
    target = {"hidden_size": 6144, "vocab_size": 151936, "num_hidden_layers": 70}
    (only,) = check_pair(read_spec(MIMO), target)
    assert "tap 70 is the target's last layer" in only
