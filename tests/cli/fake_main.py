"""The command line on the fake engine, to look at it and to run it as a process.

python -m tests.cli.fake_main demo; DELAY=0.03 makes rounds take that many seconds.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from dataclasses import replace
from typing import Any

from draftproof.cli import opening
from draftproof.cli.main import main

from .fakes import ANSWER, FakeEngine


def make(**arguments: Any) -> FakeEngine:
    known = inspect.signature(FakeEngine).parameters
    kept = {name: value for name, value in arguments.items() if name in known}
    delay = float(os.environ.get("DELAY", "0"))
    return FakeEngine(**kept, delay_s=delay, answer=os.environ.get("ANSWER", f"{ANSWER} " * 3))


def ways(engine: Any, tree_budget: int | None) -> dict[str, FakeEngine]:
    methods = {"plain": "none", "chain": "chain", "tree": "tree"}
    return {name: replace(engine, method=method) for name, method in methods.items()}


if __name__ == "__main__":
    opening.make_engine = make
    importlib.import_module("draftproof.cli.demo").ways_on = ways
    sys.exit(main())
