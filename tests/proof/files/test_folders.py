"""Folders of drafters and targets become facts with their places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftproof.errors import DraftproofError, UnavailableError
from draftproof.proof import tensors
from draftproof.proof.case import Case
from draftproof.proof.files import hub
from draftproof.proof.files.drafter import read_drafter
from draftproof.proof.files.target import read_target
from proof.configs import TARGET, zlab


def header(shapes: dict[str, list[int]]) -> bytes:
    """A safetensors file of bf16 tensors whose data are zeros."""
    position, entries = 0, {}
    for name, shape in shapes.items():
        size = 2
        for n in shape:
            size *= n
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + bytes(position)


SHAPES: dict[str, list[int]] = {"fc.weight": [64, 192], "norm.weight": [64], "hidden_norm.weight": [64]}
SHAPES |= {f"layers.{i}.{part}.weight": [8, 8] for i in range(2) for part in ("a", "b", "c")}


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    folder = tmp_path / "drafter"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(zlab(), indent=1))
    (folder / "model.safetensors").write_bytes(header(SHAPES))
    (folder / "mask_embedding.pt").write_bytes(b"not a pickle that anybody opens")
    return folder


def test_a_folder(drafter: Path) -> None:
    found = read_drafter(str(drafter))
    case = Case(drafter=found.drafter, origins=found.origins)
    assert found.drafter.files == ("config.json", "mask_embedding.pt", "model.safetensors")
    assert tensors.shape(case, "fc.weight") == (64, 192)
    assert tensors.complete(case) and tensors.absent(case, "lm_head.weight")
    assert case.where("drafter.config.block_size").startswith(f"{drafter}/config.json, line ")
    assert "fc.weight" in case.where("drafter.tensors.fc.weight")


def test_a_config_alone(drafter: Path) -> None:
    found = read_drafter(str(drafter / "config.json"))
    assert found.kind == "config" and found.drafter.tensors is None and found.drafter.files is None
    (drafter / "model.safetensors").unlink()
    assert "no model.safetensors" in read_drafter(str(drafter)).notes[0]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: (f / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n"), "LFS"),
        (lambda f: (f / "model.safetensors").write_bytes(header(SHAPES)[:-5]), "truncated"),
        (lambda f: (f / "config.json").unlink(), "no config.json"),
        (lambda f: (f / "config.json").write_text("[]"), "list where an object"),
        (
            lambda f: (
                (f / "model.safetensors").rename(f / "x.safetensors"),
                (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../etc/passwd"}}'),
            ),
            "not the name of a file beside",
        ),
    ],
)
def test_damage_is_one_line(drafter: Path, damage: Any, said: str) -> None:
    damage(drafter)
    with pytest.raises(DraftproofError, match=said) as error:
        read_drafter(str(drafter))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["nowhere", "a/b/c", "../x", "a\nb", "a\0b", "x" * 5000, "~nobody-here/x/y", "o/../n"])
def test_names_that_mean_nothing(name: str) -> None:
    with pytest.raises(DraftproofError) as error:
        read_drafter(name)
    assert "\n" not in str(error.value)


def test_a_target(tmp_path: Path) -> None:
    folder = tmp_path / "T"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TARGET))
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 3]}')
    (folder / "tokenizer.json").write_text(
        json.dumps({"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": [{"id": 500, "content": "<mask>"}]})
    )
    (folder / "README.md").write_text("---\nbase_model:\n- Qwen/Qwen3-8B\nbase_model_relation: finetune\n---\ntext")
    found = read_target(str(folder))
    config = found.target.config or {}
    assert config["base_model"] == "Qwen/Qwen3-8B" and config["base_model_relation"] == "finetune"
    assert found.tokenizer is not None and found.tokenizer.added == {500: "<mask>"} and found.tokenizer.highest == 500
    assert found.generation["eos_token_id"] == [2, 3] and not found.notes
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer files" in read_target(str(folder)).notes[0]
    (folder / "tokenizer.json").write_text("{")
    assert "not JSON" in read_target(str(folder)).notes[0]


def test_a_cached_repository(drafter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "hub"
    snapshot = cache / "models--owner--name" / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    drafter.rename(snapshot)
    refs = cache / "models--owner--name" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(cache), raising=False)
    monkeypatch.setattr(hub, "_must_resolve", refuse)
    found = read_drafter("owner/name")
    assert found.kind == "hub" and found.drafter.revision == "0" * 40 and found.drafter.tensors is not None
    assert found.origins["drafter.config.block_size"].startswith("owner/name@000000000000/config.json, line")
    with pytest.raises(UnavailableError, match="neither cached"):
        read_drafter("owner/other")


def refuse() -> None:
    raise UnavailableError("no network in tests")
