"""The length policy: what it chooses for given costs and acceptance, what it learns, and that it can be forced."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof import Engine, SamplingParams
from draftproof.engine.acceptance import Calibration, EngineAcceptance, RunningAcceptance
from draftproof.engine.cost import CostCurve, measure
from draftproof.engine.policy import AdaptiveLengths, Batch, Choice, Costs, FixedLengths, _Times
from draftproof.engine.request import Request
from draftproof.engine.rng import RequestRng
from draftproof.engine.types import LengthChosen, RoundFinished
from support.tiny import VOCAB, NoisyOracle, naive_greedy, tiny_model

N = 7
FLAT = Costs(CostCurve([(1, 0.010), (64, 0.011)]), CostCurve([(8, 0.001), (64, 0.002)]))  # a memory-bound device
STEEP = Costs(CostCurve([(1, 0.010), (64, 0.640)]), CostCurve([(8, 0.004), (64, 0.030)]))  # every row costs a pass


def request(rates: list[float] | None = None) -> Request:
    made = Request("r", [1, 2, 3], SamplingParams(), 100, frozenset(), RequestRng(0))
    if rates is not None:
        made.acceptance = RunningAcceptance(N)
        for i in range(200):  # conditional acceptance as given, spread evenly
            accepted = 0
            while accepted < N and (i * 0.618 + 0.13 * accepted) % 1.0 < rates[accepted]:
                accepted += 1
            made.acceptance.learn([float(k < accepted) for k in range(N)])
    return made


def choose(costs: Costs, *requests: Request, prompt_rows: int = 0, draft_rows: int = 999) -> Choice:
    policy = AdaptiveLengths(costs, EngineAcceptance(N), credit=0.0)
    return policy.choose(Batch(requests, [N] * len(requests), prompt_rows, draft_rows))


def test_good_drafts_on_a_flat_curve_are_long_and_bad_ones_are_none() -> None:
    assert choose(FLAT, request([0.95] * N)).lengths == [N]
    assert choose(STEEP, request([0.95] * N)).lengths == [0]
    good, bad = request([0.95] * N), request([0.0] * N)
    costs = Costs(CostCurve([(1, 0.010), (64, 0.040)]), CostCurve([(8, 0.001)]))
    assert choose(costs, good, bad).lengths == [N, 0]


def test_a_choice_is_the_best_of_all_choices() -> None:
    """Against brute force over every pair of lengths, costs and acceptances in between."""
    costs = Costs(CostCurve([(1, 0.010), (4, 0.012), (16, 0.020)]), CostCurve([(2, 0.001), (16, 0.003)]))
    one, two = request([0.8] * N), request([0.5] * N)
    policy = AdaptiveLengths(costs, EngineAcceptance(N))
    prior = policy.acceptance.prior()
    gains = [policy._gains(r, N, prior) for r in (one, two)]
    times = _Times(costs, Batch([one, two], [N, N], 0, 99))
    rates = {(a, b): policy._rate(gains, [a, b], times) for a in range(N + 1) for b in range(N + 1)}
    chosen = tuple(policy.choose(Batch([one, two], [N, N], 0, 99)).lengths)
    assert rates[chosen] == pytest.approx(max(rates.values()), rel=1e-9)  # type: ignore[index]
    assert 0 < chosen[1] < chosen[0] < N


def test_the_row_budget_and_running_prompts_are_respected() -> None:
    assert sum(choose(FLAT, *[request([0.95] * N)] * 3, draft_rows=10).lengths) == 10
    assert sum(FixedLengths().choose(Batch([request()] * 3, [N] * 3, 0, 10)).lengths) <= 10


def test_a_prompt_beside_does_not_make_time_cheap() -> None:
    """A pass with a prompt is long, but a draft that would not pay without it delays everybody with it too."""
    costs = Costs(CostCurve([(1, 0.010), (16, 0.020), (256, 0.250)]), CostCurve([(2, 0.004), (8, 0.0045)]))
    weak, good = [0.3] * N, [0.95] * N
    for rates, some in ((weak, False), (good, True)):
        for prompt_rows in (0, 200):
            assert (choose(costs, request(rates), prompt_rows=prompt_rows).lengths[0] > 0) == some


def test_hysteresis_keeps_a_choice_that_is_about_as_good() -> None:
    costs = Costs(CostCurve([(1, 0.010), (8, 0.0135)]), CostCurve([(2, 0.0020), (8, 0.0021)]))
    r = request([0.6] * N)
    best = choose(costs, r).lengths[0]
    r.drafted_last = best + 1
    assert choose(costs, r).lengths == [best + 1]
    r.drafted_last = 0
    assert choose(costs, r).lengths == [best]


def test_what_no_draft_costs_is_looked_up_now_and_then() -> None:
    """A stale, dear idea of a pass without drafts would otherwise keep drafts going for ever."""
    policy, busy = AdaptiveLengths(FLAT, EngineAcceptance(N)), request([0.95] * N)
    rounds = [policy.choose(Batch([busy], [N], 0, 99)) for _ in range(200)]
    without = [i for i, choice in enumerate(rounds) if choice.lengths == [0]]
    assert len(without) == 3 and all(rounds[i].plain_test for i in without)
    assert rounds[without[0] + 1].lengths == [N]


def test_drafts_that_hardly_pay_are_not_begun_and_not_kept() -> None:
    costs = Costs(CostCurve([(1, 0.010), (2, 0.0148)]), CostCurve([(2, 0.0)]))  # a token of 0.5: 1.5 / 1.48
    one = request([0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    policy = AdaptiveLengths(costs, EngineAcceptance(N), credit=0.0)
    assert policy.choose(Batch([one], [N], 0, 99)).lengths == [0]
    one.drafted_last = 1
    assert policy.choose(Batch([one], [N], 0, 99)).lengths == [0]


def test_exploration_takes_its_share_of_the_time_and_no_more() -> None:
    costs = Costs(CostCurve([(1, 0.010), (8, 0.014)]), CostCurve([(8, 0.004)]))
    policy, r = AdaptiveLengths(costs, EngineAcceptance(N)), request([0.0] * N)
    explored, rounds = 0, 3000
    for _ in range(rounds):
        choice = policy.choose(Batch([r], [N], 0, 99))
        explored += choice.exploring == 0
        assert choice.exploring == 0 or choice.lengths == [0]
        policy.spent(0.010)
    extra = explored * (0.004 + 0.001)
    assert 0.004 < extra / (rounds * 0.010) < 0.02


def test_an_unknown_drafter_is_tried_at_once() -> None:
    """What it is worth would else be known only when the short requests are over."""
    costs = Costs(CostCurve([(1, 0.010), (8, 0.014)]), CostCurve([(8, 0.004)]))
    policy, r = AdaptiveLengths(costs, EngineAcceptance(N)), request([0.0] * N)
    assert [policy.choose(Batch([r], [N], 0, 99)).exploring for _ in range(10)] == [0] * 10
    poor = AdaptiveLengths(costs, EngineAcceptance(N), credit=0.0)
    assert poor.choose(Batch([r], [N], 0, 99)).exploring == -1


def test_nothing_is_explored_where_no_drafter_could_pay() -> None:
    policy = AdaptiveLengths(STEEP, EngineAcceptance(N))
    r = request([0.0] * N)
    for _ in range(500):
        assert policy.choose(Batch([r], [N], 0, 99)).lengths == [0]
        policy.spent(1.0)


def test_drafts_are_cut_where_the_drafter_is_unsure() -> None:
    policy = AdaptiveLengths(Costs(CostCurve([(1, 0.010), (8, 0.020)])), EngineAcceptance(N))
    batch, choice = Batch([request(), request()], [N, N], 0, 99), Choice([N, N], "")
    sure, unsure = [0.95**k for k in range(1, N + 1)], [0.05**k for k in range(1, N + 1)]
    lengths = policy.trim(batch, choice, [sure, unsure])
    assert lengths[0] >= 4 and lengths[1] == 0


def test_running_acceptance_forgets_and_leans_on_the_prior_at_first() -> None:
    counts = RunningAcceptance(2)
    assert counts.rates([0.5, 0.25]) == [0.5, 0.25]
    for _ in range(60):
        counts.learn([1.0, 1.0])
    assert counts.rates([0.0, 0.0])[0] > 0.8
    for _ in range(60):
        counts.learn([0.0, 0.0])
    assert counts.rates([0.0, 0.0])[0] < 0.05


def test_confidence_is_calibrated_by_outcomes() -> None:
    calibrated = Calibration()
    assert calibrated(0.9) == pytest.approx(0.9, abs=0.05)
    for i in range(500):
        calibrated.learn(0.9, i % 2 == 0)
    assert calibrated(0.9) == pytest.approx(0.5, abs=0.1)
    assert calibrated(0.2) == pytest.approx(0.2, abs=0.05)


def test_cost_curves_learn_and_never_fall() -> None:
    curve = CostCurve([(1, 0.010), (8, 0.012), (64, 0.060)])
    assert curve(1) == pytest.approx(0.010) and curve(36) == pytest.approx(0.036)
    for _ in range(60):
        curve.learn(8, 0.024)
    assert curve(8) == pytest.approx(0.024, rel=0.05)
    values = [curve(n) for n in range(1, 100)]
    assert values == sorted(values)
    for _ in range(5):
        curve.learn(8, 0.012)  # nothing makes a pass faster than it is: believed at once
    assert curve(8) < 0.016


def test_measuring_stops_when_its_time_is_up() -> None:
    sizes: list[int] = []

    def run(rows: int) -> float:
        sizes.append(rows)
        return 0.1 * rows

    curve = measure(run, (1, 2, 4, 8, 16), budget_s=0.9)
    assert curve.measured and max(sizes) == 4
    assert curve(16) == pytest.approx(1.6, rel=0.1)


def test_a_disturbed_measurement_does_not_make_more_rows_cheaper_than_fewer() -> None:
    seconds = {1: 0.030, 2: 0.011, 4: 0.012}
    curve = measure(seconds.__getitem__, (1, 2, 4), budget_s=9.0)
    assert curve.points() == [(1, 0.011), (2, 0.011), (4, 0.012)]


def oracle_engine(**options: Any) -> tuple[Engine, list[int]]:
    prompt = [3, 14, 15]
    truth = naive_greedy(tiny_model("llama"), prompt, 60)
    return Engine.from_model(
        tiny_model("llama"), None, lambda t: NoisyOracle({tuple(prompt): truth}, VOCAB), **options
    ), truth


@pytest.mark.parametrize("method", ["chain", "tree"])
@pytest.mark.parametrize(("costs", "some"), [(FLAT, True), (STEEP, False)], ids=["flat", "steep"])
def test_the_engine_drafts_where_it_pays_and_says_so(costs: Costs, some: bool, method: str) -> None:
    running, truth = oracle_engine(method=method)
    policy = running.core.loop.drafting.policy  # type: ignore[union-attr]
    assert isinstance(policy, AdaptiveLengths)
    policy.costs = costs
    running.core.loop.costs = Costs()  # what is measured here must not change the costs of this test
    events = list(running.stream([3, 14, 15], SamplingParams(max_tokens=60)))
    rounds = [e.stats for e in events if isinstance(e, RoundFinished)]
    said = [e for e in events if isinstance(e, LengthChosen)]
    assert [t for e in events for t in getattr(e, "token_ids", ())] == truth
    assert (sum(r.drafted for r in rounds) > len(rounds)) == some
    assert said[0].length > 0 if some else said[0].length == 0
    assert ("times the target alone" if some else "no draft promises to pay") in said[0].reason


def test_a_number_given_forces_the_length() -> None:
    for options in ({"num_speculative_tokens": 3}, {"length_policy": "fixed"}):
        running, truth = oracle_engine(**options)
        (output,) = running.generate([3, 14, 15], SamplingParams(max_tokens=60))
        assert output.token_ids == truth
        assert all(r.drafted == 7 for r in output.rounds[:-8])  # this double drafts seven whatever is asked for
    assert not running.options.adaptive
    assert oracle_engine(num_speculative_tokens=3, length_policy="adaptive")[0].options.adaptive


def test_seeds_give_one_text_whatever_the_lengths() -> None:
    params = SamplingParams(max_tokens=60, temperature=0.9, seed=7)
    plain = Engine.from_model(tiny_model("llama")).generate([3, 14, 15], params)[0]
    for costs in (FLAT, STEEP):
        running, _ = oracle_engine()
        running.core.loop.drafting.policy.costs = costs  # type: ignore[union-attr]
        assert running.generate([3, 14, 15], params)[0].token_ids == plain.token_ids
