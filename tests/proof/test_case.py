"""Cases on disk: what is written is read back; what is no case is refused with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftproof.proof.case import Case, Drafter, Engine, Observation, parse_case, read_case
from draftproof.proof.findings import CaseError
from draftproof.proof.rules import PAGES, judge

CASES = Path(__file__).parents[2].parent / "shared" / "data" / "cases.jsonl"


def test_a_case_survives_the_disk(tmp_path: Path) -> None:
    case = Case(
        engine=Engine("vllm", "0.25.1", {"runner": "V2"}, "vllm serve x"),
        method="dflash",
        k=15,
        drafter=Drafter("z", None, {"block_size": 16}, {"fc.weight": {"shape": [4, 8]}}, ("config.json",)),
        workload={"temperature": 0},
        observations=(Observation("log", {"context": "long"}, {"num_drafts": 3}, ("line",)),),
        origins={"drafter.config": "z/config.json"},
        for_people={"id": "one", "note": "n"},
    )
    file = tmp_path / "case.json"
    file.write_text(json.dumps(case.to_dict()))
    assert read_case(file) == case
    assert case.where("drafter.config.block_size") == "z/config.json: block_size"


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ([], "must be an object"),
        ({"schema": "draftproof.case/2"}, "schema"),
        ({"schema": "draftproof.case/1", "enginee": {}}, "enginee"),
        ({"schema": "draftproof.case/1", "num_speculative_tokens": -1}, "num_speculative_tokens"),
        ({"schema": "draftproof.case/1", "observations": [{"metrics": {"tok_s": float("nan")}}]}, "tok_s"),
        ({"schema": "draftproof.case/1", "drafter": {"config": []}}, "drafter.config"),
    ],
)
def test_no_case(given: object, place: str) -> None:
    with pytest.raises(CaseError, match=place):
        parse_case(given)


def test_text_that_is_no_json_is_named_with_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "case.json"
    file.write_text('{"schema":\n oops}')
    with pytest.raises(CaseError, match="line 2, column 2"):
        read_case(file)
    file.write_text("[" * 100_000)
    with pytest.raises(CaseError):
        read_case(file)


def test_an_empty_case_accuses_nobody() -> None:
    assert not [f for f in judge(Case()).findings if f.counts and f.severity == "error"]
    assert all(page.meaning for page in PAGES.values())


@pytest.mark.skipif(not CASES.exists(), reason="needs the collected cases")
def test_all_collected_cases_are_read() -> None:
    for line in CASES.read_text().splitlines():
        case = parse_case(json.loads(line))
        assert parse_case(case.to_dict()) == case
