"""The verdict: its rules, its confidence, the ranking of causes, the next probe."""

from __future__ import annotations

from draftproof.proof.case import Case, Drafter
from draftproof.proof.findings import Finding
from draftproof.proof.verdict import conclude, rank
from proof.rules.making import case, run

GOOD = {"num_drafts": 500, "num_draft_tokens": 3500, "num_accepted_tokens": 2000}
LOW = {"num_drafts": 500, "num_draft_tokens": 3500, "num_accepted_tokens": 500}


def test_the_four_verdicts() -> None:
    assert conclude(case(run(**GOOD))).kind == "healthy"
    assert conclude(case(run(**LOW))).kind == "suspicious"
    assert conclude(case(run({"concurrency": 9}, outcome="crash", kv_cache_usage=0.1))).kind == "faulty"
    assert conclude(case(run(num_drafts=23, num_accepted_tokens=44))).kind == "inconclusive"


def test_what_cannot_be_answered_is_inconclusive() -> None:
    assert conclude(Case()).kind == "inconclusive"
    assert conclude(case(run(**GOOD, speed_reported="poor"))).kind == "inconclusive"
    assert conclude(case(run(acceptance_reported="normal"))).kind == "inconclusive"
    assert conclude(case(run(**GOOD, outcome="crash"))).kind == "inconclusive", "it broke, and no rule knows why"
    assert conclude(Case(drafter=Drafter(config={"_truncated": True}))).kind == "healthy", "files without a fault"


def test_healthy_is_said_of_healthy_measurements_only() -> None:
    assert "HEALTHY" in conclude(case(run(**GOOD))).codes
    random = conclude(case(run(**GOOD), workload={"dataset": "random"}))
    assert random.kind == "suspicious" and "HEALTHY" not in random.codes


def test_confidence_is_that_of_the_strongest_finding() -> None:
    assert conclude(case(run(**GOOD))).confidence >= 0.9
    assert 0.6 <= conclude(case(run(mean_acceptance_length=5.0))).confidence < 0.9, "an average without counts"


def test_one_certain_error_keeps_its_probability_and_candidates_come_last() -> None:
    sure = Finding("A", "error", 0.95, "")
    maybe = Finding("B", "error", 0.4, "")
    (only,) = rank([sure])
    assert abs(only.probability - 0.95) < 1e-9
    ranked = rank([maybe, sure])
    assert [cause.finding.code for cause in ranked] == ["A", "B"]
    assert 1.0 > ranked[0].probability + ranked[1].probability > 0.9


def test_the_next_probe_is_about_what_is_open() -> None:
    assert "200 drafts" in conclude(case(run(num_drafts=23, num_accepted_tokens=44))).next_probe
    crash = conclude(case(run({"concurrency": 9}, **LOW, outcome="crash")))
    assert "enforce_eager" in crash.next_probe
    assert conclude(case(run(**GOOD))).next_probe == ""


def test_an_unexplained_difference_becomes_a_question() -> None:
    verdict = conclude(case(run(**GOOD), run({"sampler": "b"}, mean_acceptance_length=7.0)))
    assert verdict.kind == "healthy"
    assert any("accepts more" in question.fact for question in verdict.questions)
