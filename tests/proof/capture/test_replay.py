"""A replay calls a healthy engine clean and names every fault that was put into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from draftproof.proof.capture.replay.chain import WITNESS, replay
from draftproof.proof.capture.replay.search import ORDER_OF_REQUESTS
from draftproof.proof.capture.verdict import CODES
from draftproof.proof.lab.faults import FAULTS

from .world import captured, save_pair

# Not there to be seen: accepted tokens, numbers large enough for float16, prefix-cache hits (see the test of its own).
NOT_SHOWING = {"stale-rows", "half-precision", "cached-context-lost", "last-block-lost"}
WITHIN = [f.name for f in FAULTS if f.change is not None and f.name not in ORDER_OF_REQUESTS | NOT_SHOWING]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return save_pair(tmp_path_factory.mktemp("pair"))


def walk(path: Path, pair: tuple[Path, Path], **more: Any) -> Any:
    return replay(path, str(pair[1]), str(pair[0]), **more)


def test_a_healthy_engine_is_clean(pair: tuple[Path, Path], tmp_path: Path) -> None:
    result = walk(captured(tmp_path, pair), pair)
    assert [stage.status for stage in result.stages] == ["ok"] * 5, [s.says for s in result.stages]
    assert (result.proven.kind, result.proven.certainty) == ("healthy", "certain")
    assert result.search.healthy.equal == result.drafted > 200
    assert result.stages[2].figures["worst_error"] < 1e-5
    assert result.extra["witness"] > WITNESS, "the drafter is no witness"


@pytest.mark.parametrize("name", WITHIN)
def test_a_fault_is_named(name: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    result = walk(captured(tmp_path, pair, name), pair)
    assert result.proven.kind == "faulty"
    assert result.first is not None
    says = [(s.name, s.status, s.says) for s in result.stages]
    assert (result.proven.faults, result.proven.rivals) == ((name,), ()), says


@pytest.mark.parametrize("name", ["cached-context-lost", "last-block-lost"])
def test_a_fault_of_the_prefix_cache_is_named(name: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    assert walk(captured(tmp_path / "healthy", pair, repeat=2), pair).proven.kind == "healthy"
    result = walk(captured(tmp_path / "faulty", pair, name, repeat=2), pair)
    assert result.proven.faults == (name,) or (name,) in result.proven.rivals


def test_codes_are_the_laboratorys() -> None:
    mine = {fault.name: fault.code for fault in FAULTS if fault.change is not None}
    assert {name: CODES[name] for name in mine} == mine
