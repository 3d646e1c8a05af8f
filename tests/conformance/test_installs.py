"""Released engines, really installed from PyPI: levels 4 and 5 tell every cell of the version matrix, unaided.

``make conformance-installs`` runs all of it and keeps ``results/installs.json``; the first run fetches some gigabytes
of wheels, one at a time, of which the sources stay in the cache (see scripts/fetch_installs.py).
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from installs_results import keep_release
from installs_truth import BY_CALLING, TRUTH

from support.installs import codes, look

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from fetch_installs import MATRIX, fetch

pytestmark = pytest.mark.installs


def hidden(requirement: str, folder: Path) -> Path:
    """The installed package without anything that names its version: no dist-info, no version module."""
    name = requirement.partition("==")[0]

    def versions(_: str, entries: list[str]) -> list[str]:
        return [e for e in entries if e in ("_version.py", "version.py") or e.endswith(".dist-info")]

    shutil.copytree(fetch(requirement) / name, folder / name, ignore=versions, copy_function=_linked)
    return folder


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def test_the_matrix_is_whole() -> None:
    assert set(MATRIX) == set(TRUTH)


@pytest.mark.parametrize("requirement", TRUTH)
def test_every_cell_comes_out_right(requirement: str, tmp_path: Path) -> None:
    name = requirement.partition("==")[0]
    prefix = hidden(requirement, tmp_path)
    case, _ = look(name, prefix=prefix, levels=("provenance", "source", "behaviour"), seconds=120)
    assert case.engine.version is None
    facts = case.engine.options["install"]["facts"]
    wanted = TRUTH[requirement]
    cells = {k: {"wanted": v, "got": facts[k]["value"], "level": facts[k]["level"]} for k, v in wanted.items()}
    keep_release(requirement, {"cells": cells, "seconds": case.engine.options["install"]["seconds"]})
    assert {fact: facts[fact]["value"] for fact in wanted} == wanted
    if wanted["dflash"] == "yes":
        assert {facts[fact]["level"] for fact in BY_CALLING[name]} == {"behaviour"}
    assert all(one["source_says"] is None for one in facts.values())


@pytest.mark.parametrize("requirement", TRUTH)
def test_the_sources_alone_say_the_same(requirement: str, tmp_path: Path) -> None:
    name = requirement.partition("==")[0]
    case, _ = look(name, prefix=hidden(requirement, tmp_path), levels=("provenance", "source"), seconds=60)
    facts = case.engine.options["install"]["facts"]
    assert {fact: facts[fact]["value"] for fact in TRUTH[requirement]} == TRUTH[requirement]


@pytest.mark.parametrize("requirement", TRUTH)
def test_the_release_is_what_its_version_says(requirement: str) -> None:
    """With its version in sight: no disagreement between version, source and behaviour."""
    name = requirement.partition("==")[0]
    case, findings = look(name, prefix=fetch(requirement), levels=("provenance", "source", "behaviour"), seconds=120)
    assert case.engine.version == requirement.partition("==")[2]
    assert not codes(findings)
