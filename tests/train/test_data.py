"""Loops, prompts, shards, batches and losses."""

from __future__ import annotations

import errno
import json
import math

import pytest
import torch

from draftproof.errors import CheckpointError, UnavailableError, UsageError
from draftproof.train import shards
from draftproof.train.batches import AnswerSet, make_blocks
from draftproof.train.loops import loop_start
from draftproof.train.losses import block_loss, decay_weights, dpace_weights, head_loss
from draftproof.train.prompts import MIX, template_prompts
from draftproof.train.shards import ShardWriter, read_manifest, read_shards
from draftproof.train.sources import mix, open_source
from support.tiny import VOCAB

from .tiny import record

COLUMNS = [slice(0, 32), slice(32, 64), slice(64, 96)]


def test_a_loop_is_found_where_it_starts():
    text = list(range(100, 160))
    assert loop_start(text) is None
    start = loop_start(text + text[:10] * 12)
    assert start is not None and 60 <= start <= 70
    counting = text + [t for i in range(14) for t in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 200 + i, 13)]
    assert loop_start(counting, share=0.5) is not None
    assert loop_start(text + text[:20]) is None, "quoting a sentence once is no loop"


def test_templates_are_many_different_and_reproducible():
    made = list(template_prompts(3000, seed=4))
    assert made == list(template_prompts(3000, seed=4))
    assert len({text for _, text in made}) == 3000
    shares = {kind: sum(k == kind for k, _ in made) / 3000 for kind, _ in MIX}
    assert all(shares[kind] > share / 2 for kind, share in MIX), shares
    assert all(text.strip() and text.count("{") == text.count("}") for _, text in made)


def test_docstring_examples_are_true():
    checked = 0
    for _, text in template_prompts(400, seed=2, kinds=("code-head",)):
        body = text.split(">>>", 1)
        checked += len(body) > 1 and "    " in body[1]
    assert checked > 200


def test_any_beginning_of_the_mix_has_the_mix(tmp_path):
    file = tmp_path / "q.jsonl"
    file.write_text("\n".join(json.dumps({"question": f"How many is {i}?"}) for i in range(300)))
    sources = [open_source(f"{file}=0.3", 0), open_source("templates:600=0.7", 0)]
    stream = list(mix(sources, 0))
    assert [p.index for p in stream] == list(range(900))
    assert len({p.messages[0]["content"] for p in stream}) == 900
    assert 0.2 < sum(p.source == "q" for p in stream[:200]) / 200 < 0.4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("templates:x", "whole number"),
        ("templates:5=0", "above 0"),
        ("templates:5=a", "no number"),
        ("no.jsonl", "no.jsonl"),
    ],
)
def test_bad_sources_are_one_line(text, said):
    with pytest.raises(UsageError, match=said):
        open_source(text, 0)


@pytest.mark.parametrize(
    ("content", "said"), [("", "no prompts"), ("hello", "not JSON"), ('{"a": 1}', "none of the fields")]
)
def test_bad_prompt_files_are_one_line(tmp_path, content, said):
    file = tmp_path / "p.jsonl"
    file.write_text(content)
    with pytest.raises(UsageError, match=said):
        open_source(str(file), 0)


def test_shards_come_back_as_they_were(tmp_path):
    record(tmp_path)
    entries = read_manifest(tmp_path)
    assert len(entries) == 2 and sum(e.tokens for e in entries) == sum(
        int(s["lengths"].sum()) for s in read_shards(tmp_path, entries, verify=True)
    )
    header = json.loads((tmp_path / "cache.json").read_text())
    assert ShardWriter(tmp_path, header).done == set(range(12))
    with pytest.raises(UsageError, match="hidden_size"):
        ShardWriter(tmp_path, header | {"hidden_size": 64})


def test_a_damaged_shard_is_named(tmp_path):
    record(tmp_path)
    entries = read_manifest(tmp_path)
    file = tmp_path / entries[1].file
    file.write_bytes(file.read_bytes()[:-10] + b"0123456789")
    with pytest.raises(CheckpointError, match="shard-00001"):
        list(read_shards(tmp_path, entries, verify=True))
    file.write_bytes(b"short")
    with pytest.raises(CheckpointError, match="shard-00001"):
        list(read_shards(tmp_path, entries))


