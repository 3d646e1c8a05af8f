"""The way there and back: noise does no harm, half an answer is none, the probe runs on old Pythons."""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from draftproof.proof.install import hosts
from draftproof.proof.install.hosts import Host, Wish, ask, script
from draftproof.proof.install.probe import wire

MARK = "mark-1"


def spoken(value: object) -> str:
    stream = io.StringIO()
    speaker = wire.Speaker(MARK, stream)
    speaker.progress(level="integrity")
    speaker.report(value)
    return stream.getvalue()


def heard(text: str) -> wire.Listener:
    listener = wire.Listener(MARK)
    for line in text.splitlines():
        listener.line(line)
    return listener


VALUE = {"path": "name with \n and \udcff", "sum": [1, 2, None]}


def test_an_answer_survives_noise() -> None:
    noisy = f"Welcome to host{spoken(VALUE)}mark-2 report 3 x y\nbye"
    listener = heard(noisy)
    assert listener.value == VALUE and not listener.broken
    assert listener.noise[0] == "Welcome to host"


def test_every_shorter_answer_is_no_answer() -> None:
    text = spoken(VALUE)
    for length in range(len(text) - 1):
        assert heard(text[:length]).value is None


def test_a_changed_answer_is_no_answer() -> None:
    text = spoken(VALUE)
    listener = heard(text.replace("null", "4242"))
    assert listener.value is None and listener.broken


def test_the_probe_needs_the_standard_library_only() -> None:
    known = set(sys.stdlib_module_names) | {"transformers"}  # an engine's own dependency, imported if it is there
    for name, text in hosts.sources().items():
        for node in ast.walk(ast.parse(text)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            assert all(n.partition(".")[0] in known for n in names), (name, names)


def interpreter(version: str) -> str | None:
    """One on the path that runs, or one of pyenv's."""
    managed = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser() / "versions"
    found = [shutil.which(f"python{version}"), *map(str, sorted(managed.glob(f"{version}.*/bin/python")))]
    works = (p for p in found if p and subprocess.run([p, "--version"], capture_output=True).returncode == 0)
    return next(works, None)


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.12", "3.13", "3.14"])
def test_it_runs_on_other_pythons(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("")
    host, wish = Host(None, python, str(tmp_path)), Wish(seconds=60)
    answer = ask([host], wish)[0]
    assert answer.report is not None, answer
    assert answer.report["python"]["version"].startswith(version)
    (engine,) = answer.report["engines"]
    assert engine["source"]["runner_v2"]["value"] == "no"
    assert engine["importability"]["package"] == ""


def test_a_python_that_is_too_old_says_so(tmp_path: Path) -> None:
    """The script's first statements have to be understood by any Python 3."""
    text = script(Host(), Wish(), MARK).replace("(3, 8)", "(4, 0)")
    done = subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True)
    assert "needs Python" in done.stderr and done.returncode == 1


def test_a_file_system_that_hangs_ends_with_the_time_limit() -> None:
    text = script(Host(), Wish("pip", seconds=2.0), MARK)
    text = text.replace(
        "sent = Sent()", "sent = Sent()\nimport os; os.listdir = lambda p: __import__('time').sleep(60)"
    )
    done = subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True, timeout=30)
    listener = heard(done.stdout)
    assert listener.value is not None and listener.value["unfinished"]


@pytest.mark.parametrize(
    "program", ["raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)", "print('{}')", "pass"]
)
def test_an_interpreter_that_gives_no_answer(program: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n{program}\n")
    python.chmod(0o755)
    answer = ask([Host(None, str(python))], Wish(seconds=10))[0]
    assert answer.report is None and answer.failure == "dropped"


def test_an_interpreter_that_is_not_there() -> None:
    answer = ask([Host(None, "/nowhere/python")], Wish(seconds=10))[0]
    assert answer.failure == "no_python" and "No such file" in answer.says


def test_what_is_sent_is_ascii_and_small() -> None:
    text = script(Host(), Wish(drafter={"name": "ü"}), MARK)
    assert text.isascii() and len(text) < 100_000
    assert json.dumps(VALUE)  # lone surrogates are what file names give
