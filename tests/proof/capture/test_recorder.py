"""What is written, how it is bounded, and that nothing of it can harm an engine."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from draftproof.proof.capture import carry
from draftproof.proof.capture.manifest import CaptureError, read_manifest
from draftproof.proof.capture.reading import read_capture
from draftproof.proof.capture.recorder import hooks
from draftproof.proof.capture.recorder.recorder import Recorder, Round
from draftproof.proof.capture.recorder.settings import Settings, from_environment

FACTS: dict[str, Any] = {"engine": {"name": "x", "dtype": "float32"}, "target": {}, "drafter": {}}


def a_round(number: int, rows: int = 2) -> Round:
    start = number * rows
    tensors = {
        "token_ids": torch.arange(start, start + rows),
        "positions": torch.arange(start, start + rows),
        "query_start": torch.tensor([0, rows]),
        "rejected": torch.tensor([0]),
        "taps": torch.full((rows, 4), float(number)),
        "anchors": torch.tensor([start + rows]),
        "drafts": torch.tensor([[1, 2, 3]]),
    }
    return Round(["a"], tensors)


def recorded(folder: Path, count: int = 3, **settings: Any) -> Path:
    recorder = Recorder(Settings(str(folder), **settings))
    recorder.begin(FACTS, {"fc.weight": torch.ones(2, 2), "probe.q": torch.zeros(1, 2)})
    for number in range(count):
        recorder.add(a_round(number))
    recorder.close()
    assert recorder.path is not None
    return Path(recorder.path)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    capture = read_capture(recorded(tmp_path, 40))  # more than one file
    (request,) = capture.requests
    assert capture.manifest.complete and capture.drafted == 120 and len(capture.manifest.data["files"]) == 3
    assert request.whole and request.ids == list(range(80))
    assert [float(step.taps[0, 0]) for step in request.steps] == list(range(40))
    assert capture.probes["q"].tolist() == [[0.0, 0.0]]


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    assert {stat.S_IMODE(os.stat(file).st_mode) for file in path.iterdir()} == {0o600}
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700


@pytest.mark.parametrize(("bound", "rounds"), [({"rounds": 2}, 2), ({"bytes": 200}, 2)])
def test_it_ends_at_its_bounds(bound: dict[str, int], rounds: int, tmp_path: Path) -> None:
    manifest = read_manifest(recorded(tmp_path, 9, **bound))
    assert manifest.rounds == rounds
    assert manifest.data["stopped"] == next(iter(bound))


def test_redacted_captures_hold_no_prompt(tmp_path: Path) -> None:
    path = recorded(tmp_path, redact=True)
    (request,) = read_capture(path).requests
    assert all(step.ids is None for step in request.steps) and not request.whole
    other = recorded(tmp_path / "b", redact=True)
    from safetensors.torch import load_file

    hashes = [load_file(p / "rounds-0000.safetensors")["000000.token_hashes"].tolist() for p in (path, other)]
    assert hashes[0] != hashes[1], "the key must not be the same twice"


def _damage(path: Path, how: str) -> str:
    file = path / "rounds-0000.safetensors"
    manifest = json.loads((path / "manifest.json").read_text())
    if how == "truncated":
        file.write_bytes(file.read_bytes()[:-8])
    elif how == "changed":
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(bytes(data))
    elif how == "missing":
        file.unlink()
    elif how == "newer":
        (path / "manifest.json").write_text(json.dumps(manifest | {"schema": "draftproof.capture/9"}))
    elif how == "no json":
        (path / "manifest.json").write_text("{")
    elif how == "escaping":
        manifest["files"][0]["name"] = "../x"
        (path / "manifest.json").write_text(json.dumps(manifest))
    else:
        (path / "manifest.json").unlink()
    return {
        "truncated": "it is truncated",
        "changed": "not what was written",
        "missing": "not copied whole",
        "newer": "this draftproof reads draftproof.capture/1",
        "no json": "not JSON",
        "escaping": "no file name of a capture",
        "empty": "no manifest.json in it",
    }[how]


@pytest.mark.parametrize("how", ["truncated", "changed", "missing", "newer", "no json", "escaping", "empty"])
def test_what_cannot_be_used_is_said_in_one_line(how: str, tmp_path: Path) -> None:
    path = recorded(tmp_path)
    says = _damage(path, how)
    with pytest.raises(CaptureError, match=says) as caught:
        read_capture(path)
    assert "\n" not in str(caught.value)


def test_off_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    from draftproof.proof.capture import recorder

    monkeypatch.delenv("DRAFTPROOF_CAPTURE", raising=False)
    before = set(sys.modules), list(sys.meta_path)
    recorder.register()
    assert (set(sys.modules), list(sys.meta_path)) == before
    assert from_environment({}) is None


def test_a_wrong_setting_is_said_and_harmless(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DRAFTPROOF_CAPTURE", "/x")
    monkeypatch.setenv("DRAFTPROOF_CAPTURE_ROUNDS", "many")
    hooks.install()
    assert "DRAFTPROOF_CAPTURE_ROUNDS='many'" in caplog.text and hooks.Runs.recorder is None


class _Drafter:
    def propose(self, x: int) -> torch.Tensor:
        return torch.full((1, 2), x)


class _Session:
    """Fails where it is told to."""

    fails = ""

    def __init__(self, owner: Any, recorder: Any) -> None:
        self.recorder = recorder
        self.check("init")

    def check(self, where: str) -> None:
        if where == self.fails:
            raise RuntimeError("no")

    def before(self, args: Any, kwargs: Any) -> None:
        self.check("before")

    def after(self, drafts: Any) -> None:
        self.check("after")
        if not self.recorder.begun:
            self.recorder.begin(FACTS)
        self.recorder.add(a_round(0))


@pytest.mark.parametrize("fails", ["", "init", "before", "after"])
def test_serving_goes_on_whatever_fails(fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = type("Drafter", (_Drafter,), {})
    session = type("Session", (_Session,), {"fails": fails})
    recorder = Recorder(Settings(str(tmp_path)))
    monkeypatch.setattr(hooks.Runs, "recorder", recorder)
    hooks.wrap(types.SimpleNamespace(Drafter=owner), "Drafter", session)
    drafter = owner()
    assert [int(drafter.propose(x)[0, 0]) for x in (3, 4)] == [3, 4]
    assert recorder.open is (fails == "")
    recorder.close()


def test_a_folder_that_cannot_be_written_ends_the_recording(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    recorder = Recorder(Settings(str(tmp_path / "file")))
    recorder.begin(FACTS)
    for number in range(3):
        recorder.add(a_round(number))
    recorder.close()
    assert not recorder.open and "serving goes on" in caplog.text


def test_a_full_disk_ends_the_recording(tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("draftproof.proof.capture.recorder.folder.os.fsync", full)
    recorder = Recorder(Settings(str(tmp_path)))
    recorder.begin(FACTS)
    recorder.add(a_round(0))
    recorder.close()
    assert "No space left" in caplog.text
    assert not list(tmp_path.glob("*/*")), "half a file was left behind"


def test_the_plugin_stands_alone(tmp_path: Path) -> None:
    """As vLLM loads it: by entry point, without draftproof, patching a module when that is imported."""
    carry.unpack(tmp_path / "plugin")
    fake = tmp_path / "fake" / "vllm" / "v1" / "spec_decode"
    fake.mkdir(parents=True)
    (fake / "dflash.py").write_text("class DFlashProposer:\n    def propose(self): return 1\n")
    program = (
        "import sys\nfrom importlib.metadata import entry_points\n"
        "found = entry_points(group='vllm.general_plugins')  # an installed draftproof has one too\n"
        "next(e for e in found if e.value.startswith('draftproof_capture:')).load()()\n"
        "from vllm.v1.spec_decode.dflash import DFlashProposer\n"
        "print(hasattr(DFlashProposer.propose, '_draftproof_capture'), 'draftproof' in sys.modules)\n"
    )
    env = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path / 'plugin'}:{tmp_path / 'fake'}",
        "DRAFTPROOF_CAPTURE": str(tmp_path),
    }
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "False"], done.stderr
    off = {name: value for name, value in env.items() if name != "DRAFTPROOF_CAPTURE"}
    done = subprocess.run([sys.executable, "-c", program], env=off, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "False"], done.stderr
