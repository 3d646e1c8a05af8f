"""Acceptance numbers: derived from counters first, compared on the same scale."""

from __future__ import annotations

from math import isclose
from typing import Any

import pytest

from draftproof.intervals import wilson
from draftproof.proof.case import Case, Observation
from draftproof.proof.quantities import Acceptance, acceptance, low_line, ratio, step_cost


def seen(k: int | None = 15, method: str = "dflash", conditions: Any = None, **metrics: Any) -> Acceptance:
    return acceptance(Case(method=method, k=k, observations=(Observation("", conditions or {}, metrics),)))


@pytest.mark.parametrize(
    ("method", "k", "line"),
    [
        ("dflash", 3, 2.24),
        ("dspark", 4, 2.41),
        ("dflash2", 5, 2.52),
        ("dflash", 7, 2.63),
        ("dflash", 8, 2.66),
        ("dflash", 15, 2.71),
        ("mtp", 2, 1.78),
        ("eagle3", 3, 1.93),
        ("draft_model", 7, 2.09),
    ],
)
def test_low_line(method: str, k: int, line: float) -> None:
    found = low_line(method, k)
    assert found is not None and isclose(found, line, abs_tol=0.006)


def test_no_line_for_ngrams() -> None:
    assert low_line("ngram", 5) is None


def test_counters_are_preferred() -> None:
    found = seen(7, num_drafts=100, num_draft_tokens=700, num_accepted_tokens=250, mean_acceptance_length=9.0)
    assert found.length == 3.5 and found.rate == 250 / 700 and found.drafts == 100


def test_length_from_what_there_is() -> None:
    assert seen(accepted_per_position=[0.5, 0.25]).length == 1.75
    assert seen(7, acceptance_rate=0.5).length == 4.5
    assert isclose(seen(acceptance_ratio_committed=0.8).length or 0, 5.0)
    unknown = seen(None, acceptance_rate=0.1)
    assert unknown.length == 2.5 and not unknown.k_sure and unknown.below_line
    assert seen(7, mean_acceptance_length=4.5).rate == 0.5
    assert seen(None, acceptance_rate_range=[0.4, 0.6]).rate == 0.5
    assert not seen(acceptance_reported="lower").known


def test_sample_size() -> None:
    assert seen(15, num_drafts=20, num_accepted_tokens=10).too_few
    near = seen(15, num_drafts=65, num_accepted_tokens=89)
    assert near.too_few == (abs((near.length or 0) - (near.line or 0)) <= 2 * (near.standard_error or 0))
    assert not seen(15, num_drafts=300, num_accepted_tokens=400).too_few
    assert not seen(15, mean_acceptance_length=2.7).too_few


def test_comparisons() -> None:
    assert ratio(seen(mean_acceptance_length=2.0), seen(mean_acceptance_length=3.0)) == 0.5
    assert ratio(seen(acceptance_reported="lower"), seen(mean_acceptance_length=3.0)) == 0.7
    assert ratio(seen(acceptance_rate=0.01), seen(acceptance_reported="normal")) == 0.3
    assert ratio(seen(mean_acceptance_length=4.0), seen(acceptance_reported="normal")) is None
    assert ratio(seen(mean_acceptance_length=4.0), seen(acceptance_reported="unchanged")) == 1.0
    assert ratio(seen(acceptance_reported="much_lower"), seen(acceptance_reported="normal")) == 0.3
    assert ratio(seen(None, acceptance_rate=0.1), seen(None, acceptance_rate=0.2)) == 0.5
    assert ratio(seen(), seen(mean_acceptance_length=2.0)) is None


def test_cost_and_wilson() -> None:
    plain = Observation("", {}, {"tok_s": 30.0, "baseline_tok_s": 20.0})
    assert step_cost(plain, seen(mean_acceptance_length=3.0)) == 2.0
    low, high = wilson(5, 10)
    assert 0.2 < low < 0.5 < high < 0.8 and wilson(0, 0) is None
    assert wilson(12, 10)[1] == pytest.approx(1.0) and seen(num_drafts=-3, num_accepted_tokens=1).standard_error is None
