"""What the runs on really installed engines found, kept as ``results/installs.json`` if DRAFTPROOF_RESULTS names a
folder and the whole matrix was run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from installs_truth import TRUTH

_kept: dict[str, Any] = {}
_releases: dict[str, dict[str, Any]] = {}


def keep(name: str, value: Any) -> None:
    _kept[name] = value


def keep_release(requirement: str, value: dict[str, Any]) -> None:
    _releases[requirement] = value


def write() -> None:
    folder = os.environ.get("DRAFTPROOF_RESULTS")
    if not folder or set(_releases) != set(TRUTH):
        return
    from draftproof.bench.provenance import provenance
    from draftproof.bench.results import write_result

    cells = [cell for release in _releases.values() for cell in release["cells"].values()]
    document = {
        "schema_version": "draftproof.installs/1",
        "cells": len(cells),
        "right": sum(cell["got"] == cell["wanted"] for cell in cells),
        "by_behaviour": sum(cell["level"] == "behaviour" for cell in cells),
        "releases": dict(sorted(_releases.items())),
        **_kept,
        "provenance": provenance() | {"command": "make conformance-installs"},
    }
    write_result(Path(folder) / "installs.json", document)
