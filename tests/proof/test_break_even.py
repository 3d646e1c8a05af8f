"""Is it acceptance or the price of a step, and how many tokens should be drafted?"""

from __future__ import annotations

import pytest

from draftproof.proof.break_even import break_even
from proof.rules.making import case, run

CURVE = [0.8, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05]  # AL 3.5


def test_a_dear_step_with_good_acceptance_is_a_matter_of_cost() -> None:
    found = break_even(case(run(accepted_per_position=CURVE, step_ms=35.0, baseline_step_ms=10.0)))
    assert found is not None
    assert (found.problem, found.cost, found.gain) == ("cost", 3.5, pytest.approx(1.0))


def test_low_acceptance_at_a_fair_price_is_a_matter_of_acceptance() -> None:
    found = break_even(case(run(mean_acceptance_length=1.5, step_ms=15.0, baseline_step_ms=10.0)))
    assert found is not None and found.problem == "acceptance" and found.choices == ()


def test_a_gain_is_no_problem() -> None:
    found = break_even(case(run(accepted_per_position=CURVE, tok_s=250.0, baseline_tok_s=100.0)))
    assert found is not None and found.problem == "neither" and found.cost == pytest.approx(1.4)


def test_advice_follows_the_measured_costs() -> None:
    seven = run({"num_speculative_tokens": 7}, accepted_per_position=CURVE, step_ms=30.0, baseline_step_ms=10.0)
    three = run({"num_speculative_tokens": 3}, accepted_per_position=CURVE[:3], step_ms=15.0, baseline_step_ms=10.0)
    found = break_even(case(seven, three))
    assert found is not None and found.measured
    assert found.advice.startswith("Draft N = 3 tokens: 1.90x")


def test_off_where_nothing_pays() -> None:
    curve = [0.1, 0.02, 0.0, 0.0, 0.0, 0.0, 0.0]
    found = break_even(case(run(accepted_per_position=curve, step_ms=40.0, baseline_step_ms=10.0)))
    assert found is not None and found.advice.startswith("Switch drafting off")


def test_nothing_without_speed_or_length() -> None:
    assert break_even(case(run(accepted_per_position=CURVE))) is None
    assert break_even(case(run(step_ms=3.0, baseline_step_ms=1.0))) is None
