"""Published figures follow from raw counts; intervals have the coverage they claim."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from draftproof.bench.acceptance import AcceptanceCounts, wilson
from draftproof.engine.types import RoundStats


@st.composite
def round_lists(draw, min_size=0):
    depths = draw(st.lists(st.integers(0, 8), min_size=min_size, max_size=30))
    return [(d, draw(st.integers(0, d))) for d in depths]


def stats_of(drafted, depth, accepted, produced):
    return RoundStats(drafted, depth, accepted, produced, 0.0, 0.0, 0.0)


def test_a_worked_example():
    counts = AcceptanceCounts.from_rounds([(3, 3), (3, 1), (3, 0), (2, 2), (0, 0)])
    assert (counts.rounds, counts.all_rounds, counts.drafted, counts.accepted_tokens) == (4, 5, 11, 6)
    assert counts.at_least == [4, 3, 2, 1]
    assert counts.proposed == [4, 4, 4, 3]
    assert counts.tau == 1 + 6 / 4
    assert counts.acceptance_rate == 6 / 11
    assert counts.undrafted_share == pytest.approx(1 / 5)
    assert [p.rate for p in counts.positions()] == [3 / 4, 2 / 4, 1 / 4]
    # Position 3: two rounds got that far, but one of them had drafted only two tokens.
    assert [p.conditional for p in counts.positions()] == [3 / 4, 2 / 3, 1 / 1]


@given(round_lists())
def test_figures_follow_from_the_definitions(rounds):
    counts, drafted = AcceptanceCounts.from_rounds(rounds), [r for r in rounds if r[0] > 0]
    assert counts.rounds == len(drafted)
    assert counts.tau == (pytest.approx(np.mean([a + 1 for _, a in drafted])) if drafted else None)
    for k, n in enumerate(counts.at_least):
        assert n == sum(a >= k for _, a in drafted)
        assert counts.proposed[k] == sum(d >= k for d, _ in drafted)
    # The mean length is one plus the sum of the unconditional rates: how engines' logs can be cross-checked.
    if drafted:
        assert counts.tau == pytest.approx(1 + sum(p.rate for p in counts.positions()))
    for p in counts.positions():
        tried = [a for d, a in drafted if d >= p.position and a >= p.position - 1]
        assert p.conditional == (sum(a >= p.position for a in tried) / len(tried) if tried else None)


@given(round_lists(), round_lists())
def test_merging_is_counting_everything_together(first, second):
    merged = AcceptanceCounts.from_rounds(first).merge(AcceptanceCounts.from_rounds(second))
    assert merged.to_dict() == AcceptanceCounts.from_rounds(first + second).to_dict()


def test_merging_keeps_clusters_by_label():
    first = AcceptanceCounts.from_rounds([(4, 1)] * 3, ["a"] * 3)
    assert first.tau_ci95() is None, "one cluster says nothing about the spread between clusters"
    assert first.merge(AcceptanceCounts.from_rounds([(4, 3)], ["a"])).tau_ci95() is None
    low, high = first.merge(AcceptanceCounts.from_rounds([(4, 3)], ["b"])).tau_ci95()
    assert (low, high) == (2.0, 4.0)
    with pytest.raises(ValueError, match="labels"):
        first.merge(AcceptanceCounts.from_rounds([(4, 3)]))


def test_trees_count_nodes_as_drafted_and_truncation_does_not_matter():
    rounds = [stats_of(16, 4, 4, 2), stats_of(16, 5, 1, 2), stats_of(0, 0, 0, 1)]
    counts = AcceptanceCounts.from_rounds(rounds)
    assert counts.drafted == 32
    assert counts.tau == 1 + 5 / 2
    assert counts.proposed == [2, 2, 2, 2, 2, 1]


def test_nothing_counted_gives_nothing_and_no_error():
    for counts in (AcceptanceCounts.from_rounds([]), AcceptanceCounts.from_rounds([(0, 0)], ["a"])):
        assert (counts.tau, counts.acceptance_rate, counts.tau_ci95()) == (None, None, None)
        assert counts.positions() == [] and counts.at_least == [0]
        json.dumps(counts.to_dict(), allow_nan=False)


@given(round_lists(min_size=1))
def test_the_dictionary_is_plain_json(rounds):
    result = AcceptanceCounts.from_rounds(rounds, range(len(rounds))).to_dict()
    assert json.loads(json.dumps(result, allow_nan=False)) == result


@pytest.mark.parametrize("bad", [(2, 3), (2, -1)])
def test_impossible_rounds_are_refused(bad):
    with pytest.raises(ValueError, match="round 1: accepted"):
        AcceptanceCounts.from_rounds([(1, 1), bad])
    with pytest.raises(ValueError, match="2 rounds, but 1"):
        AcceptanceCounts.from_rounds([(1, 1), (1, 1)], ["a"])


@pytest.mark.parametrize("successes,trials", [(0, 10), (3, 10), (10, 10), (517, 1000)])
def test_wilson_is_scipys(successes, trials):
    reference = stats.binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    assert wilson(successes, trials) == pytest.approx((reference.low, reference.high), abs=1e-12)
    assert wilson(0, 0) is None


@given(st.integers(1, 50), st.data())
def test_wilson_stays_a_rate(trials, data):
    successes = data.draw(st.integers(0, trials))
    low, high = wilson(successes, trials)
    assert 0 <= low <= successes / trials + 1e-12 and successes / trials - 1e-12 <= high <= 1


def test_the_same_counts_give_the_same_interval():
    counts = AcceptanceCounts.from_rounds([(8, i % 7) for i in range(100)])
    assert counts.tau_ci95() == counts.tau_ci95()
    assert counts.tau_ci95(seed=1) != counts.tau_ci95(seed=2)


def test_bootstrap_by_rounds_agrees_with_the_normal_approximation():
    accepted = np.random.default_rng(0).geometric(0.3, size=2000).clip(max=16) - 1
    low, high = AcceptanceCounts.from_rounds([(15, int(a)) for a in accepted]).tau_ci95()
    spread = 1.96 * accepted.std() / math.sqrt(len(accepted))
    assert (low, high) == pytest.approx((1 + accepted.mean() - spread, 1 + accepted.mean() + spread), abs=0.02)


def clustered(generator, clusters, rounds):
    """Prompts differ in difficulty, rounds of one prompt do not, so rounds are not independent."""
    rates = generator.beta(2, 2, size=clusters)
    values = generator.binomial(8, np.repeat(rates, rounds))
    return [(8, int(a)) for a in values], np.repeat(np.arange(clusters), rounds).tolist()


def test_only_the_cluster_bootstrap_covers_when_prompts_differ():
    generator, covered = np.random.default_rng(4), {"clusters": 0, "rounds": 0}
    for _ in range(150):
        rounds, groups = clustered(generator, 40, 25)
        for name, labels in (("clusters", groups), ("rounds", None)):
            low, high = AcceptanceCounts.from_rounds(rounds, labels).tau_ci95(resamples=400)
            covered[name] += low <= 1 + 8 * 0.5 <= high
    assert covered["clusters"] / 150 > 0.88
    assert covered["rounds"] / 150 < 0.6


def test_many_different_clusters_do_not_need_much_memory():
    generator = np.random.default_rng(5)
    rounds, groups = clustered(generator, 6000, 2)
    low, high = AcceptanceCounts.from_rounds(rounds, groups).tau_ci95(resamples=500)
    assert low < 5 < high or abs(low - 5) < 0.2
