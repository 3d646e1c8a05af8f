"""The peers' modules without the peers: how they read answers, and what they say when there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from draftproof.bench.peers.llama_cpp import BINARY_VARIABLE, measure_llama_cpp
from draftproof.bench.peers.transformers_generate import measure_transformers
from draftproof.errors import DraftproofError

ROW = {"build_number": 0, "n_prompt": 0, "n_gen": 16, "model_type": "llama Q4_1", "n_threads": 2}


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    return file


@pytest.fixture
def fake_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A llama-bench that prints a given text and ends with a given status."""

    def make(answer: str, status: int = 0, complaint: str = "") -> Path:
        script = tmp_path / "llama-bench"
        script.write_text(
            f"#!{sys.executable}\nimport sys\n"
            "if '--version' in sys.argv:\n    sys.exit(print('version: 1.2 (build 0)'))\n"
            f"print({answer!r})\nprint({complaint!r}, file=sys.stderr)\nsys.exit({status})\n"
        )
        script.chmod(0o755)
        monkeypatch.setenv(BINARY_VARIABLE, str(script))
        return script

    return make


def test_llama_bench_answer_is_read(gguf: Path, fake_bench) -> None:
    script = fake_bench(json.dumps([ROW | {"samples_ts": [90.0, 100.0, 40.0]}]))
    result = measure_llama_cpp(gguf, new_tokens=16, runs=3)
    assert result["tokens_per_second"] == 90.0 and result["runs"] == [90.0, 100.0, 40.0]
    assert result["version"] == "1.2 (build 0)" and result["command"][0] == str(script)
    assert result["settings"]["model_type"] == "llama Q4_1" and result["end_to_end"] is None


@pytest.mark.parametrize(
    ("answer", "status", "complaint", "expected"),
    [
        ("", 1, "loading\nerror: failed to load model", "status 1; it said: error: failed to load model"),
        ("not json", 0, "", "without a decoding row of 16 tokens"),
        ("[]", 0, "", "without a decoding row of 16 tokens"),
        (json.dumps([ROW | {"samples_ts": []}]), 0, "", "without a decoding row of 16 tokens"),
    ],
)
def test_llama_bench_failures_are_one_line(gguf, fake_bench, answer, status, complaint, expected) -> None:
    fake_bench(answer, status, complaint)
    with pytest.raises(DraftproofError) as error:
        measure_llama_cpp(gguf, new_tokens=16)
    assert expected in str(error.value) and "\n" not in str(error.value)


def test_missing_things_are_named(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BINARY_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(DraftproofError, match="not an executable file"):
        measure_llama_cpp(gguf)
    monkeypatch.delenv(BINARY_VARIABLE)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DraftproofError, match=f"set {BINARY_VARIABLE}"):
        measure_llama_cpp(gguf)
    with pytest.raises(DraftproofError, match="no such GGUF file"):
        measure_llama_cpp(tmp_path / "absent.gguf")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"new_tokens": 1}, "new_tokens=1"),
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"wait_policy": "lazy"}, "wait_policy='lazy'"),
        ({"prompts": []}, "prompts: at least one"),
        ({"target": "no/such/folder"}, "no/such/folder"),
    ],
)
def test_bad_jobs_are_refused_before_the_child_starts(change: dict, expected: str) -> None:
    values = {"target": "bundled:smollm2", "prompts": ["Hello"]} | change
    with pytest.raises(DraftproofError, match=expected):
        measure_transformers(values.pop("target"), values.pop("prompts"), **values)


def test_peers_import_without_torch() -> None:
    program = (
        "import sys, draftproof.bench.peers.llama_cpp, draftproof.bench.peers.transformers_generate\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_transformers_is_measured_on_a_tiny_model(tmp_path: Path) -> None:
    from tiny_drafter import TinyPair
    from tiny_pair import random_target, save_tokenizer

    pair = TinyPair()
    random_target(pair).save_pretrained(tmp_path)
    save_tokenizer(pair, tmp_path)
    result = measure_transformers(str(tmp_path), ["t1 t2", [3, 4, 5]], new_tokens=8, runs=2, dtype="float32", threads=1)
    assert result["tokens_per_second"] > 0 and len(result["runs"]) == 2
    assert result["settings"]["prompt_tokens"] == [2, 3]
