"""A drafter's config.json as people really give it: one line each says what is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.errors import DraftproofError
from draftproof.proof.install.drafter import read_config
from draftproof.proof.install.probe import meaning
from draftproof.proof.install.rows import described, short, together

BAD: dict[str, tuple[Any, str]] = {
    "no JSON": (b'{"a":\n oops}', "line 2, column 2"),
    "a list": (b"[1, 2]", "is a list"),
    "NaN": (b'{"a": NaN}', "NaN"),
    "infinity": (b'{"a": -Infinity}', "Infinity"),
    "no text": (b"\xff\xfe{}", "UTF-8"),
    "too deep": (b'{"a":' * 100_000, "nested|line 1"),
    "too large": (b'{"a": "' + b"x" * (10 << 20) + b'"}', "bytes"),
    "empty": (b"", "line 1, column 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_config_that_is_none_is_one_line(name: str, tmp_path: Path) -> None:
    data, said = BAD[name]
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(DraftproofError, match=said) as caught:
        read_config(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_folders_and_files_that_cannot_be_read(tmp_path: Path) -> None:
    loop = tmp_path / "config.json"
    loop.symlink_to(loop.name)
    for name in (str(tmp_path), str(loop), str(tmp_path / "nowhere"), os.devnull + "/x"):
        with pytest.raises(DraftproofError):
            read_config(name)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "dflash_config",
        "layer_types",
        "num_hidden_layers",
        "sliding_window",
        "is_causal",
        "rope_parameters",
        "speculators_model_type",
        "transformer_layer_config",
        "aux_hidden_state_layer_ids",
        "target_layer_ids",
        "use_swa",
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_what_a_hostile_config_means_is_told_or_left_out(config: dict[str, Any]) -> None:
    meaning.hidden_states(config)
    meaning.layers(config)
    meaning.rope_theta(meaning.layers_config(config))
    json.dumps(meaning.plain(config))
    short(meaning.plain(config))


def test_what_files_mean() -> None:
    types = ["sliding_attention", "full_attention"]
    zlab = {"layer_types": types, "sliding_window": 8, "num_hidden_layers": 2}
    taps = {"dflash_config": {"target_layer_ids": [1, 9]}}
    assert meaning.hidden_states(taps) == [2, 10]
    assert meaning.layers(zlab) == [(8, True), (None, False)]
    assert meaning.layers({**zlab, "is_causal": False}) == [(8, False), (None, False)]
    speculators = {
        "speculators_model_type": "dflash",
        "transformer_layer_config": zlab,
        "aux_hidden_state_layer_ids": [2],
    }
    assert meaning.hidden_states(speculators) == [2]
    assert meaning.layers({**speculators, "sliding_window_non_causal": True}) == [(8, False), (None, False)]


def test_like_layers_become_one_row() -> None:
    rows = [meaning.row(f"layer {i}", "window 8", "full" if i != 2 else "window 8") for i in range(5)]
    rows.insert(0, meaning.row("layer_types", ["a", "a", "b"], ["a", "a", "b"]))
    merged = together(rows)
    assert [row["field"] for row in merged] == ["layer_types", "layers 0–1, 3–4", "layer 2"]
    assert described(merged[1]).startswith("layers 0–1, 3–4: the file means window 8, the engine sees full")
    assert short(rows[0]["file"]) == "2 × a, b"
