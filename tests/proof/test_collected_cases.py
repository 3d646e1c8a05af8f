"""The collected cases: right as they are, and never wrong when a fact is missing, numbers move or names change."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from draftproof.proof.case import parse_case
from draftproof.proof.diagnosis import report
from draftproof.proof.findings import CaseError
from draftproof.proof.verdict import Verdict, conclude

ROOT = Path(__file__).parents[2]
CASES = ROOT.parent / "shared" / "data" / "cases.jsonl"
FOR_PEOPLE = ("id", "source", "expect", "derivable", "note")
# Codes that speak of a missing fact: without it they are right.
ABOUT_ABSENCE = {"BASELINE_MISSING", "HEALTHY", "ENGINE_LACKS_METHOD", "DRAFT_PARAMS_INCONSISTENT"}
WHOLE = ("accepted_per_position", "layer_types", "target_layer_ids", "architectures", "shape", "tap_rms", "_truncated")
Path_ = tuple[str | int, ...]

pytestmark = pytest.mark.skipif(not CASES.exists(), reason="needs the collected cases")


def collected() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()] if CASES.exists() else []


def bare(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in FOR_PEOPLE}


def judged(facts: dict[str, Any]) -> Verdict | None:
    """None for what is no case any more."""
    try:
        return conclude(parse_case(facts))
    except CaseError:
        return None


def accused(verdict: Verdict) -> set[str]:
    return {f.code for f in verdict.findings if f.counts and f.severity != "info"}


def facts_of(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Every fact that can be taken away alone, the deepest and the whole objects."""
    if path and (path[-1] in WHOLE or str(path[-1]).endswith("_range")):
        return
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if inner not in (None, {}, []) and key != "schema" and key != "_truncated":
            yield (*path, key)
            yield from facts_of(inner, (*path, key))


def without(facts: dict[str, Any], path: Path_) -> dict[str, Any]:
    """A config that lost a key is an excerpt: what it does not show proves nothing."""
    left = copy.deepcopy(facts)
    holder: Any = left
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    if path[:2] == ("drafter", "config") and len(path) > 2:
        left["drafter"]["config"]["_truncated"] = True
    return left


@pytest.fixture(scope="module")
def accuracy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("accuracy", ROOT / "scripts" / "accuracy.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["accuracy"] = module
    spec.loader.exec_module(module)
    return module


def test_the_goals_are_met(accuracy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "accuracy.json"
    monkeypatch.setattr(sys, "argv", ["accuracy", str(CASES), "--out", str(out)])
    assert accuracy.main() == 0
    found = json.loads(out.read_text())
    assert found["codes_of_derivable"]["share"] >= 0.97
    assert found["verdicts"]["share"] >= 0.95
    assert found["healthy_called_faulty"] == 0


@pytest.mark.parametrize("entry", collected(), ids=lambda entry: str(entry["id"]))
def test_without_a_fact_nobody_is_accused_anew(entry: dict[str, Any]) -> None:
    facts, expect = bare(entry), entry["expect"]
    allowed = ABOUT_ABSENCE | set(expect["must"]) | set(expect["may"])
    whole = judged(facts)
    assert whole is not None
    for path in facts_of(facts):
        verdict = judged(without(facts, path))
        if verdict is not None:
            assert accused(verdict) <= allowed | accused(whole), path
            assert verdict.codes & set(expect["must_not"]) <= ABOUT_ABSENCE, path


@pytest.mark.parametrize("entry", collected(), ids=lambda entry: str(entry["id"]))
def test_order_and_labels_and_what_is_for_people_do_not_matter(entry: dict[str, Any]) -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return [turned(one) for one in value] if isinstance(value, list) else value

    whole = judged(bare(entry))
    other = turned(entry) | {"id": "x", "source": "y", "note": "z", "expect": {}, "derivable": False}
    for number, observation in enumerate(other["observations"]):
        observation["label"] = f"run {number}"
    again = judged(other)
    assert whole is not None and again is not None
    assert (again.kind, again.codes) == (whole.kind, whole.codes)


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_slightly_other_numbers_give_the_same_verdicts(factor: float) -> None:
    """All measured averages moved by one percent: at most the few that sit on a threshold may turn."""
    turned = []
    for entry in collected():
        facts = copy.deepcopy(bare(entry))
        for observation in facts["observations"]:
            if any(key in observation["metrics"] for key in ("num_drafts", "num_draft_tokens", "num_accepted_tokens")):
                continue  # counts and averages would contradict each other
            for key, value in observation["metrics"].items():
                if isinstance(value, float) and key != "acceptance_ratio_committed":
                    observation["metrics"][key] = min(value * factor, 1.0) if value <= 1 else value * factor
        verdict = judged(facts)
        assert verdict is not None
        if verdict.kind != entry["expect"]["verdict"]:
            turned.append(entry["id"])
    assert len(turned) <= 3, turned


JUNK: list[Any] = [-1, 0, 1e308, -0.5, "x", [], {}, [1, "a", None], {"a": 1}, True, 1e-300, 10**30, "1.0", [0.5] * 40]


@pytest.mark.parametrize("seed", range(8))
def test_facts_of_any_type_and_size_never_end_in_a_traceback(seed: int) -> None:
    random = Random(seed)
    for _ in range(60):
        facts = copy.deepcopy(bare(random.choice(collected())))
        for path in random.sample(list(facts_of(facts)), 2):
            holder: Any = facts
            try:
                for key in path[:-1]:
                    holder = holder[key]
                holder[path[-1]] = copy.deepcopy(random.choice(JUNK))
            except (KeyError, TypeError, IndexError):
                continue  # the first piece of junk replaced what held this one
        try:
            case = parse_case(facts)
        except CaseError:
            continue
        json.dumps(report(case).to_dict())
