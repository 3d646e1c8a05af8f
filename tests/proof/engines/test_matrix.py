"""The matrix says of each release what was seen when its shipped code was run or read."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.proof.case import Case, Drafter, Engine, Target
from draftproof.proof.engines import RESPECTS, engines, facts
from draftproof.proof.engines.matrix import Row, rows
from draftproof.proof.layouts import drafter_method
from draftproof.proof.rules import PAGES
from proof.configs import sliding, speculators, zlab


def row(config: dict[str, Any], engine: str, version: str, **more: Any) -> Row:
    case = Case(Engine(engine, version, more.pop("options", {})), drafter=Drafter(config=config, **more))
    case = Case(case.engine, drafter_method(case), None, case.drafter, Target())
    [found] = rows(case, [(engine, version)])
    return found


def differs(config: dict[str, Any], engine: str, version: str, **more: Any) -> set[str]:
    return {cell.respect for cell in row(config, engine, version, **more).cells if cell.sure}


DFLASH2 = zlab(architectures=["DFlash2DraftModel"], is_causal=False)
VLLM = ["0.20.0", "0.20.1", "0.20.2", "0.21.0", "0.22.0", "0.22.1", "0.23.0", "0.24.0", "0.25.0", "0.25.1", "0.26.0"]
VLLM += ["0.27.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"]
SGLANG = ["0.5.11", "0.5.12", "0.5.13", "0.5.14", "0.5.15", "0.5.16", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.23"]


def among(versions: list[str], first: str, last: str) -> set[str]:
    return set(versions[versions.index(first) : versions.index(last) + 1])


@pytest.mark.parametrize("version", VLLM)
def test_vllm(version: str) -> None:
    plain, windows = zlab(), sliding()
    assert ("ids" in differs(plain, "vllm", version)) == (version in among(VLLM, "0.20.0", "0.21.0"))
    assert "ids" not in differs(speculators(), "vllm", version)
    ignored = version in among(VLLM, "0.20.0", "0.24.0")
    refused = version in ("0.25.0", "0.25.1")
    assert (row(windows, "vllm", version).state == "refused") == refused
    assert ("window" in differs(windows, "vllm", version)) == (ignored or refused)
    assert ("causality" in differs(windows, "vllm", version)) == (version in among(VLLM, "0.20.0", "0.25.1"))
    assert "window" not in differs(plain, "vllm", version) and "causality" not in differs(plain, "vllm", version)
    assert ("cache drop" in differs(plain, "vllm", version)) == (version != "0.33.0")
    assert (row(DFLASH2, "vllm", version).state == "refused") == (version in among(VLLM, "0.20.0", "0.27.1"))
    wrong = version in among(VLLM, "0.26.0", "0.33.0")
    assert ("causality" in differs(speculators(), "vllm", version)) == wrong
    assert "causality" not in differs(speculators(sliding_window_non_causal=None), "vllm", version)


@pytest.mark.parametrize("version", VLLM)
def test_is_causal_on_vllm(version: str) -> None:
    """Top-level is_causal is read from 0.28 on; before 0.26 all layers are bidirectional unless told otherwise."""
    uniform = sliding(full=0, is_causal=False)
    assert ("causality" in differs(uniform, "vllm", version)) == (version in among(VLLM, "0.26.0", "0.27.1"))
    causal = zlab(is_causal=True)
    assert ("causality" in differs(causal, "vllm", version)) == (version in among(VLLM, "0.20.0", "0.27.1"))
    nested = zlab(dflash_config__causal=True)
    assert ("causality" in differs(nested, "vllm", version)) == (version in among(VLLM, "0.20.0", "0.22.1"))


@pytest.mark.parametrize("version", SGLANG)
def test_sglang(version: str) -> None:
    windows = sliding()
    old = version in among(SGLANG, "0.5.11", "0.5.13")
    assert ("window" in differs(windows, "sglang", version)) == old
    assert ("causality" in differs(windows, "sglang", version)) == old
    assert "ids" not in differs(windows, "sglang", version) and "cache drop" not in differs(windows, "sglang", version)
    bidirectional = sliding(is_causal=False)
    assert ("causality" in differs(bidirectional, "sglang", version)) == (version in among(SGLANG, "0.5.14", "0.5.17"))
    assert (row(DFLASH2, "sglang", version).state == "refused") == (version in among(SGLANG, "0.5.11", "0.5.18"))
    assert row(speculators(), "sglang", version).state == "refused"
    swa = zlab(dflash_config__use_swa=True, dflash_config__swa_window_size=64)
    assert "window" in differs(swa, "sglang", version)
    nested = zlab(rope_theta=None, rope_parameters={"rope_theta": 1e7, "rope_type": "default"})
    assert ("rope" in differs(nested, "sglang", version)) == (version in ("0.5.11", "0.5.12"))
    side_car = differs(zlab(), "sglang", version, files=("mask_embedding.pt",))
    assert ("mask vector" in side_car) == (version in among(SGLANG, "0.5.11", "0.5.19"))


def test_llama_cpp() -> None:
    assert "causality" in differs(sliding(), "llama.cpp", "b11434")
    assert "causality" not in differs(sliding(is_causal=False), "llama.cpp", "b11434")
    assert "causality" not in differs(zlab(), "llama.cpp", "11434")
    assert row(zlab(), "llama.cpp", "b9967").state == "refused"
    dspark = zlab(architectures=["DSparkDraftModel"])
    assert (
        row(dspark, "llama.cpp", "b9967").state == "refused" and row(dspark, "llama.cpp", "b10236").state != "refused"
    )
    assert row(dspark, "llama.cpp", "b10100").state == "unknown"


def test_the_window_that_hugging_face_forgets() -> None:
    forgotten = sliding(full=0, use_sliding_window=False)
    assert row(forgotten, "vllm", "0.26.0").state == "refused"
    assert row(forgotten, "vllm", "0.24.0").state == "different"
    assert row(sliding(full=0), "vllm", "0.26.0").state == "minor"


def test_own_engine_is_asked_itself() -> None:
    assert row(sliding(), "draftproof", "0.1.0").state == "honoured"
    assert row(DFLASH2, "draftproof", "0.1.0").state == "refused"
    assert row(zlab(hidden_act="gelu"), "draftproof", "0.1.0").state == "refused"


def test_unread_releases_are_not_judged() -> None:
    found = row(zlab(), "vllm", "0.99.0")
    assert found.state == "unknown" and "newer" in found.note
    assert row(zlab(), "vllm", "main").state == "unknown"
    assert row(zlab(), "vllm", "0.26.1rc1.dev3+gabc").note


def test_neighbours_that_agree_are_joined() -> None:
    case = Case(drafter=Drafter(config=zlab()), method="dflash")
    listed = rows(case, [("vllm", None)])
    assert [r.first for r in listed] == sorted((r.first for r in listed), key=lambda v: [int(n) for n in v.split(".")])
    assert listed[0].state == "refused" and listed[1].versions == "0.20.0 – 0.21.0"


def test_data_is_complete() -> None:
    for name, one in engines().items():
        assert one.releases and one.flag and one.counts in ("tokens", "block"), name
    seen = set()
    for fact in facts():
        assert fact.id not in seen and fact.says and fact.source and fact.probe and fact.respect in RESPECTS
        assert not fact.code or fact.code in PAGES
        seen.add(fact.id)
