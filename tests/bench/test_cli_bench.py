"""``draftproof bench`` from the command line, on a tiny saved target: files, exit codes, refused flags."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cli.test_docs import tiny_target
from draftproof.bench import exactness as module
from draftproof.bench.results import read_result
from draftproof.bench.ways import timed_run
from draftproof.cli.bench import _peers as all_peers
from draftproof.cli.main import main


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return str(tiny_target(tmp_path_factory.mktemp("target")))


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "asked.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"Why {i}?"}) + "\n" for i in range(4)))
    return str(path)


@pytest.fixture
def bench(tmp_path, target, prompts, capsys):
    """Runs a bench command; returns exit code, stdout, stderr."""

    def run(name, *words):
        code = main(["bench", name, "-m", target, "--prompts", prompts, "--out", str(tmp_path / "out"), *words])
        return code, *capsys.readouterr()

    return run


def test_exactness_in_float32_saves_and_shows_its_result(bench, tmp_path):
    words = ["-d", "random:1", "--dtype", "float32", "--limit", "3", "--reference", "2", "--max-tokens", "12"]
    code, out, err = bench("exactness", *words)
    assert code == 0 and "| DDTree = target alone | 3 of 3 |" in out
    assert "| target alone = transformers | 2 of 2 |" in out
    assert "3/3 line" in err and "wrote" in err
    saved = read_result(tmp_path / "out" / "exactness-float32.json")
    assert saved["schema_version"] == "draftproof.exactness/1" and saved["passed"] is True
    assert saved["workload_files"][0]["prompts"] == 3 and saved["provenance"]["seed"] == 0
    assert "load_average" in saved["provenance"]["machine"]


def test_exactness_exits_with_1_when_a_token_differs(bench, monkeypatch):
    def run(engine, ids, params):
        done = timed_run(engine, ids, params)
        if engine.method != "chain":
            return done
        return replace(done, token_ids=(*done.token_ids[:-1], (done.token_ids[-1] + 1) % 50))

    monkeypatch.setattr(module, "timed_run", run)
    code, out, _ = bench("exactness", "-d", "random:1", "--limit", "1", "--max-tokens", "6", "--json", "-q")
    document = json.loads(out)
    assert code == 1 and document["passed"] is False
    assert document["ways"]["chain"]["differences"][0]["verdict"] == "error"
    assert document["ways"]["tree"]["passed"] is True


def test_several_files_take_turns(bench):
    words = ["-d", "random:1", "--limit", "2", "--max-tokens", "3", "--prompts", "demo"]
    code, _, err = bench("exactness", *words)
    assert code == 0 and "1/4 asked line" in err and "2/4 demo " in err and "3/4 asked line" in err


def test_speed_saves_and_shows_its_result(bench, tmp_path, monkeypatch):
    monkeypatch.setattr("draftproof.bench.speed.read_bandwidth", lambda: 1e9)
    words = ["-d", "random:1", "--limit", "2", "--max-tokens", "8", "--repeats", "2", "--tree-budget", "4"]
    code, out, err = bench("speed", *words, "--prompts", "demo", "--no-peers")
    assert code == 0 and "| asked (2) | DDTree |" in out and "| demo (2) | target alone |" in out
    assert "demo 2/2 " in err
    saved = read_result(tmp_path / "out" / "speed.json")
    assert set(saved["workloads"]) == {"asked", "demo"} and saved["peers"] == {}


@pytest.mark.parametrize(
    ("name", "words", "says"),
    [
        ("exactness", [], "give a --drafter"),
        ("exactness", ["-d", "random", "--seed", "3"], "--seed has no effect: --limit 50 takes every prompt"),
        ("exactness", ["-d", "random", "--dtype", "bfloat16", "--reference", "1"], "--reference has no effect"),
        ("exactness", ["-d", "ngram", "--tree-budget", "4"], "has no effect"),
        ("exactness", ["-d", "random", "--limit", "0"], "limit 0 is out of range"),
        ("speed", ["--num-speculative-tokens", "3"], "--num-speculative-tokens has no effect without a --drafter"),
        ("speed", ["--tree-budget", "3"], "--tree-budget has no effect without a drafter"),
        ("speed", ["-d", "random", "--gguf", "x.gguf", "--no-peers"], "--gguf has no effect with --no-peers"),
        ("speed", ["-d", "random", "--repeats", "0"], "--repeats 0 is out of range"),
        ("speed", ["--prompts", "gone.jsonl"], "prompts 'gone.jsonl': no such file"),
        ("speed", ["--prompts", "demo", "--prompts", "demo"], "two files are called 'demo'"),
    ],
)
def test_what_cannot_be_meant_is_one_line(bench, name, words, says):
    code, out, err = bench(name, *words, "-q")
    assert code == 2 and out == ""
    assert err.count("\n") == 1 and says in err


def test_missing_peers_do_not_end_a_run(bench, monkeypatch, tmp_path):
    monkeypatch.setattr("draftproof.bench.speed.read_bandwidth", lambda: 1e9)
    monkeypatch.setenv("DRAFTPROOF_LLAMA_BENCH", str(tmp_path / "nothing"))
    monkeypatch.setattr("draftproof.cli.bench._peers", peers_without_transformers)
    words = ["--limit", "1", "--max-tokens", "4", "--repeats", "1", "--gguf", str(tmp_path / "model.gguf")]
    code, out, err = bench("speed", *words)
    assert code == 0 and "left out: " in out and "peer llama.cpp model left out" in err


def peers_without_transformers(*arguments):
    return {k: v for k, v in all_peers(*arguments).items() if k != "transformers"}
