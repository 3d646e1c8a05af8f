"""GGUF headers: written by the format's own package, read back; damage is named."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.errors import CheckpointError
from draftproof.proof.files import gguf
from draftproof.proof.files.drafter import read_drafter
from draftproof.proof.files.target import read_target
from draftproof.proof.layouts import read_layout


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key: str, kind: int, packed: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + packed


def integers(values: list[int]) -> bytes:
    return struct.pack("<IQ", 5, len(values)) + b"".join(struct.pack("<i", v) for v in values)


def words(values: list[str]) -> bytes:
    return struct.pack("<IQ", 8, len(values)) + b"".join(text(v) for v in values)


DRAFTER = [
    pair("general.architecture", 8, text("dflash")),
    pair("general.name", 8, text("tiny")),
    pair("dflash.block_size", 4, struct.pack("<I", 8)),
    pair("dflash.block_count", 4, struct.pack("<I", 2)),
    pair("dflash.embedding_length", 4, struct.pack("<I", 64)),
    pair("dflash.context_length", 4, struct.pack("<I", 4096)),
    pair("dflash.rope.freq_base", 6, struct.pack("<f", 1e6)),
    pair("dflash.target_layers", 9, integers([2, 6, 10])),
    pair("dflash.attention.sliding_window", 4, struct.pack("<I", 256)),
    pair("dflash.attention.sliding_window_pattern", 9, struct.pack("<IQ??", 7, 2, True, False)),
    pair("dflash.attention.causal", 7, struct.pack("<?", False)),
    pair("tokenizer.ggml.mask_token_id", 4, struct.pack("<I", 500)),
    pair("tokenizer.ggml.tokens", 9, words([f"t{i}" for i in range(5000)])),
]
TENSOR = text("fc.weight") + struct.pack("<IQQIQ", 2, 192, 64, 1, 0)


def whole(pairs: list[bytes], tensors: list[bytes], version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join([*pairs, *tensors])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "d.gguf"
    path.write_bytes(whole(DRAFTER, [TENSOR]))
    return path


def test_a_drafter(file: Path) -> None:
    found = read_drafter(str(file))
    layout = read_layout(found.drafter.config)
    assert found.kind == "gguf" and found.drafter.tensors == {"fc.weight": {"shape": [64, 192], "dtype": "F16"}}
    assert layout.hidden_state_taps == (2, 6, 10) and layout.layer_types == ("sliding_attention", "full_attention")
    assert layout.block is not None and layout.block.value == 8 and layout.vocab_size == 5000
    assert layout.mask is not None and layout.mask.value == 500 and layout.integer("hidden_size") == 64
    assert layout.nested_causal is not None and layout.nested_causal.value is False


def test_a_target(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    pairs = [pair("general.architecture", 8, text("llama")), pair("llama.block_count", 4, struct.pack("<I", 12))]
    path.write_bytes(whole(pairs, []))
    found = read_target(str(path))
    assert found.target.config is not None and found.target.config["num_hidden_layers"] == 12


def test_agrees_with_the_formats_own_package(tmp_path: Path) -> None:
    package = pytest.importorskip("gguf")
    import numpy

    path = tmp_path / "w.gguf"
    writer = package.GGUFWriter(str(path), "dflash")
    writer.add_uint32("dflash.block_size", 16)
    writer.add_array("dflash.target_layers", [2, 10, 18])
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "c"])
    writer.add_tensor("fc.weight", numpy.zeros((4, 12), dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = gguf.read_header(path)
    assert header.metadata["dflash.block_size"] == 16 and header.metadata["dflash.target_layers"] == [2, 10, 18]
    assert header.lengths["tokenizer.ggml.tokens"] == 3
    assert header.tensors["fc.weight"] == {"shape": [4, 12], "dtype": "F32"}


@pytest.mark.parametrize("cut", [0, 3, 7, 20, 60, 400, 30_000])
def test_truncation_is_named(file: Path, cut: int) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:cut])
    with pytest.raises(CheckpointError, match=r"truncated|not a GGUF"):
        gguf.read_header(file)


def test_other_versions_and_types(file: Path) -> None:
    file.write_bytes(whole(DRAFTER, [], version=99))
    with pytest.raises(CheckpointError, match="version 99"):
        gguf.read_header(file)
    file.write_bytes(whole([pair("x", 77, b"")], []))
    with pytest.raises(CheckpointError, match="type 77"):
        gguf.read_header(file)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_never_escapes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    good = bytearray(whole(DRAFTER[:12], [TENSOR]))
    for _ in range(data.draw(st.integers(1, 6))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("g") / "x.gguf"
    path.write_bytes(bytes(good))
    try:
        gguf.read_header(path)
    except CheckpointError as error:
        assert "\n" not in str(error)
