"""Runs the command line in this process, on a fake engine."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from draftproof.cli import opening
from draftproof.cli.main import main

from .fakes import FakeEngine


@dataclass
class Shell:
    """What a command did: exit code, both streams, the engines it opened and with which arguments."""

    capsys: pytest.CaptureFixture[str]
    settings: dict[str, Any] = field(default_factory=dict)  # for every FakeEngine
    by_method: dict[str, dict[str, Any]] = field(default_factory=dict)  # for those of one of the demo's ways
    arguments: list[dict[str, Any]] = field(default_factory=list)
    engines: list[FakeEngine] = field(default_factory=list)
    ways: dict[str, FakeEngine] = field(default_factory=dict)
    tree_budget: int | None = None
    out: str = ""
    err: str = ""

    def make(self, **arguments: Any) -> FakeEngine:
        known = inspect.signature(FakeEngine).parameters
        kept = {name: value for name, value in arguments.items() if name in known}
        engine = FakeEngine(**kept | self.settings)
        self.arguments.append(arguments)
        self.engines.append(engine)
        return engine

    def share(self, engine: FakeEngine, tree_budget: int | None) -> dict[str, FakeEngine]:
        self.tree_budget = tree_budget
        self.ways = {
            name: replace(engine, method=method, **self.by_method.get(method, {}), requests=[])
            for name, method in (("plain", "none"), ("chain", "chain"), ("tree", "tree"))
            if not (name == "tree" and engine.drafter == "ngram")
        }
        return self.ways

    def __call__(self, *words: str) -> int:
        code = main(list(words))
        self.out, self.err = self.capsys.readouterr()
        return code


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    made = Shell(capsys)
    monkeypatch.setattr(opening, "make_engine", made.make)
    monkeypatch.setattr("draftproof.cli.demo.ways_on", made.share)
    monkeypatch.setattr(opening, "prepare_threads", lambda threads: "threads: as the fake says")
    monkeypatch.setattr(opening, "silence_libraries", lambda: None)
    return made


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts text on stdin."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))
