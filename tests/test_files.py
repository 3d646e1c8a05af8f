"""From files on disk to text: targets and drafters as users have them, whole and damaged."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from draftproof import Engine, SamplingParams
from draftproof.drafters.loading import random_weights
from draftproof.drafters.spec import DrafterSpec, LayerSpec
from draftproof.engine.options import EngineOptions
from draftproof.errors import (
    CheckpointError,
    DraftproofError,
    MismatchError,
    SpecError,
    UnavailableError,
    UsageError,
)
from draftproof.targets.open import wrap_model
from support.folders import save_speculators, save_target, save_zlab, tensors_of, zlab_config
from support.tiny import VOCAB, drafter_spec, naive_greedy, tiny_model

PROMPT = [3, 14, 15, 92, 65, 35]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def spec() -> DrafterSpec:
    return drafter_spec(wrap_model(tiny_model("llama"), EngineOptions()), "sf")


@pytest.fixture
def drafter(tmp_path: Path, spec: DrafterSpec) -> Path:
    return save_zlab(tmp_path / "drafter", spec, weights(spec))


def weights(spec: DrafterSpec, std: float = 0.3) -> Any:
    return random_weights(spec, torch.float32, torch.device("cpu"), 1, std)


def drafts_of(target: Path, drafter: Path) -> list[list[int]]:
    """What a drafter on disk proposes, round by round."""
    engine = Engine(str(target), str(drafter), dtype="float32", length_policy="fixed")
    inner, seen = engine.drafter.propose, []

    def propose(pool: Any, requests: Any) -> Any:
        drafts = inner(pool, requests)
        seen.extend(w.argmax(-1).tolist() for d in drafts if (w := d.wide(VOCAB)) is not None)
        return drafts

    engine.drafter.propose = propose
    assert engine.generate(PROMPT, SamplingParams(max_tokens=20))[0].token_ids == naive_greedy(
        tiny_model("llama"), PROMPT, 20
    )
    return seen


def test_formats_of_one_drafter_draft_the_same(target: Path, tmp_path: Path, spec: DrafterSpec) -> None:
    full = replace(spec, layers=tuple(LayerSpec() for _ in spec.layers))
    zlab = save_zlab(tmp_path / "zlab", full, weights(full))
    speculators = save_speculators(tmp_path / "speculators", full, weights(full))
    assert drafts_of(target, speculators) == drafts_of(target, zlab)


def test_a_sliding_window_is_read_as_its_format_means_it(
    target: Path, drafter: Path, tmp_path: Path, spec: DrafterSpec
) -> None:
    """speculators measure it from the anchor, z-lab from each row: with a window of 8 that changes drafts."""
    other = save_speculators(tmp_path / "speculators", spec, weights(spec))
    assert drafts_of(target, other) != drafts_of(target, drafter)


def test_a_reduced_vocabulary_drafts_only_its_ids(target: Path, tmp_path: Path, spec: DrafterSpec) -> None:
    keep = list(range(1, VOCAB, 4))
    made = weights(spec)
    made.head = torch.randn(len(keep), spec.hidden_size, generator=torch.Generator().manual_seed(3))
    drafts = drafts_of(target, save_speculators(tmp_path / "reduced", spec, made, keep))
    assert {t for block in drafts for t in block} <= set(keep)
    assert len({t for block in drafts for t in block}) > 3


def test_random_and_ngram_drafters(target: Path) -> None:
    truth = naive_greedy(tiny_model("llama"), PROMPT, 30)
    for name in ("random", "random:7", "ngram"):
        engine = Engine(str(target), name, dtype="float32", length_policy="fixed")
        assert engine.generate(PROMPT, SamplingParams(max_tokens=30))[0].token_ids == truth


def _edit(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["dflash_config"] |= changes.pop("dflash", {})
    (folder / "config.json").write_text(json.dumps(config | changes))


def _resave(folder: Path, spec: DrafterSpec, change: Any) -> None:
    from safetensors.torch import save_file

    tensors = tensors_of(weights(spec))
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def _truncate(folder: Path, spec: DrafterSpec) -> None:
    os.truncate(folder / "model.safetensors", 5000)


BROKEN: list[tuple[str, Any, type[DraftproofError], str]] = [
    ("no weights", lambda f, s: (f / "model.safetensors").unlink(), CheckpointError, "safetensors"),
    ("truncated", _truncate, CheckpointError, "model.safetensors"),
    ("no config", lambda f, s: (f / "config.json").unlink(), DraftproofError, "config.json"),
    ("config is no JSON", lambda f, s: (f / "config.json").write_text("{oops"), DraftproofError, "line 1"),
    (
        "other width",
        lambda f, s: _edit(f, hidden_size=64),
        DraftproofError,
        "hidden_size|fc.weight|wide|shape|is \\[",
    ),
    ("other vocabulary", lambda f, s: _edit(f, vocab_size=50_000), MismatchError, "vocabulary"),
    ("other layer count", lambda f, s: _edit(f, num_target_layers=36), MismatchError, "36 target layers"),
    (
        "tap beyond",
        lambda f, s: _edit(f, dflash={"target_layer_ids": [0, 1, 9]}),
        DraftproofError,
        "target_layer_ids|tap",
    ),
    ("mask beyond", lambda f, s: _edit(f, dflash={"mask_token_id": VOCAB}), SpecError, "mask_token_id"),
    ("layer types", lambda f, s: _edit(f, layer_types=["full_attention"]), SpecError, "layer_types"),
    ("window gone", lambda f, s: _edit(f, sliding_window=None), SpecError, "window"),
    ("NaN", lambda f, s: _resave(f, s, lambda t: t["fc.weight"].fill_(float("nan"))), CheckpointError, "NaN"),
    (
        "tensor gone",
        lambda f, s: _resave(f, s, lambda t: t.pop("norm.weight")),
        CheckpointError,
        "norm.weight",
    ),
    (
        "integers",
        lambda f, s: _resave(f, s, lambda t: t.update({"fc.weight": torch.zeros(32, 96, dtype=torch.int8)})),
        CheckpointError,
        "I8",
    ),
]


@pytest.mark.parametrize(("name", "damage", "kind", "message"), BROKEN, ids=[b[0] for b in BROKEN])
def test_a_damaged_drafter_is_one_line(
    name: str,
    damage: Any,
    kind: type[DraftproofError],
    message: str,
    target: Path,
    drafter: Path,
    spec: DrafterSpec,
) -> None:
    damage(drafter, spec)
    with pytest.raises(kind, match=message) as caught:
        Engine(str(target), str(drafter))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "empty"),
        ("bundled:gpt5", "unknown bundled model"),
        ("./nowhere", "no such folder or file"),
        ("nowhere.gguf", "no such GGUF file"),
    ],
)
def test_a_target_that_is_not_there(name: str, message: str) -> None:
    with pytest.raises(DraftproofError, match=message):
        Engine(name)


def test_a_hub_id_without_a_network_says_so() -> None:
    with pytest.raises(UnavailableError, match="hub"):
        Engine("someone/some-model")


def test_damaged_targets_are_one_line(target: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(target, copy)
    os.truncate(copy / "model.safetensors", 4000)
    with pytest.raises(CheckpointError) as caught:
        Engine(str(copy))
    assert "\n" not in str(caught.value)
    (copy / "config.json").write_text("{}")
    with pytest.raises(CheckpointError):
        Engine(str(copy))
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        Engine(str(tmp_path / "empty"))


def test_the_wrong_drafter_for_a_target(target: Path, tmp_path: Path, spec: DrafterSpec) -> None:
    wide = replace(spec, hidden_size=64, target_hidden_size=64)
    folder = save_zlab(tmp_path / "wide", wide, weights(wide))
    with pytest.raises(MismatchError, match="wide"):
        Engine(str(target), str(folder))


def test_more_tokens_than_the_block_are_refused(target: Path, drafter: Path) -> None:
    with pytest.raises(UsageError, match="block size 8"):
        Engine(str(target), str(drafter), num_speculative_tokens=8)


def test_zlab_config_helper_is_what_readers_expect(spec: DrafterSpec) -> None:
    from draftproof.drafters.formats import read_spec

    assert read_spec(zlab_config(spec)) == spec
