"""Runs on a tiny target: resuming, stopping, what is written, what is refused."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from draftproof.errors import CheckpointError, MismatchError, UsageError
from draftproof.train.answers import AnswerOptions
from draftproof.train.checkpoint import LAST, load_state
from draftproof.train.config import TrainConfig, load_settings
from draftproof.train.run import TrainRun
from draftproof.train.trainer import DivergedError, Trainer
from support.tiny import tiny_model

from .tiny import TAPS, record

SMALL = TrainConfig(
    layers=2,
    window=8,
    block_size=6,
    taps=TAPS,
    mask_token_id=5,
    draft_vocab=60,
    negatives=8,
    sequences=3,
    anchors=4,
    rows=(6, 4),
    steps=12,
    warmup=3,
    save_every=5,
    eval_every=100,
    eval_prompts=0,
    held_out=0,
    lr=3e-3,
)


def run_in(folder, config=SMALL, **options):
    model = tiny_model("llama")
    return TrainRun("tiny", model, None, folder, config, AnswerOptions(), torch.device("cpu"), **options)


@pytest.fixture
def answered(tmp_path):
    def make(name):
        record(tmp_path / name / "answers")
        return tmp_path / name

    return make


def test_resuming_equals_not_stopping(answered):
    whole, parted = answered("whole"), answered("parted")
    run_in(whole).train()
    with pytest.raises(KeyboardInterrupt):
        run_in(parted, report=Stop(after=1)).train()
    state = load_state(parted / "state")
    assert state is not None and 0 < state["trainer"]["step"] < SMALL.steps
    run_in(parted).train(resume=True)
    first, second = (load_file(f / "drafter" / "model.safetensors") for f in (whole, parted))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[k], second[k]) for k in first)


class Stop:
    """Stands for a kill: raised out of the loop in the middle of an interval."""

    def __init__(self, after):
        self.left = after

    def __call__(self, line):
        self.left -= line["kind"] == "train"
        if self.left <= 0:
            raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr("draftproof.train.run.REPORT_EVERY", 7)
    monkeypatch.setattr("draftproof.train.record.gemm_peak", lambda device: 1e9)


def test_training_lowers_the_loss_and_writes_everything(answered):
    folder = answered("run")
    config = SMALL.but(steps=56, lr=1e-2, init="random")
    drafter = run_in(folder, config).train()
    losses = [json.loads(line)["loss"] for line in (folder / "history.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0] - 0.2
    written = json.loads((drafter / "provenance.json").read_text())
    assert written["training"]["steps"] == 56 and written["data"]["answers"] == 12 and written["versions"]["torch"]
    assert written["training"]["draft_tokens_per_s"] > 0 and written["training"]["share_of_peak"] > 0
    assert "DFlash drafter for tiny" in (drafter / "README.md").read_text()
    config_json = json.loads((drafter / "config.json").read_text())
    assert config_json["is_causal"] is False and config_json["draft_vocab_size"] == 60


def test_a_second_run_needs_resume_and_the_same_settings(answered):
    folder = answered("run")
    run_in(folder).train()
    with pytest.raises(UsageError, match="add --resume"):
        run_in(folder).train()
    with pytest.raises(UsageError, match=r"lr=0\.003"):
        run_in(folder, SMALL.but(lr=1e-4)).train(resume=True)
    run_in(folder, SMALL.but(steps=14)).train(resume=True)


def test_a_loss_that_is_no_number_stops_with_the_batch_named(answered, monkeypatch):
    folder = answered("run")
    original = Trainer._loss

    def poisoned(self, blocks, head, labels):
        loss, hits = original(self, blocks, head, labels)
        return (loss * float("nan") if self.step == 8 else loss), hits

    monkeypatch.setattr(Trainer, "_loss", poisoned)
    with pytest.raises(DivergedError, match=r"step 8: loss=nan.*prompts \["):
        run_in(folder).train()
    state = load_state(folder / "state")
    assert state["trainer"]["step"] == 5
    assert all(torch.isfinite(t).all() for t in state["trainer"]["module"].values())


def test_a_damaged_checkpoint_falls_back_to_the_one_before(answered):
    folder = answered("run")
    run_in(folder).train()
    last = folder / "state" / LAST
    last.write_bytes(last.read_bytes()[:1000])
    assert load_state(folder / "state")["trainer"]["step"] == 10
    (folder / "state" / "previous.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match="damaged"):
        load_state(folder / "state")


def test_the_target_must_have_the_layers(tmp_path):
    with pytest.raises(MismatchError, match="4 layers"):
        run_in(tmp_path, SMALL.but(taps=(1, 9)))
    with pytest.raises(MismatchError, match="6 layers wanted"):
        record(tmp_path / "answers")
        run_in(tmp_path, SMALL.but(layers=6, init="target")).train()


def test_answers_recorded_with_other_taps_are_refused(answered):
    with pytest.raises(MismatchError, match=r"\[4\]"):
        run_in(answered("run"), SMALL.but(taps=(1, 4))).train()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("layer: 3", "unknown setting layer"),
        ("layers: three", "whole number"),
        ("- 1", "name: value"),
        ("lr: [", "not YAML"),
        ("lr: -1", "above 0"),
        ("rows: [9]", "2 to block_size"),
        ("answers: {batches: 3}", "unknown setting answers.batches"),
        ("answers: {batch: 0}", "at least 1"),
    ],
)
def test_bad_settings_are_one_line(tmp_path, text, said):
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        load_settings(file)


def test_flags_come_after_the_file(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("lr: 1\nrows: [8, 6]\nanswers:\n  batch: 4\n")
    config, answers = load_settings(file, steps=7, init=None)
    assert (config.lr, config.rows, config.steps, answers.batch) == (1.0, (8, 6), 7, 4)


def test_every_setting_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "train.md").read_text(encoding="utf-8")
    for kind in (TrainConfig, AnswerOptions):
        assert all(f"`{f.name}`" in text for f in fields(kind) if f.name not in ("seed",)), kind
    config = TrainConfig()
    assert str(config.draft_vocab) in text and str(config.negatives) in text