def test_a_full_disk_leaves_what_was_written(tmp_path, monkeypatch):
    record(tmp_path, count=4)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shards.os, "fsync", full)
    with pytest.raises(UnavailableError, match="disk is full"):
        shards.write_whole(tmp_path / "shard-00002.safetensors", b"x" * 100)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_labels_stand_beside_their_slots(tmp_path):
    answers = AnswerSet(record(tmp_path), COLUMNS, final=COLUMNS[2])
    chosen = answers.chosen(0, 4, seed=1)
    blocks, labels = make_blocks(answers, chosen, anchors=6, rows=5, key="a")
    assert blocks.taps.shape[1] == int(blocks.anchors.max())
    for i, sequence in enumerate(chosen):
        ids = sequence.tokens.tolist()
        for j, anchor in enumerate(blocks.anchors[i].tolist()):
            assert sequence.prompt_length <= anchor <= len(ids) - 2
            assert int(blocks.tokens[i, j]) == ids[anchor]
            for slot in range(1, 5):
                expected = ids[anchor + slot] if anchor + slot < len(ids) else -1
                assert int(labels.ids[i, j, slot - 1]) == expected
                if expected >= 0:  # the state that yields this token stands one position earlier
                    assert torch.equal(labels.states[i, j, slot - 1], sequence.taps[anchor + slot - 1, COLUMNS[2]])
        last = int(blocks.anchors[i].max())
        assert torch.equal(blocks.taps[i, :last], sequence.taps[:last])


def test_an_epoch_visits_everything_once(tmp_path):
    answers = AnswerSet(record(tmp_path), COLUMNS)
    seen = [s.index for step in range(3) for s in answers.chosen(step, 4, seed=0)]
    assert sorted(seen) == list(range(12))
    assert [s.index for s in answers.chosen(1, 4, 0)] == seen[4:8]


def test_sampled_answers_can_be_left_out(tmp_path):
    record(tmp_path)
    manifest = tmp_path / "manifest.jsonl"
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    lines[0]["answers"][2]["temperature"] = 0.7
    manifest.write_text("\n".join(map(json.dumps, lines)))
    kept = {s.index for s in AnswerSet(tmp_path, COLUMNS, greedy=True).sequences}
    assert kept == set(range(12)) - {2}


def test_weights_of_the_losses():
    assert decay_weights(3, 4.0).tolist() == pytest.approx([1.0, math.exp(-0.25), math.exp(-0.5)])
    got = dpace_weights(torch.tensor([0.8, 0.5]), alpha=0.5)  # smooth 0.9, 0.75
    assert got.tolist() == pytest.approx([0.9 + 0.9 * 0.75, 0.9 * 0.75])
    assert dpace_weights(torch.tensor([1.0, 1.0, 1.0]), 0.0).tolist() == [3.0, 2.0, 1.0]


@pytest.mark.parametrize("kind", ["dpace", "decay"])
def test_slots_after_an_unknown_label_do_not_count(kind):
    logits = torch.randn(1, 1, 4, VOCAB, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss, hits = block_loss(logits, torch.tensor([[[3, -1, 5, 6]]]), kind=kind)
    loss.backward()
    assert logits.grad[0, 0, 0].abs().sum() > 0 and logits.grad[0, 0, 1:].abs().sum() == 0
    assert not hits[0, 0, 1:].any()


def test_a_soft_label_is_the_targets_distribution():
    random = torch.Generator().manual_seed(0)
    logits, teacher = (torch.randn(1, 1, 1, VOCAB, generator=random) for _ in range(2))
    label = teacher.argmax(-1)
    hard, _ = block_loss(logits, label, kind="decay")
    soft, _ = block_loss(logits, label, kind="decay", teacher=teacher, soft=1.0)
    half, _ = block_loss(logits, label, kind="decay", teacher=teacher, soft=0.5)
    expected = -(teacher.softmax(-1) * logits.log_softmax(-1)).sum()
    assert float(soft) == pytest.approx(float(expected), rel=1e-5)
    assert float(half) == pytest.approx((float(hard) + float(soft)) / 2, rel=1e-5)


@pytest.mark.parametrize("soft", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("kind", ["dpace", "decay"])
def test_the_loss_through_the_head_equals_that_of_its_logits(kind, soft):
    random = torch.Generator().manual_seed(0)
    head = torch.randn(VOCAB, 16, generator=random)
    labels = torch.randint(-1, VOCAB, (3, 5, 4), generator=random)
    states = torch.randn(3, 5, 4, 16, generator=random)
    mine, naive = (torch.randn(3, 5, 4, 16, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    mine, naive = mine.requires_grad_(), naive.requires_grad_()
    loss, hits = head_loss(mine, head, labels, kind=kind, states=states, soft=soft, blocks_at_once=4)
    wanted, wanted_hits = block_loss(naive @ head.T, labels, kind=kind, teacher=states @ head.T, soft=soft)
    (3 * loss).backward()
    (3 * wanted).backward()
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(mine.grad, naive.grad)
    assert torch.equal(hits, wanted_hits) and mine.grad.abs().sum() > 0
