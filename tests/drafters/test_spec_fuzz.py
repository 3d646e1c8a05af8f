"""Whatever a broken file holds, only errors with a remedy come out; and none of this needs torch."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftproof.drafters.formats import read_spec
from draftproof.drafters.formats.safetensors_header import SINGLE
from draftproof.drafters.tensors import check_pair, check_tensors
from draftproof.errors import CheckpointError, DraftproofError

from .spec_samples import (
    MIMO,
    QWEN35_4B,
    QWEN38_27B_DFLASH2,
    SMALL,
    SMALL_MODELOPT,
    SMALL_SPECULATORS,
    tensors_of,
    write_safetensors,
)

BASES = [SMALL, SMALL_SPECULATORS, SMALL_MODELOPT, QWEN35_4B, QWEN38_27B_DFLASH2, MIMO]
TARGET = {"hidden_size": 32, "vocab_size": 100, "num_hidden_layers": 12, "text_config": {"hidden_size": 32}}

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 20)
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["full_attention", "sliding_attention", "yarn", "silu", "dflash", "rope_theta"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)
KNOWN_KEYS = sorted(
    {k for base in BASES for k in base}
    | {k for base in BASES for v in base.values() if isinstance(v, dict) for k in v}
    | {"rope_parameters", "rope_scaling", "is_causal", "quantization_config", "projector_type", "head_dim"}
)


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    if not isinstance(node, dict | list):
        return []
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    return [(node, key) for key in keys] + [place for key in keys for place in places(node[key])]


@st.composite
def mutated(draw: st.DrawFn, bases: list[dict[str, Any]]) -> dict[str, Any]:
    config = copy.deepcopy(draw(st.sampled_from(bases)))
    for _ in range(draw(st.integers(1, 4))):
        spots = places(config)
        if not spots:
            break
        container, key = draw(st.sampled_from(spots))
        action = draw(st.sampled_from(["replace", "remove", "add"]))
        if action == "replace":
            container[key] = draw(values)
        elif action == "remove":
            del container[key]
        elif isinstance(container, dict):
            container[draw(st.sampled_from(KNOWN_KEYS))] = draw(values)
    return config


@settings(max_examples=150, deadline=None)
@given(mutated(BASES), mutated([TARGET]))
def test_mutated_configs(config: dict[str, Any], target: dict[str, Any]) -> None:
    try:
        spec = read_spec(config)
        json.dumps(spec.to_dict())
        lines = [*spec.describe(), *spec.unsupported(), *spec.warnings, *spec.unknown_keys]
        assert all("\n" not in line and len(line) < 400 for line in lines)
        hash(spec)
        check_pair(spec, target)
    except DraftproofError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 500


@settings(max_examples=100, deadline=None)
@given(values)
def test_any_value_for_a_config(value: Any) -> None:
    with pytest.raises(DraftproofError):
        read_spec(value)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / SINGLE
    return write_safetensors(path, tensors_of(read_spec(SMALL))).read_bytes()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_truncated_weights(checkpoint: bytes, tmp_path: Path, data: st.DataObject) -> None:
    header = 8 + int.from_bytes(checkpoint[:8], "little")
    cut = data.draw(st.integers(0, header) | st.integers(0, len(checkpoint) - 1))
    (tmp_path / SINGLE).write_bytes(checkpoint[:cut])
    with pytest.raises(CheckpointError) as caught:
        check_tensors(read_spec(SMALL), tmp_path)
    assert "truncated" in str(caught.value)
    assert str(tmp_path / SINGLE) in str(caught.value)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_flipped_bytes_in_the_header(checkpoint: bytes, tmp_path: Path, data: st.DataObject) -> None:
    header = 8 + int.from_bytes(checkpoint[:8], "little")
    broken = bytearray(checkpoint)
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(0, header - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / SINGLE).write_bytes(broken)
    try:
        check_tensors(read_spec(SMALL), tmp_path)
    except DraftproofError as error:
        assert "\n" not in str(error)


def test_no_torch_is_imported() -> None:
    code = (
        "import sys, draftproof.drafters.formats, draftproof.drafters.tensors, draftproof.drafters.spec\n"
        "heavy = {'torch', 'transformers', 'numpy', 'safetensors', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
