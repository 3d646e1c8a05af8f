"""The last line says what was not tried as plainly as what was found."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.proof.case import Case, Engine
from draftproof.proof.install.closing import closing
from draftproof.proof.install.probe.extensions import DRIVERS

FILES = {"files": {"verified": 3146, "listed": 3146, "finished": True}, "extensions": {"count": 9}}
NO_DRIVER = f"{DRIVERS[0]}: cannot open shared object file: No such file or directory"


def case(importability: dict[str, Any] | None, **facts: Any) -> Case:
    install = {"host": "here", "distributions": [{"editable": False}], "integrity": [FILES], **facts}
    return Case(
        Engine("vllm", "0.20.1", {"commit": "3cfc8f8aa", "install": {**install, "importability": importability}})
    )


@pytest.mark.parametrize(
    ("importability", "said"),
    [
        ({"extensions": {"vllm._C": "", "vllm._moe_C": ""}}, "(3,146 files verified, 2 extensions load)"),
        ({"extensions": {"vllm._C": ""}}, "(3,146 files verified, 1 extension loads)"),
        (None, "(3,146 files verified, 9 compiled files whole)"),
        (
            {"extensions": {"vllm._C": NO_DRIVER, "vllm.x": NO_DRIVER}},
            "9 compiled files whole); 2 of 2 extensions cannot be loaded here (no graphics driver)",
        ),
        (
            {"extensions": {"vllm._C": NO_DRIVER, "vllm.x": ""}},
            "1 extension loads); 1 of 2 extensions cannot be loaded here (no graphics driver)",
        ),
    ],
)
def test_what_loads_and_what_cannot_be_tried(importability: dict[str, Any] | None, said: str) -> None:
    told = closing(case(importability), ())
    assert told.startswith("vllm 0.20.1 at commit 3cfc8f8 is complete") and told.endswith(said)


def test_a_level_that_was_not_asked_for_proves_nothing() -> None:
    quiet = case(None)
    del quiet.engine.options["install"]["integrity"]  # type: ignore[attr-defined]
    assert closing(quiet, ()).endswith("was not verified (level integrity was not asked for)")
