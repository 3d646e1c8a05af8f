"""``draftproof capture --ssh HOST``: over a real sshd, with a login that talks, and nothing left behind there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftproof.cli.main import main
from draftproof.errors import EXIT_UNAVAILABLE
from draftproof.proof.capture.reading import read_capture
from support.sshd import TOOLS, WHY_NOT, Server, running

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(not TOOLS or os.geteuid() != 0, reason=f"{WHY_NOT}, and root to start it")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Its hosts have a stand-in for vLLM; the user's own ssh knows them."""
    package = tmp_path / "site" / "vllm" / "v1" / "spec_decode"
    package.mkdir(parents=True)
    (tmp_path / "site" / "vllm" / "__init__.py").write_text("__version__ = '9.9'\n")
    (package / "dflash.py").write_text((HERE / "fake_vllm.py").read_text())
    found = f"export PYTHONPATH={tmp_path / 'site'}:{HERE}"
    (tmp_path / "sshd").mkdir()
    with running(tmp_path / "sshd") as server:
        behaviours = {"quiet": found, "noisy": f"{found}; printf 'Welcome!\\nlast login never'"}
        server.write_config(behaviours | {"silent": "cat > /dev/null; exit 0"})
        wrapper = tmp_path / "bin" / "ssh"
        wrapper.parent.mkdir()
        wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {server.folder / "config"} "$@"\n')
        wrapper.chmod(0o700)
        monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
        yield server


def left_there() -> set[Path]:
    return set(Path("/tmp").glob("draftproof-????????"))


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("host", ["quiet", "noisy"])
def test_the_capture_comes_back(host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = left_there()
    engine = [sys.executable, str(HERE / "fake_engine.py"), "5"]
    words = ["capture", "--out", str(tmp_path / "c"), "--rounds", "3", "--ssh", host, "--json", "-q", "--", *engine]
    assert main(words) == 0
    said = json.loads(capsys.readouterr().out)
    capture = read_capture(Path(said["capture"]))
    assert (said["rounds"], said["complete"]) == (3, True)
    assert [step.positions for step in capture.requests[0].steps] == [[2, 3], [4, 5], [6, 7]]
    assert left_there() <= before


@pytest.mark.usefixtures("server")
def test_a_host_that_runs_no_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["capture", "--out", str(tmp_path / "c"), "--ssh", "silent", "-q", "--", sys.executable]
    assert main(words) == EXIT_UNAVAILABLE
    assert "--ssh silent: it ran no shell" in capsys.readouterr().err
