"""Conversions between six meanings of acceptance agree with each other; intervals are there and honest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.proof.meanings import figures, length_ci95, length_from
from draftproof.proof.quantities import acceptance
from proof.rules.making import case, run


@given(st.integers(1, 500), st.integers(1, 16), st.data())
def test_every_meaning_leads_back_to_the_length(steps: int, k: int, data: st.DataObject) -> None:
    accepted = data.draw(st.integers(0, steps * k))
    draftless = data.draw(st.integers(0, 100))
    length = 1 + accepted / steps
    assert length_from("per_round", accepted / steps) == pytest.approx(length)
    assert length_from("rate", accepted / (steps * k), k=k) == pytest.approx(length)
    assert length_from("committed", accepted / (accepted + steps)) == pytest.approx(length)
    total = steps + draftless
    per_step = (accepted + total) / total
    assert length_from("per_step", per_step, draftless=draftless / total) == pytest.approx(length)


def test_conditional_rates_are_multiplied_up() -> None:
    assert length_from("conditional", [0.8, 0.5, 0.5]) == pytest.approx(1 + 0.8 + 0.4 + 0.2)
    assert length_from("rate", 0.4) is None, "without k a rate is no length"
    for bad in (("rate", 1.2), ("length", 0.5), ("committed", 1.0)):
        with pytest.raises(ValueError, match=bad[0]):
            length_from(bad[0], bad[1])  # type: ignore[arg-type]


def test_intervals_shrink_with_the_sample_and_miss_without_counts() -> None:
    curve = [0.8, 0.6, 0.4]
    few = length_ci95(acceptance(case(run(num_drafts=23, accepted_per_position=curve), k=3)))
    many = length_ci95(acceptance(case(run(num_drafts=2300, accepted_per_position=curve), k=3)))
    assert few is not None and many is not None
    assert few[1] - few[0] > 8 * (many[1] - many[0])
    assert many[0] < 2.8 < many[1]
    assert figures(acceptance(case(run(accepted_per_position=curve), k=3)))["length"].ci95 is None


def test_a_rate_with_k_unknown_gives_no_length() -> None:
    assert set(figures(acceptance(case(run(acceptance_rate=0.4), k=None)))) == {"rate"}
