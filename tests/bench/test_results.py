"""Result files and where they come from."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from draftproof.bench.provenance import git_state, provenance
from draftproof.bench.results import read_result, rounded, write_result
from draftproof.errors import UnavailableError, UsageError


def test_written_whole_read_back_rounded(tmp_path):
    path = tmp_path / "new" / "speed.json"
    document = {"schema_version": "draftproof.speed/1", "rate": 123.456789, "runs": (1.0, 2), "by": {8: "x"}}
    assert write_result(path, document) == path
    assert read_result(path) == {
        "schema_version": "draftproof.speed/1", "rate": 123.457, "runs": [1.0, 2], "by": {"8": "x"},
    }  # fmt: skip
    assert [p.name for p in path.parent.iterdir()] == ["speed.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "speed.json"
    write_result(path, {"schema_version": "draftproof.speed/1", "run": 1})

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(UnavailableError, match="No space left"):
        write_result(path, {"schema_version": "draftproof.speed/1", "run": 2})
    assert read_result(path)["run"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["speed.json"]


def test_what_is_no_result(tmp_path):
    with pytest.raises(ValueError, match="schema_version"):
        write_result(tmp_path / "x.json", {"rate": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_result(tmp_path / "x.json", {"schema_version": "draftproof.x/1", "rate": float("nan")})
    for text in ("[1]", "{}", "{"):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(UsageError, match=r"x\.json: not a result file"):
            read_result(tmp_path / "x.json")


def test_rounding_keeps_what_is_no_float():
    assert rounded({"a": [True, None, 1234567, 0.000123456789]}) == {"a": [True, None, 1234567, 0.000123457]}


def test_provenance_says_command_versions_machine_and_load(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/bin/draftproof", "bench", "speed", "-m", "a b"])
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    told = provenance(seed=3)
    assert told["command"] == "draftproof bench speed -m 'a b'" and told["seed"] == 3
    assert {"draftproof", "python", "torch", "transformers", "numpy"} <= set(told["versions"])
    assert told["machine"]["settings"]["OMP_NUM_THREADS"] == "2" and told["machine"]["usable_cores"] >= 1
    json.dumps(told)


def test_git_state_outside_and_inside_a_checkout(tmp_path):
    assert git_state(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "file").write_text("1")
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    clean = git_state(tmp_path)
    assert clean is not None and len(clean["commit"]) == 40 and clean["dirty"] is False
    (tmp_path / "file").write_text("2")
    dirty = git_state(tmp_path)
    assert dirty is not None and dirty["dirty"] is True
