"""DrafterSpec itself: what it refuses, whatever format it came from, and what it tells."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from draftproof.drafters.formats import read_spec
from draftproof.drafters.spec import DrafterSpec, LayerSpec, RopeSpec
from draftproof.drafters.values import show
from draftproof.errors import SpecError

from .spec_samples import MIMO, QWEN38_27B_DFLASH2, SMALL, changed

GOOD = read_spec(SMALL)
FULL = (LayerSpec(),) * 3


def with_(**changes: Any) -> DrafterSpec:
    return dataclasses.replace(GOOD, **changes)


BAD = [
    ({"hidden_size": 0}, "hidden_size=0 is out of range"),
    ({"hidden_size": True}, "hidden_size=True must be a whole number"),
    ({"hidden_size": None}, "hidden_size=None must be a whole number"),
    ({"num_layers": 2}, "layers has 3 entries but num_hidden_layers=2"),
    ({"num_kv_heads": 3}, "num_attention_heads=4 must be a multiple of num_key_value_heads=3"),
    ({"num_kv_heads": 8}, "must be a multiple"),
    ({"head_dim": 7}, "even number"),
    ({"rope": RopeSpec(partial_rotary_factor=0.4)}, "even number"),  # 3.2 of 8
    ({"block_size": 1}, "block_size=1 is out of range"),
    ({"block_size": 17}, "sliding_window=16 is smaller than block_size=17"),
    ({"mask_token_id": -1}, "mask_token_id=-1 is out of range"),
    ({"mask_token_id": 100}, "mask_token_id=100 is out of range: allowed are 0 to 99"),
    ({"mask_token_id": "99"}, "mask_token_id='99' must be a whole number"),
    ({"tap_layers": ()}, "at least one"),
    ({"tap_layers": (2, 6, 2)}, "twice"),
    ({"tap_layers": (2, 13)}, "allowed are 0 to 12"),
    ({"tap_layers": (-1,)}, "out of range"),
    ({"layers": (LayerSpec(sliding=True), *FULL[1:])}, "sliding_window is missing"),
    ({"layers": (LayerSpec(sliding=True, window=0), *FULL[1:])}, "sliding_window=0 is out of range"),
    ({"layers": (LayerSpec(window=16), *FULL[1:])}, "full attention but has window=16"),
    ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported: allowed is silu"),
    ({"rms_norm_eps": 0.0}, "rms_norm_eps=0.0 is out of range"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps=nan"),
    ({"output_multiplier": float("inf")}, "output_multiplier=inf"),
    ({"input_embedding_scale": "1"}, "input_embedding_scale='1' must be"),
    ({"final_logit_softcapping": -20.0}, "final_logit_softcapping=-20.0"),
    ({"draft_vocab_size": 101}, "draft_vocab_size=101 is larger than vocab_size=100"),
    ({"conv_kernel_size": 2}, "conv_kernel_size=2 needs conv_group_size"),
    ({"conv_group_size": 2}, "conv_group_size=2 needs conv_kernel_size"),
    ({"selector_top_k": 4}, "selector_top_k=4 needs selector_rank"),
    ({"conv_kernel_size": 2, "conv_group_size": 5}, "conv_group_size=5 must divide hidden_size=32"),
    ({"version": 3}, "version=3 must be 1 (DFlash) or 2 (DFlash2)"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[m[:40] for _, m in BAD])
def test_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        with_(**changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


GOOD_EDGES = [
    {"block_size": 16},  # exactly the window
    {"block_size": 2},
    {"mask_token_id": 0},
    {"mask_token_id": 99},
    {"tap_layers": (12,)},  # the last layer's output
    {"tap_layers": (0,)},  # the embeddings
    {"tap_layers": (10, 2)},  # unsorted is an order, not an error
    {"num_kv_heads": 4},
    {"rope": RopeSpec(partial_rotary_factor=0.5)},
    {"draft_vocab_size": 50},
    {"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 4, "selector_top_k": 4},
    {"layers": (LayerSpec(causal=True),) * 3},
]


@pytest.mark.parametrize("changes", GOOD_EDGES, ids=str)
def test_accepts(changes: dict[str, Any]) -> None:
    with_(**changes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"theta": 0.0}, "rope_theta=0.0"),
        ({"theta": True}, "rope_theta=True"),
        ({"rope_type": "spiral"}, "rope_type='spiral' is unknown: allowed are default, linear"),
        ({"rope_type": "yarn"}, "rope_type='yarn' needs factor"),
        ({"rope_type": "llama3", "scaling": {"factor": 8.0}}, "needs low_freq_factor"),
        ({"partial_rotary_factor": 1.5}, "at most 1"),
        ({"partial_rotary_factor": 0.0}, "above 0"),
    ],
)
def test_rope_refuses(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        RopeSpec(**arguments)


def test_derived_values() -> None:
    assert GOOD.num_draft_tokens == 7
    assert with_(sample_from_anchor=True).num_draft_tokens == 8
    assert (GOOD.target_width, GOOD.fc_in, GOOD.head_vocab_size) == (32, 96, 100)
    assert with_(target_hidden_size=64).fc_in == 192
    assert with_(draft_vocab_size=40).head_vocab_size == 40
    assert not GOOD.uniform
    assert with_(layers=FULL).uniform


def test_provenance_does_not_count_in_comparisons() -> None:
    assert with_(source_format="speculators", num_target_layers=None, warnings=("x",)) == GOOD
    assert hash(with_(unknown_keys=("x",))) == hash(GOOD)
    assert with_(mask_token_id=98) != GOOD


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"eos_token_ids": (1, 99)}, "mask_token_id=99 is also the EOS token"),
        ({"pad_token_id": 99}, "mask_token_id=99 is also the padding token"),
        ({"version": 2}, "runs as plain DFlash"),
    ],
)
def test_notes(changes: dict[str, Any], note: str) -> None:
    assert note in " ".join(with_(**changes).warnings)
    assert len(dataclasses.replace(with_(**changes), block_size=4).warnings) == 1, "a copy repeats nothing"


def test_no_notes_on_a_good_drafter() -> None:
    assert GOOD.warnings == ()
    assert GOOD.unknown_keys == ()
    assert GOOD.unsupported() == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"conv_kernel_size": 2, "conv_group_size": 16}, "convolution"),
        ({"selector_rank": 4, "selector_top_k": 4}, "selector"),
        ({"sample_from_anchor": True}, "sample_from_anchor"),
        ({"projector": "dspark"}, "'dspark'"),
        ({"attention_sinks": True}, "attention_sink_bias"),
        ({"attention_value_scale": 0.5}, "attention_value_scale=0.5"),
        ({"quantization": "fp8"}, "fp8"),
        ({"architectures": ("DFlashLagunaForCausalLM",)}, "DFlashLagunaForCausalLM"),
    ],
)
def test_unsupported_names_each_thing_once(changes: dict[str, Any], sentence: str) -> None:
    (only,) = with_(**changes).unsupported()
    assert sentence in only


def test_unsupported_of_published_drafters() -> None:
    assert len(read_spec(QWEN38_27B_DFLASH2).unsupported()) == 2
    assert len(read_spec(MIMO).unsupported()) == 2


def test_card_and_dictionary() -> None:
    lines = GOOD.describe()
    assert lines[0] == "DFlash drafter, z-lab format"
    assert "2 sliding (window 16), causal in the block; 1 full, bidirectional in the block" in lines[1]
    assert "drafts 7 tokens" in " ".join(lines)
    assert all(len(line) < 110 and "\n" not in line for line in lines)
    plain = json.loads(json.dumps(read_spec(changed(MIMO, unheard_of=1)).to_dict()))
    assert plain["num_draft_tokens"] == 15
    assert plain["tap_layers"] == [1, 16, 32, 48, 70]
    assert plain["layers"][0] == {"sliding": True, "window": 1024, "causal": True}
    assert plain["unknown_keys"] == ["unheard_of"]


@pytest.mark.parametrize(
    "value",
    ["x" * 10_000_000, 10**5000, [0] * 100_000, {"a": "\n" * 500}],
    ids=["text", "number", "list", "object"],
)
def test_any_value_is_shown_on_one_short_line(value: object) -> None:
    assert len(show(value)) <= 60
    assert "\n" not in show(value)
