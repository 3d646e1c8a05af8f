"""The scripts here import each other by plain name, as they do when a peer's environment runs them; and what a
conformance run found is kept as ``results/conformance.json`` when DRAFTPROOF_RESULTS names a folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test's last word: its call, or the set-up that kept it from being called."""
    if "/conformance/" in report.nodeid and (report.when == "call" or report.outcome != "passed"):
        _outcomes[report.nodeid.rpartition("/")[2]] = report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.markexpr == "installs" and "installs_results" in sys.modules:
        sys.modules["installs_results"].write()
    folder = os.environ.get("DRAFTPROOF_RESULTS")
    chosen = session.config.option.markexpr == "conformance" and not session.config.option.keyword
    if folder and _outcomes and chosen:
        from draftproof.bench.provenance import provenance
        from draftproof.bench.results import write_result

        document = {
            "schema_version": "draftproof.conformance/1",
            "peers": {"z-lab": "dflash==0.1.0"},
            "outcomes": dict(sorted(_outcomes.items())),
            "provenance": provenance() | {"command": "make conformance"},
        }
        write_result(Path(folder) / "conformance.json", document)
