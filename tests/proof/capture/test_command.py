"""``draftproof capture -- COMMAND`` on a stand-in for vLLM, and ``replay`` and ``diagnose`` on a tiny pair."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli.main import main
from draftproof.errors import EXIT_FINDINGS, EXIT_UNAVAILABLE, EXIT_USAGE
from draftproof.proof.capture.reading import read_capture

from .world import captured, save_pair

HERE = Path(__file__).parent
Run = Callable[..., int]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command whose interpreter finds a package ``vllm``."""
    package = tmp_path / "site" / "vllm" / "v1" / "spec_decode"
    package.mkdir(parents=True)
    (tmp_path / "site" / "vllm" / "__init__.py").write_text("__version__ = '9.9'\n")
    (package / "dflash.py").write_text((HERE / "fake_vllm.py").read_text())
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{HERE}")
    return [sys.executable, str(HERE / "fake_engine.py")]


def test_a_command_is_captured(engine: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--out", str(tmp_path / "c"), "--rounds", "3", "--json", "-q", "--", *engine, "5"]) == 0
    said = json.loads(capsys.readouterr().out)
    capture = read_capture(Path(said["capture"]))
    (request,) = capture.requests
    assert (said["rounds"], said["complete"], capture.manifest.data["stopped"]) == (3, True, "rounds")
    assert (request.prefix, request.first, request.whole) == ([7, 7], 2, True)
    assert [step.positions for step in request.steps] == [[2, 3], [4, 5], [6, 7]]
    step = request.steps[0]
    assert (step.block_ids, step.block_positions, step.context_positions) == ([5, 1, 1, 1], [4, 5, 6, 7], [2, 3])
    assert step.top_ids is not None and step.top_ids[:, 0].tolist() == step.drafts
    assert capture.manifest.engine["runner"] == "V1" and set(capture.manifest.data["weights"]) >= {"lm_head.weight"}


def test_nothing_captured_is_an_error(engine: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--out", str(tmp_path / "c"), "-q", "--", *engine, "0"]) == EXIT_UNAVAILABLE
    assert "nothing was captured (the command ended with code 0)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["capture"], "give a command after --"),
        (["capture", "--rounds", "0", "--", "x"], "--rounds 0 is out of range"),
        (["capture", "--stop", "--target", "t", "--drafter", "d"], "--stop has no effect without a command"),
        (["capture", "--target", "t", "--", "x"], "--target t has no effect with a command"),
        (["capture", "--endpoint", "http://x", "--", "x"], "--endpoint has no effect without --send"),
        (["replay", "nowhere"], "give --drafter and --target, or --against"),
        (["replay", "nowhere", "--against", "nowhere"], "nowhere: no such folder"),
        (["diagnose", "--capture", "nowhere"], "--capture needs --drafter and --target"),
    ],
)
def test_what_cannot_be_meant(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == EXIT_USAGE
    assert says in capsys.readouterr().err


def test_replay_against_and_diagnose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = save_pair(tmp_path)
    names = ["--drafter", str(pair[1]), "--target", str(pair[0])]
    healthy, faulty = captured(tmp_path / "a", pair), captured(tmp_path / "b", pair, "causality-flipped-sliding")
    assert main(["replay", str(healthy), *names, "-q"]) == 0
    assert "HEALTHY" in capsys.readouterr().out
    assert main(["replay", str(faulty), *names, "-q", "--json"]) == EXIT_FINDINGS
    document = json.loads(capsys.readouterr().out)
    assert (document["faults"], document["first_wrong"]) == (["causality-flipped-sliding"], "config")
    assert main(["replay", str(healthy), "--against", str(faulty), "--json", "-q"]) == EXIT_FINDINGS
    compared: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [stage["status"] for stage in compared["against"]] == ["ok", "wrong", "ok", "wrong"]
    assert main(["diagnose", "--capture", str(faulty), *names, "--json"]) == EXIT_FINDINGS
    causes = json.loads(capsys.readouterr().out)["causes"]
    assert causes[0]["code"] == "ENGINE_CAUSALITY_MISMATCH" and causes[0]["confidence"] > 0.9
