"""Impossible measurements are named and left out; possible ones are not touched."""

from __future__ import annotations

import pytest

from draftproof.proof.diagnosis import report
from draftproof.proof.sanity import sane
from proof.rules.making import case, run


def test_a_sane_case_is_the_same_object() -> None:
    made = case(run(num_drafts=300, num_draft_tokens=2100, num_accepted_tokens=900, tok_s=3.5, output="ok"))
    assert sane(made) == (made, ()) and sane(made)[0] is made


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("num_drafts", -5, "between 0"),
        ("acceptance_rate", 1.7, "between 0 and 1"),
        ("mean_acceptance_length", "4.2", "must be a number"),
        ("tok_s", True, "must be a number"),
        ("accepted_per_position", [0.9, -0.1], "between 0 and 1"),
        ("accepted_per_position", [0.5] * 600, "at most 512"),
        ("mean_acceptance_length_range", [1.0], "two numbers"),
        ("output", 3, "must be a word"),
    ],
)
def test_what_cannot_be_is_named_and_left_out(key: str, value: object, why: str) -> None:
    found, (note,) = sane(case(run(**{key: value, "ttft_s": 0.1})))
    assert key in note and why in note
    assert found.primary is not None and found.primary.metrics == {"ttft_s": 0.1}


def test_more_accepted_than_drafted() -> None:
    found = report(case(run(num_draft_tokens=100, num_accepted_tokens=101)))
    assert found.verdict.kind == "inconclusive" and "more than all" in found.notes[0]


def test_a_curve_longer_than_the_draft_is_remarked() -> None:
    found = report(case(run(accepted_per_position=[0.8, 0.6, 0.5, 0.4, 0.3], num_drafts=400), k=3))
    assert any("5 positions, but 3 drafted" in note for note in found.notes)
