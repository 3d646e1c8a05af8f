"""One clear line for every broken configuration, naming the field, its value and what is allowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftproof.drafters.formats import MAX_CONFIG_BYTES, read_spec
from draftproof.errors import CheckpointError, SpecError, UsageError

from .spec_samples import ABSENT, SMALL, SMALL_MODELOPT, SMALL_SPECULATORS, changed

IDS = "dflash_config__target_layer_ids"
LAYER = "transformer_layer_config__"

ZLAB = [
    ({"layer_types": ["full_attention"]}, "layer_types has 1 entries but num_hidden_layers=3"),
    ({"layer_types": ["full_attention"] * 4}, "layer_types has 4 entries but num_hidden_layers=3"),
    (
        {"layer_types": ["full_attention", "linear", "full_attention"]},
        "layer_types holds 'linear': allowed are",
    ),
    ({"layer_types": [1, 2, 3]}, "layer_types holds 1: allowed are full_attention and sliding_attention"),
    ({"layer_types": "full_attention"}, "layer_types='full_attention' must be a list"),
    ({"sliding_window": None}, "layer 0 is sliding_attention but sliding_window is missing"),
    ({"sliding_window": ABSENT}, "sliding_window is missing"),
    ({"sliding_window": 0}, "sliding_window=0 is out of range"),
    ({"sliding_window": -5}, "sliding_window=-5 is out of range"),
    ({"sliding_window": 4}, "sliding_window=4 is smaller than block_size=8"),
    ({"sliding_window": 4, "is_causal": False}, "sliding_window=4 is smaller than block_size=8"),
    ({IDS: []}, "dflash_config.target_layer_ids=[] is empty"),
    ({IDS: [1, 12]}, "dflash_config.target_layer_ids[1]=12 is out of range: allowed are 0 to 11"),
    ({IDS: [-1]}, "dflash_config.target_layer_ids[0]=-1 is out of range"),
    ({IDS: [1, 5, 1]}, "dflash_config.target_layer_ids names layer 1 twice"),
    ({IDS: [1, True]}, "dflash_config.target_layer_ids[1]=True must be a whole number"),
    ({IDS: [1.0]}, "dflash_config.target_layer_ids[0]=1.0 must be a whole number"),
    ({IDS: "1,5"}, "dflash_config.target_layer_ids='1,5' must be a list"),
    ({IDS: ABSENT, "num_target_layers": ABSENT}, "target_layer_ids is missing"),
    ({IDS: ABSENT, "num_target_layers": 4}, "num_target_layers=4 is too few to spread 3 of them"),
    ({"dflash_config__mask_token_id": ABSENT}, "mask_token_id is missing: it belongs in dflash_config or"),
    ({"dflash_config__mask_token_id": None}, "mask_token_id is missing"),
    ({"dflash_config__mask_token_id": -1}, "dflash_config.mask_token_id=-1 is out of range"),
    ({"dflash_config__mask_token_id": 100}, "mask_token_id=100 is out of range: allowed are 0 to 99"),
    ({"dflash_config__mask_token_id": True}, "dflash_config.mask_token_id=True must be a whole number"),
    ({"block_size": 1}, "block_size=1 is out of range: allowed are 2 to"),
    ({"block_size": 8.0}, "block_size=8.0 must be a whole number"),
    ({"block_size": "8"}, "block_size='8' must be a whole number"),
    ({"num_key_value_heads": 3}, "num_attention_heads=4 must be a multiple of num_key_value_heads=3"),
    (
        {"head_dim": ABSENT, "num_attention_heads": 6},
        "head_dim is missing, and hidden_size=32 is not a multiple",
    ),
    ({"hidden_act": "gelu_pytorch_tanh"}, "hidden_act='gelu_pytorch_tanh' is not supported"),
    ({"hidden_act": 1}, "hidden_act=1 must be text"),
    ({"hidden_size": ABSENT}, "hidden_size is missing"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers=1000000000 is out of range"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps=nan"),
    ({"rms_norm_eps": "1e-6"}, "rms_norm_eps='1e-6' must be"),
    ({"is_causal": "no"}, "is_causal='no' must be true or false"),
    ({"attention_bias": 0}, "attention_bias=0 must be true or false"),
    ({"architectures": "DFlashDraftModel"}, "architectures='DFlashDraftModel' must be a list"),
    ({"architectures": [1]}, "architectures holds 1: every entry must be text"),
    ({"dflash_config": []}, "dflash_config=[] must be an object"),
    ({"dflash_config__output_multiplier": 0}, "dflash_config.output_multiplier=0 is out of range"),
    ({"dflash_config__conv_kernel_size": 2}, "conv_kernel_size=2 needs conv_group_size"),
    ({"dflash_config__selector_rank": 2}, "selector_rank=2 needs selector_top_k"),
    ({"eos_token_id": "</s>"}, "eos_token_id='</s>' must be a whole number"),
    ({"quantization_config": "fp8"}, "quantization_config='fp8' must be an object"),
]

SPECULATORS = [
    ({"speculators_model_type": "eagle3"}, "speculators_model_type='eagle3' is not a DFlash drafter"),
    ({"speculators_model_type": ABSENT}, "speculators_model_type=None is not a DFlash drafter"),
    ({"transformer_layer_config": ABSENT}, "transformer_layer_config is missing"),
    ({"transformer_layer_config": 3}, "transformer_layer_config=3 must be an object"),
    ({LAYER + "hidden_size": "x"}, "transformer_layer_config.hidden_size='x' must be a whole number"),
    ({LAYER + "hidden_size": ABSENT}, "hidden_size is missing: it belongs in transformer_layer_config"),
    ({LAYER + "sliding_window": None}, "sliding_window is missing"),
    ({LAYER + "layer_types": []}, "transformer_layer_config.layer_types has 0 entries"),
    ({"aux_hidden_state_layer_ids": None}, "aux_hidden_state_layer_ids is missing"),
    ({"aux_hidden_state_layer_ids": [2, 2]}, "aux_hidden_state_layer_ids names layer 2 twice"),
    ({"mask_token_id": None}, "mask_token_id is missing"),
    ({"draft_vocab_size": 101}, "draft_vocab_size=101 is larger than vocab_size=100"),
    ({"draft_vocab_size": 0}, "draft_vocab_size=0 is out of range"),
    ({"sample_from_anchor": 1}, "sample_from_anchor=1 must be true or false"),
    ({"speculators_config__verifier": "x"}, "speculators_config.verifier='x' must be an object"),
]

MODELOPT = [
    ({"dflash_config__swa_window_size": ABSENT, "sliding_window": ABSENT}, "sliding_window is missing"),
    ({"dflash_config__swa_window_size": 4}, "sliding_window=4 is smaller than block_size=8"),
    ({"dflash_config__swa_window_size": 0}, "dflash_config.swa_window_size=0 is out of range"),
    ({"dflash_config__use_swa": 1}, "dflash_config.use_swa=1 must be true or false"),
]

CASES = [
    *((SMALL, *case) for case in ZLAB),
    *((SMALL_SPECULATORS, *case) for case in SPECULATORS),
    *((SMALL_MODELOPT, *case) for case in MODELOPT),
]


@pytest.mark.parametrize(("config", "changes", "message"), CASES, ids=[c[2][:50] for c in CASES])
def test_broken_setting(config: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_spec(changed(config, **changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 240


NOT_DRAFTERS: list[tuple[bytes, str]] = [
    (b"", "line 1, column 1: is empty"),
    (b"  \n ", "is empty"),
    (b"{}", "not {}"),
    (b"[1, 2]", "not [1, 2]"),
    (b'"' + b"x" * 3_000_000 + b'"', "a drafter's config is a JSON object"),
    (b'{"a": 1,\n  "b": }', "line 2, column 8: not JSON"),
    (b'{"a": 1} x', "line 1, column 10: not JSON"),
    (b"\xff\xfe{}", "not UTF-8 text (byte 0)"),
    (b"[" * 100_000, "RecursionError"),
    (b'{"a": ' + b"9" * 5000 + b"}", "ValueError"),
    (b'{"block_size": 8, "block_size": 16}', "key 'block_size' appears twice"),
    (b'{"architectures": ["LlamaForCausalLM"]}', "not a DFlash drafter (architectures=['LlamaForCausalLM'])"),
    (b'{"vocab_size": 10}', "not a DFlash drafter (keys ['vocab_size'])"),
    (b" " * (MAX_CONFIG_BYTES + 1), "is too large for a drafter's config.json"),
]


@pytest.mark.parametrize(("content", "message"), NOT_DRAFTERS, ids=[m[:40] for _, m in NOT_DRAFTERS])
def test_file_that_is_no_drafter(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(SpecError) as caught:
        read_spec(tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path / "config.json") in str(caught.value)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


def test_errors_name_the_file_once(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(changed(SMALL, block_size=1)))
    with pytest.raises(SpecError) as caught:
        read_spec(path)
    assert str(caught.value).startswith(f"{path}: block_size=1 ")
    assert str(caught.value).count(str(path)) == 1


def test_folder_file_and_content_are_read_alike(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    assert read_spec(tmp_path) == read_spec(str(tmp_path / "config.json")) == read_spec(SMALL)


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        read_spec(tmp_path)
    for path in (tmp_path / "absent", "x" * 100_000, "a\0b"):
        with pytest.raises(UsageError):
            read_spec(path)
    with pytest.raises(UsageError, match="is not a drafter"):
        read_spec(3)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="empty"):
        read_spec({})
