"""Extensions are tried one by one: what one of them does concerns no other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from draftproof.proof.install.probe import importing


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_an_extension_that_aborts_brings_down_nothing_else(folder: Path) -> None:
    (folder / "dies_when_imported.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGABRT)\n")
    (folder / "lives_when_imported.py").write_text("")
    assert importing._apart("dies_when_imported", {}) == ("ended by SIGABRT", set())
    assert importing._apart("lives_when_imported", {}) == ("", set())
    assert "lives_when_imported" not in sys.modules  # the next one starts from the package alone


def test_a_shared_library_that_is_no_module_is_whole(folder: Path) -> None:
    import numpy

    library = next((Path(numpy.__file__).parents[1] / "numpy.libs").glob("*.so*"))
    (folder / "no_module.abi3.so").symlink_to(library)
    assert importing._apart("no_module", {})[0] == ""
    (folder / "half.abi3.so").write_bytes(library.read_bytes()[:5000])
    assert importing._apart("half", {})[0]  # an error, or a signal from where the file ends


def test_operators_count_whichever_extension_registers_them(folder: Path) -> None:
    import torch  # noqa: F401

    source = "import torch\nlib = torch.library.Library('dp_test_{0}', 'DEF')\nlib.define('f(Tensor x) -> Tensor')\n"
    for name in ("one", "two"):
        (folder / f"registers_{name}.py").write_text(source.format(name))
    wanted = {"dp_test_one": ["f"], "dp_test_two": ["f", "g"]}
    there = importing._apart("registers_one", wanted)[1] | importing._apart("registers_two", wanted)[1]
    assert there == {"dp_test_one.f", "dp_test_two.f"}
    assert importing._missing(wanted, there)["dp_test_two"] == {"wanted": 2, "missing": 1, "such_as": ["g"]}
