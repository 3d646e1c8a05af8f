"""Weights against configuration, from file headers only."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof.drafters.formats import read_spec
from draftproof.drafters.formats.safetensors_header import INDEX, SINGLE, read_file
from draftproof.drafters.tensors import WeightsInfo, check_tensors, expected_tensors
from draftproof.errors import CheckpointError, UsageError

from .spec_samples import (
    MIMO,
    QWEN38_27B_DFLASH2,
    SMALL,
    SMALL_SPECULATORS,
    Tensors,
    changed,
    tensors_of,
    write_safetensors,
)

GOOD = read_spec(SMALL)
REDUCED = read_spec(changed(SMALL_SPECULATORS, draft_vocab_size=40))
BIASED = read_spec(changed(SMALL, attention_bias=True))


def check(folder: Path, tensors: Tensors, spec: Any = GOOD) -> WeightsInfo:
    write_safetensors(folder / SINGLE, tensors)
    return check_tensors(spec, folder)


def test_good_checkpoint(tmp_path: Path) -> None:
    info = check(tmp_path, tensors_of(GOOD))
    assert info.warnings == info.unexpected == ()
    assert (info.dtype, info.prefix, info.mask_embedding) == ("BF16", "", None)
    assert not (info.has_own_head or info.has_own_embedding or info.has_vocabulary_map)
    assert info.bytes == 2 * info.parameters
    assert info.parameters == sum(t.end - t.start for t in info.tensors.values()) // 2
    assert check_tensors(GOOD, tmp_path / SINGLE) == info


def test_expected_names_and_shapes() -> None:
    shapes = expected_tensors(GOOD)
    assert len(shapes) == 3 + 3 * 11
    assert shapes["fc.weight"] == (32, 96)
    assert shapes["layers.2.self_attn.k_proj.weight"] == (16, 32)
    assert shapes["layers.0.self_attn.o_proj.weight"] == (32, 32)
    assert shapes["layers.0.self_attn.q_norm.weight"] == (8,)
    assert shapes["layers.1.mlp.down_proj.weight"] == (32, 48)
    wider = read_spec(changed(SMALL, target_hidden_size=64))
    assert expected_tensors(wider)["fc.weight"] == (32, 192), "a tap is as wide as the target"
    assert expected_tensors(BIASED)["layers.0.self_attn.v_proj.bias"] == (16,)
    assert expected_tensors(REDUCED)["lm_head.weight"] == (40, 32)
    two = expected_tensors(read_spec(QWEN38_27B_DFLASH2))
    assert two["layers.4.mlp_conv.kernel_projection.weight"] == (2 * 2 * 5120 // 16, 5120)
    assert two["candidate_selector.successor_codebook"] == (248320, 256)
    assert expected_tensors(read_spec(MIMO))["layers.0.self_attn.attention_sink_bias"] == (32,)


def without(tensors: Tensors, *names: str) -> Tensors:
    return {k: v for k, v in tensors.items() if k not in names}


MISFITS: list[tuple[Any, Callable[[Tensors], Tensors], str]] = [
    (GOOD, lambda t: without(t, "norm.weight"), "norm.weight is missing (35 tensors found)"),
    (GOOD, lambda t: without(t, "norm.weight", "fc.weight"), "fc.weight, norm.weight are missing"),
    (
        GOOD,
        lambda t: {k: v for k, v in t.items() if not k.startswith("layers.2.")},
        "and 8 more are missing (25 tensors found); the files hold 2 layers, num_hidden_layers=3",
    ),
    (
        GOOD,
        lambda t: {**t, "fc.weight": ("BF16", (32, 160))},
        "fc.weight is [32, 160], the config says [32, 96] (hidden_size, 3 taps × target width 32): "
        "these weights were trained with 5 taps",
    ),
    (GOOD, lambda t: {**t, "fc.weight": ("BF16", (32, 150))}, "trained for a target 50 wide"),
    (GOOD, lambda t: {**t, "fc.weight": ("BF16", (16, 96))}, "3 taps × target width 32)"),
    (GOOD, lambda t: {**t, "fc.weight": ("BF16", (3072,))}, "fc.weight is [3072]"),
    (
        GOOD,
        lambda t: {**t, "layers.0.self_attn.q_norm.weight": ("BF16", (32,))},
        "layers.0.self_attn.q_norm.weight is [32], the config says [8]",
    ),
    (
        GOOD,
        lambda t: {**t, "norm.weight": ("F8_E4M3", (32,))},
        "norm.weight is stored as F8_E4M3: allowed are F32",
    ),
    (GOOD, lambda t: {**t, "lm_head.weight": ("BF16", (40, 32))}, "lm_head.weight is [40, 32]"),
    (GOOD, lambda t: {**t, "embed_tokens.weight": ("BF16", (99, 32))}, "embed_tokens.weight is [99, 32]"),
    (BIASED, lambda t: without(t, "layers.1.self_attn.o_proj.bias"), "o_proj.bias is missing"),
    (REDUCED, lambda t: without(t, "d2t"), "draft_vocab_size=40 needs lm_head.weight and d2t"),
    (REDUCED, lambda t: without(t, "lm_head.weight"), "draft_vocab_size=40 needs lm_head.weight and d2t"),
    (REDUCED, lambda t: {**t, "d2t": ("I32", (40,))}, "d2t is stored as I32: allowed are I64"),
    (REDUCED, lambda t: {**t, "t2d": ("BOOL", (40,))}, "t2d is [40], the config says [100]"),
    (
        GOOD,
        lambda t: {(k if "layers.0" in k else f"model.{k}"): v for k, v in t.items()},
        "lacks the prefix 'model.' that fc.weight has",
    ),
    (
        GOOD,
        lambda t: {f"model.{k}": v for k, v in t.items()} | {"norm.weight": t["norm.weight"]},
        "norm.weight is stored twice",
    ),
]


@pytest.mark.parametrize(("spec", "change", "message"), MISFITS, ids=[m[:50] for _, _, m in MISFITS])
def test_misfit(tmp_path: Path, spec: Any, change: Callable[[Tensors], Tensors], message: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        check(tmp_path, change(tensors_of(spec)), spec)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_reduced_vocabulary(tmp_path: Path) -> None:
    info = check(tmp_path, {**tensors_of(REDUCED), "t2d": ("BOOL", (100,))}, REDUCED)
    assert info.has_own_head and info.has_vocabulary_map
    assert info.warnings == ()
    assert not check(tmp_path, tensors_of(REDUCED), REDUCED).warnings, "t2d is not needed"


def test_optional_tensors_are_not_unexpected(tmp_path: Path) -> None:
    extra: Tensors = {
        "lm_head.weight": ("BF16", (100, 32)),
        "embed_tokens.weight": ("BF16", (100, 32)),
        "mask_embedding": ("BF16", (32,)),
    }
    info = check(tmp_path, tensors_of(GOOD) | extra)
    assert info.has_own_head and info.has_own_embedding
    assert info.mask_embedding == "mask_embedding"
    assert info.warnings == info.unexpected == ()


@pytest.mark.parametrize("outside", [[], ["lm_head.weight"]])
def test_consistent_prefix_is_removed(tmp_path: Path, outside: list[str]) -> None:
    tensors = tensors_of(REDUCED)
    stored = {(k if k in ("d2t", *outside) else f"model.{k}"): v for k, v in tensors.items()}
    info = check(tmp_path, stored, REDUCED)
    assert info.prefix == "model."
    assert set(info.tensors) == set(tensors)
    assert info.tensors["fc.weight"].name == "model.fc.weight"


@pytest.mark.parametrize(
    ("extra", "warning"),
    [
        ({"norm.weight": ("F32", (32,))}, "different types: 35 BF16, 1 F32"),
        (
            {"layers.0.self_attn.q_proj.bias": ("BF16", (32,))},
            "q_proj.bias is not used: attention_bias=False",
        ),
        ({"d2t": ("I64", (100,))}, "d2t is not used"),
        ({"extra.weight": ("BF16", (1,))}, "extra.weight is in the files but not read"),
    ],
)
def test_warnings(tmp_path: Path, extra: Tensors, warning: str) -> None:
    (only,) = check(tmp_path, tensors_of(GOOD) | extra).warnings
    assert warning in only


def test_mask_embedding_beside_the_weights(tmp_path: Path) -> None:
    (tmp_path / "mask_embedding.pt").write_bytes(b"x")
    assert check(tmp_path, tensors_of(GOOD)).mask_embedding == "mask_embedding.pt"
    both = check(tmp_path, tensors_of(GOOD) | {"mask_embedding": ("BF16", (1, 32))})
    assert both.mask_embedding == "mask_embedding"
    assert "mask_embedding.pt is not used" in both.warnings[0]


# --- folders and files ---


def shard(folder: Path, **changes: Any) -> Path:
    """The good checkpoint in two files with an index."""
    tensors = tensors_of(GOOD)
    names = list(tensors)
    parts = {"a.safetensors": names[:10], "b.safetensors": names[10:]}
    for file, part in parts.items():
        write_safetensors(folder / file, {n: tensors[n] for n in part})
    places = {n: file for file, part in parts.items() for n in part} | changes
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


def test_sharded(tmp_path: Path) -> None:
    info = check_tensors(GOOD, shard(tmp_path))
    assert {t.file.name for t in info.tensors.values()} == {"a.safetensors", "b.safetensors"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm.weight": "c.safetensors"}, "c.safetensors is missing, although"),
        ({"ghost": "a.safetensors"}, "a.safetensors does not hold 'ghost'"),
        ({"norm.weight": "../a.safetensors"}, "is not the name of a file beside the index"),
        ({"norm.weight": 3}, "3 is not the name of a file"),
    ],
)
def test_broken_index(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        check_tensors(GOOD, shard(tmp_path, **changes))


def test_index_that_is_none(tmp_path: Path) -> None:
    for content in ("[]", "{}", '{"weight_map": {}}', "{"):
        (shard(tmp_path) / INDEX).write_text(content)
        with pytest.raises(CheckpointError):
            check_tensors(GOOD, tmp_path)


def test_folders_without_usable_weights(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        check_tensors(GOOD, tmp_path / "absent")
    with pytest.raises(CheckpointError, match="has no weights"):
        check_tensors(GOOD, tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin is not read"):
        check_tensors(GOOD, tmp_path)
    (shard(tmp_path) / INDEX).unlink()
    with pytest.raises(CheckpointError, match="2 safetensors files but no"):
        check_tensors(GOOD, tmp_path)
    (tmp_path / "a.safetensors").unlink()
    with pytest.raises(CheckpointError, match="missing"):  # the lone file is read, and lacks the others
        check_tensors(GOOD, tmp_path)


def raw(header: object, data: int = 0) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


DAMAGED = [
    (b"", "is truncated: 0 bytes, at least 8 are expected"),
    (b"1234567", "is truncated: 7 bytes"),
    (struct.pack("<Q", 50) + b"{}", "its header alone needs 58 bytes, it has 10"),
    (struct.pack("<Q", 2**60) + b"{}", "is not a safetensors file"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "is a Git LFS pointer"),
    (raw({"a": entry()}, 7), "is truncated: "),
    (raw({"a": entry()}, 9), "are expected: it is damaged"),
    (raw({"a": entry(offsets=(0, 4))}, 4), "'a' needs 8 bytes (F32 [2]), its header gives it 4"),
    (raw({"a": entry(offsets=(8, 0))}, 8), "its header gives it -8"),
    (raw({"a": entry(offsets=(4, 12))}, 12), "damaged header"),
    (raw({"a": entry(), "b": entry()}, 8), "damaged header"),
    (raw({"a": entry(dtype="Q4")}, 8), "unknown type 'Q4'"),
    (raw({"a": entry(dtype=None)}, 8), "is damaged"),
    (raw({"a": entry(shape=[-2])}, 8), "is damaged"),
    (raw({"a": entry(shape=[2.0])}, 8), "is damaged"),
    (raw({"a": entry(offsets=[0])}, 8), "is damaged"),
    (raw({"a": entry(shape=[2**62] * 9)}, 8), "'a' needs"),
    (raw({"a": 3}), "is damaged: 3"),
    (raw([]), "its header is [], not an object"),
    (raw(b"{"), "is not JSON"),
    (raw(b"\xff\xff"), "is not JSON"),
    (raw(b'{"a": 1, "a": 1}'), "names 'a' twice"),
    (raw(b"[" * 10_000), "is not JSON (RecursionError)"),
]


@pytest.mark.parametrize(("content", "message"), DAMAGED, ids=[m[:40] for _, m in DAMAGED])
def test_damaged_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / SINGLE
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_file(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_empty_tensors_and_metadata_are_fine(tmp_path: Path) -> None:
    path = tmp_path / SINGLE
    path.write_bytes(raw({"__metadata__": {"x": "y"}, "a": entry(shape=[0, 3], offsets=[0, 0]), "b": entry()}, 8))
    assert [t.shape for t in read_file(path).values()] == [(0, 3), (2,)]
