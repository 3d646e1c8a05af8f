"""The collected cases: what the rules of files, engines and launch lines must, may and must not say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftproof.proof.case import parse_case
from draftproof.proof.rules import PAGES, judge

CASES = Path(__file__).parents[3].parent / "shared" / "data" / "cases.jsonl"
AREAS = ("FILES", "ENGINE", "LAUNCH")
WANTED = 0.97

pytestmark = pytest.mark.skipif(not CASES.exists(), reason="needs the collected cases")


def cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]


def mine(codes: list[str]) -> set[str]:
    return {code for code in codes if code in PAGES and PAGES[code].area in AREAS}


def test_what_must_be_found_is_found_and_nobody_is_accused_wrongly() -> None:
    """Misses are printed with the confidence they had; see them with ``-s``."""
    wanted = found = forbidden = 0
    lines: list[str] = []
    for entry in cases():
        judged = judge(parse_case({**entry, "expect": None}), areas=AREAS)
        said = {f.code: f for f in judged.findings}
        must, must_not = mine(entry["expect"]["must"]), mine(entry["expect"]["must_not"])
        if entry["derivable"]:
            wanted += len(must)
            found += len(must & judged.codes)
            for code in sorted(must - judged.codes):
                lines.append(f"missed   {entry['id']:34} {code} ({said[code].level if code in said else 'not said'})")
        forbidden += len(must_not)
        for code in sorted(must_not & judged.codes):
            lines.append(f"accused  {entry['id']:34} {code}: {said[code].says}")
        verdict = entry["expect"]["verdict"]
        too_much = {"faulty": (), "suspicious": ("error",)}.get(verdict, ("error", "warning"))
        for finding in judged.findings:
            if finding.counts and finding.severity in too_much:
                lines.append(f"verdict  {entry['id']:34} is {verdict}; {finding.code}: {finding.says}")
    print(f"\n{found} of {wanted} found; {forbidden} accusations to be avoided", *lines, sep="\n")
    assert found >= WANTED * wanted
    assert not [line for line in lines if not line.startswith("missed")]


def test_answers_do_not_depend_on_what_is_for_people() -> None:
    for entry in cases():
        bare = {
            key: value for key, value in entry.items() if key not in ("id", "source", "expect", "derivable", "note")
        }
        assert judge(parse_case(entry), areas=AREAS) == judge(parse_case(bare), areas=AREAS)


def test_severities_and_levels_keep_to_the_pages() -> None:
    for entry in cases():
        for finding in judge(parse_case(entry), areas=AREAS).findings:
            assert finding.severity in PAGES[finding.code].severity
            assert finding.says and finding.evidence and finding.remedy and finding.probe
