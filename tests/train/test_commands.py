"""The commands from end to end on a tiny target: prompts to answers to a drafter that engines load and measure."""

from __future__ import annotations

import json

import pytest
import torch

from draftproof.cli.main import main
from draftproof.train.shards import read_manifest, read_shards
from support.folders import save_target

SETTINGS = """
layers: 2
window: 8
block_size: 6
taps: [1, 3, 2]
mask_token_id: 5
draft_vocab: 60
negatives: 8
sequences: 3
anchors: 4
rows: [6, 4]
steps: 6
eval_every: 4
eval_prompts: 3
eval_tokens: 12
held_out: 4
answers: {max_tokens: 16, batch: 4, shard_tokens: 60, sampled: 0.5}
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return save_target(tmp_path_factory.mktemp("target"))


@pytest.fixture
def files(tmp_path):
    (tmp_path / "p.jsonl").write_text("\n".join(json.dumps({"prompt": f"the cat {i} and the dog"}) for i in range(16)))
    (tmp_path / "c.yaml").write_text(SETTINGS)
    return tmp_path


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("draftproof.train.record.gemm_peak", lambda device: 1e9)


def words(files, target, *more):
    flags = ["--target", str(target), "--prompts", str(files / "p.jsonl"), "--out", str(files / "out"), "-q"]
    return ["train", *flags, "--config", str(files / "c.yaml"), "--dtype", "float32", "--device", "cpu", *more]


def test_train_evaluate_convert(files, target, capsys):
    assert main(words(files, target)) == 0
    drafter = capsys.readouterr().out.strip()
    written = json.loads((files / "out" / "drafter" / "provenance.json").read_text())
    assert written["metrics"]["workloads"]["held-out prompts"]["tau"] >= 1.0
    assert written["data"]["sources"][0]["prompts"] == 16
    assert main(["convert", drafter, str(files / "spec"), "--format", "speculators"]) == 0
    capsys.readouterr()
    common = ["-m", str(target), "--prompts", str(files / "p.jsonl"), "--max-tokens", "12", "--device", "cpu", "-q"]
    for folder in (drafter, str(files / "spec")):
        assert main(["evaluate", "-d", folder, *common, "--limit", "5", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["schema_version"] == "draftproof.evaluate/1" and found["workloads"]["p"]["rounds"] > 0
    assert main(["evaluate", "-d", drafter, *common, "--out", str(files / "r.json")]) == 0
    assert "τ" in capsys.readouterr().out and json.loads((files / "r.json").read_text())["provenance"]["seed"] == 0
    assert main(words(files, target, "--resume", "--steps", "8")) == 0


def test_answering_goes_on_where_it_stopped_and_keeps_the_right_taps(files, target, capsys):
    from transformers import AutoModelForCausalLM

    assert main(words(files, target, "--max-answers", "6")) == 0
    first = read_manifest(files / "out" / "answers")
    assert main(words(files, target, "--resume")) == 0
    entries = read_manifest(files / "out" / "answers")
    assert entries[: len(first)] == first
    answered = [a["index"] for e in entries for a in e.answers]
    assert len(answered) == len(set(answered)) and set(answered) <= set(range(16))
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    shard = next(read_shards(files / "out" / "answers", entries))
    length, prompt = int(shard["lengths"][0]), int(shard["prompts"][0])
    ids = shard["tokens"][:length].long()
    with torch.inference_mode():
        out = model(ids[None], output_hidden_states=True)
    expected = torch.cat([out.hidden_states[j][0] for j in (1, 3, 2)], dim=-1)[: length - 1]
    torch.testing.assert_close(shard["taps"][: length - 1].float(), expected, rtol=0.02, atol=0.02)
    if entries[0].answers[0]["temperature"] == 0:
        assert torch.equal(out.logits[0, prompt - 1 : length - 1].argmax(-1), ids[prompt:])


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (["--steps", "0"], 2, "--steps 0"),
        (["--max-minutes", "-1"], 2, "--max-minutes"),
        (["--init", "nowhere"], 2, "nowhere"),
        (["--config", "none.yaml"], 2, "none.yaml"),
    ],
)
def test_bad_input_is_one_line(files, target, capsys, change, code, said):
    assert main(words(files, target, *change)) == code
    error = capsys.readouterr().err
    assert error.startswith("error: ") and said in error and error.count("\n") == 1


def test_empty_prompts_and_missing_drafters(files, target, capsys):
    (files / "p.jsonl").write_text("")
    assert main(words(files, target)) == 2
    assert "no prompts" in capsys.readouterr().err
    assert main(["evaluate", "-m", str(target), "-q"]) == 2
    assert "--drafter" in capsys.readouterr().err
    assert main(["convert", str(files), str(files / "x"), "--format", "zlab", "-q"]) == 2
    assert "config.json" in capsys.readouterr().err


def test_packed_answers_give_the_same_cache_elsewhere(files, target, capsys):
    from draftproof.train.tokens import pack

    assert main(words(files, target)) == 0
    cache = files / "out" / "answers"
    assert pack(cache, files / "packed.safetensors") == sum(len(e.answers) for e in read_manifest(cache))
    flags = ["--target", str(target), "--answers", str(files / "packed.safetensors"), "--out", str(files / "other")]
    more = ["--config", str(files / "c.yaml"), "--dtype", "float32", "--device", "cpu", "-q"]
    assert main(["train", *flags, *more]) == 0
    first, second = (by_index(folder) for folder in (cache, files / "other" / "answers"))
    assert first.keys() == second.keys()
    for index, (ids, taps) in first.items():
        assert torch.equal(ids, second[index][0])
        torch.testing.assert_close(taps.float(), second[index][1].float(), rtol=0.02, atol=0.02)
    (files / "packed.safetensors").write_bytes(b"no")
    assert main(["train", *flags, *more, "--resume"]) == 2
    assert "packed answers" in capsys.readouterr().err


def by_index(folder):
    found = {}
    for shard in read_shards(folder, read_manifest(folder)):
        begin = 0
        for index, length in zip(shard["indices"].tolist(), shard["lengths"].tolist(), strict=True):
            found[index] = (shard["tokens"][begin : begin + length], shard["taps"][begin : begin + length - 1])
            begin += length
    return found
