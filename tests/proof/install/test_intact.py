"""Packages of other kinds, as they are installed here: no false alarm."""

from __future__ import annotations

import pytest

from support.installs import look

INTACT = [
    "certifi",
    "huggingface_hub",
    "idna",
    "jinja2",
    "markdown-it-py",
    "MarkupSafe",
    "mdurl",
    "numpy",
    "packaging",
    "Pygments",
    "PyYAML",
    "regex",
    "rich",
    "safetensors",
    "shellingham",
    "tokenizers",
    "tqdm",
    "typer",
    "typing_extensions",
    "pytest",
    "filelock",
    "mpmath",
]


@pytest.mark.parametrize("name", INTACT)
def test_an_intact_package_gives_no_finding(name: str) -> None:
    case, findings = look(name)
    assert findings == ()
    (integrity,) = case.engine.options["install"]["integrity"]
    assert integrity["files"]["verified"] > 0
