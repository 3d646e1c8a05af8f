"""Over a real sshd: healthy, no Python, dropped, hanging, noisy, several at once; none is taken for a good answer."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftproof.cli.main import main
from draftproof.proof.install.closing import exit_code
from draftproof.proof.install.hosts import Host, Wish, ask
from support.installs import codes, first
from support.sshd import TOOLS, WHY_NOT, Server, running

pytestmark = pytest.mark.skipif(not TOOLS or os.geteuid() != 0, reason=f"{WHY_NOT}, and root to start it")

PYTHON = sys.executable
QUOTED = shlex.quote(PYTHON)
# Host name → what its login does before, or in place of, what is asked.
BEHAVIOURS = {
    "noisy": "printf 'Welcome!\\nlast login never'; echo a warning >&2",
    "hanging": "sleep 600; exit",
    "dropped": f"{QUOTED} -c \"import sys; sys.stdin.read(2000); print('half an ans'); sys.exit(255)\"; exit 255",
    "halfway": "kill -9 $PPID",
    "silent": "cat > /dev/null; exit 0",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("sshd")) as found:
        found.write_config(BEHAVIOURS)
        yield found


@pytest.fixture
def user(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own ssh: a wrapper in front of the real one, as a configuration in ~/.ssh would be."""
    wrapper = tmp_path / "bin" / "ssh"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {server.folder / "config"} "$@"\n')
    wrapper.chmod(0o700)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")


WISH = Wish("markdown-it-py", seconds=30.0)


def one(host: str, python: str | None = PYTHON, wish: Wish = WISH) -> tuple[str, tuple[object, ...], int]:
    answer = ask([Host(host, python)], wish)[0]
    _, findings = first(answer, wish)
    return answer.failure, findings, exit_code(findings)


@pytest.mark.usefixtures("user")
def test_a_healthy_host() -> None:
    assert one("healthy") == ("", (), 0)


@pytest.mark.usefixtures("user")
def test_a_host_without_that_python() -> None:
    failure, findings, code = one("healthy", "/nowhere/python3")
    assert (failure, code) == ("no_python", 3)
    assert codes(findings) == {"INSTALL_UNREACHABLE"}  # type: ignore[arg-type]


@pytest.mark.usefixtures("user")
def test_noise_before_the_answer_is_no_answer_and_no_harm() -> None:
    answer = ask([Host("noisy", PYTHON)], WISH)[0]
    assert first(answer, WISH)[1] == ()
    assert "Welcome!" in answer.noise


@pytest.mark.usefixtures("user")
@pytest.mark.parametrize("host", ["dropped", "halfway", "silent"])
def test_a_connection_that_ends_early_is_no_answer(host: str) -> None:
    failure, findings, code = one(host)
    assert failure in ("dropped", "unreachable") and code == 3
    assert codes(findings) == {"INSTALL_UNREACHABLE"}  # type: ignore[arg-type]


@pytest.mark.usefixtures("user")
def test_a_connection_that_dies_while_the_probe_works(server: Server) -> None:
    """Everything of the answer but its end arrives."""
    cut = f"{QUOTED} - | head -c 700; kill -9 $PPID"
    server.write_config({**BEHAVIOURS, "cut": cut})
    failure, _, code = one("cut")
    assert (failure, code) == ("dropped", 3)


@pytest.mark.usefixtures("user")
def test_a_host_that_hangs_ends_with_the_time_limit() -> None:
    began = time.monotonic()
    failure, _, code = one("hanging", wish=Wish("markdown-it-py", seconds=5.0))
    assert (failure, code) == ("timeout", 3)
    assert time.monotonic() - began < 12


def test_a_port_where_nobody_listens() -> None:
    failure, findings, code = one("ssh://127.0.0.1:1")
    assert (failure, code) == ("unreachable", 3)
    assert "refused" in findings[0].says  # type: ignore[attr-defined]


@pytest.mark.usefixtures("user")
def test_three_hosts_at_once_give_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    hosts = [f"{name}:{PYTHON}" for name in ("healthy", "noisy", "silent")]
    words = [word for host in hosts for word in ("--ssh", host)]
    assert main(["doctor", *words, "--engine", "markdown-it-py", "--timeout", "30"]) == 3
    table = capsys.readouterr().out.split("\n\n")[0]
    assert [line.split(":")[0] for line in table.splitlines() if ":" in line][:3] == ["healthy", "noisy", "silent"]
    assert main(["doctor", *words, "--engine", "markdown-it-py", "--timeout", "30", "--json"]) == 3
    installs = json.loads(capsys.readouterr().out)["installs"]
    assert [bool(one["findings"]) for one in installs] == [False, False, True]
