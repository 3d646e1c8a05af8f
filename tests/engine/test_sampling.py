"""Processors, truncated distributions, log-probabilities: against dense definitions, ties and infinities."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.engine.sampling import (
    Distribution,
    TokenHistory,
    distribution,
    greedy_token,
    needs_processing,
    process_logits,
    top_logprobs,
)
from draftproof.engine.types import SamplingParams
from draftproof.errors import DraftproofError, UsageError

from .naive import naive_logits, naive_probs, softmax

# A coarse grid, so that equal logits are common, as they are in bfloat16.
rows = st.lists(st.integers(-12, 12).map(lambda n: n / 2), min_size=1, max_size=40)
sampled = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 0.7, 1.0, 1.7]),
    top_k=st.sampled_from([-1, 0, 1, 2, 5, 100]),
    top_p=st.sampled_from([1.0, 0.97, 0.613, 0.317, 1e-4]),
    min_p=st.sampled_from([0.0, 0.0517, 0.411, 1.0]),
)


def dense(dist, vocab):
    probs = np.zeros(vocab)
    probs[dist.ids] = dist.probs
    return probs


@settings(deadline=None, max_examples=400)
@given(rows, sampled)
def test_distribution_is_the_naive_one(row, params):
    dist = distribution(torch.tensor(row), params)
    np.testing.assert_allclose(dense(dist, len(row)), naive_probs(row, params), rtol=1e-9, atol=1e-15)
    assert dist.probs.sum() == pytest.approx(1.0, abs=1e-12)
    if not dist.dense:
        assert (dist.probs > 0).all()
        assert list(dist.ids) == sorted(dist.ids, key=lambda i: (-row[i], i))


@pytest.mark.parametrize("spread", [0.0, 0.02, 1.0, 4.0])
@pytest.mark.parametrize("top_p", [0.1, 0.9, 0.999])
@pytest.mark.parametrize("top_k,min_p", [(0, 0.0), (50, 0.0), (0, 0.02)])
def test_large_vocabularies_take_the_growing_paths_and_stay_exact(spread, top_p, top_k, min_p):
    generator = torch.Generator().manual_seed(int(100 * spread) + top_k)
    row = (torch.randn(9000, generator=generator) * spread).bfloat16().float()  # plenty of ties
    params = SamplingParams(temperature=0.8, top_p=top_p, top_k=top_k, min_p=min_p)
    np.testing.assert_allclose(
        dense(distribution(row, params), 9000), naive_probs(row.numpy(), params), rtol=1e-7, atol=1e-14
    )


def test_equals_of_the_kth_are_kept_by_top_k_but_top_p_counts_in_order_of_id():
    row = torch.tensor([1.0, 3.0, 1.0, 3.0, 3.0])
    assert list(distribution(row, SamplingParams(temperature=1.0, top_k=2)).ids) == [1, 3, 4]
    assert list(distribution(row, SamplingParams(temperature=1.0, top_p=0.5)).ids) == [1, 3]


def test_equals_at_the_edge_of_top_p_are_kept_in_order_of_id_when_few_are_fetched():
    row = torch.arange(600).remainder(5).float()  # 120 tokens share the largest logit
    params = SamplingParams(temperature=0.01, top_p=20.5 / 120)
    assert distribution(row, params).ids.tolist() == list(range(4, 600, 5))[:21]


def test_top_p_keeps_the_token_that_crosses_the_bound_and_always_one():
    row = torch.log(torch.tensor([0.5, 0.3, 0.2]))
    assert len(distribution(row, SamplingParams(temperature=1.0, top_p=0.51))) == 2
    assert len(distribution(row, SamplingParams(temperature=1.0, top_p=0.49))) == 1
    assert len(distribution(row, SamplingParams(temperature=1.0, top_p=1e-9))) == 1


@pytest.mark.parametrize("extra", [{}, {"top_k": 3}, {"top_p": 0.9999999}, {"min_p": 1e-9}, {"top_k": 2, "top_p": 0.9}])
def test_forbidden_tokens_never_come_out(extra):
    row = torch.tensor([-math.inf, 1.0, -math.inf, 0.5])
    dist = distribution(row, SamplingParams(temperature=1.0, **extra))
    assert {dist.sample(u) for u in (1e-300, 0.25, 0.5, 0.75, 1 - 2**-53)} <= {1, 3}
    assert dist.prob_of(0) == dist.prob_of(2) == 0.0


@pytest.mark.parametrize("extra", [{}, {"top_k": 1}, {"top_p": 0.5}, {"min_p": 0.5}])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_overflowed_logits_are_an_error_with_a_remedy(extra, bad):
    with pytest.raises(DraftproofError, match="bfloat16 or float32"):
        distribution(torch.tensor([0.0, bad, 1.0]), SamplingParams(temperature=1.0, **extra))
    with pytest.raises(DraftproofError):
        distribution(torch.full((3,), -math.inf), SamplingParams(temperature=1.0, **extra))


def test_extreme_temperatures_do_not_overflow():
    row = torch.tensor([80.0, 79.0, -3e38])
    assert distribution(row, SamplingParams(temperature=1e-300)).sample(0.999) == 0
    assert distribution(row, SamplingParams(temperature=1e30)).prob_of(1) == pytest.approx(1 / 2, rel=1e-3)


def test_greedy_takes_the_lowest_id_among_equals():
    row = torch.zeros(50_000)
    row[[777, 4321, 49_999]] = 2.0
    assert greedy_token(row) == 777
    assert distribution(row, SamplingParams()).ids.tolist() == [777]


# Distribution itself


probabilities = st.lists(st.integers(0, 9), min_size=2, max_size=12).filter(any)


def both_kinds(weights):
    probs = np.array(weights) / sum(weights)
    order = np.array(sorted(np.flatnonzero(probs), key=lambda i: (-probs[i], i)), dtype=np.int64)
    return probs, [Distribution(None, probs), Distribution(order, probs[order])]


@given(probabilities, st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_sample_is_the_inverse_of_the_cumulative_probabilities(weights, u):
    probs, kinds = both_kinds(weights)
    for dist in kinds:
        token = dist.sample(u)
        before = sum(probs[i] for i in dist.ids[: list(dist.ids).index(token)])
        assert probs[token] > 0
        assert before - 1e-12 <= u <= before + probs[token] + 1e-12


@given(probabilities, st.data())
def test_residual_is_the_naive_one(weights, data):
    other = data.draw(st.lists(st.integers(0, 9), min_size=len(weights), max_size=len(weights)).filter(any))
    p, kinds_p = both_kinds(weights)
    q, kinds_q = both_kinds(other)
    left = np.maximum(p - q, 0)
    expected = left / left.sum() if left.sum() > 0 else p
    for dist_p in kinds_p:
        for dist_q in kinds_q:
            np.testing.assert_allclose(dense(dist_p.residual(dist_q), len(p)), expected, atol=1e-12)
            np.testing.assert_array_equal(dist_q.probs_at(np.arange(len(q))), q)
            assert [dist_q.prob_of(i) for i in range(len(q))] == list(q)


def test_residual_of_equal_distributions_falls_back_to_p():
    _, (dense_p, sparse_p) = both_kinds([1, 2, 3])
    assert dense_p.residual(sparse_p) is dense_p


def test_residual_ignores_drafted_ids_the_target_does_not_have():
    p = Distribution(None, np.array([0.5, 0.5]))
    q = Distribution(np.array([7, 0]), np.array([0.5, 0.5]))
    np.testing.assert_array_equal(p.residual(q).probs, [0.0, 1.0])
    assert p.prob_of(7) == 0.0


def test_quantiles_next_to_the_ends_hit_possible_tokens():
    dist = Distribution(None, np.array([0.0, 1 / 3, 1 / 3, 1 / 3, 0.0]))
    assert dist.sample(2.0**-53) == 1
    assert dist.sample(1 - 2.0**-53) == 3


# Processors


penalties = st.builds(
    SamplingParams,
    repetition_penalty=st.sampled_from([1.0, 0.8, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.5, -0.7]),
    frequency_penalty=st.sampled_from([0.0, 0.25, -1.0]),
    logit_bias=st.sampled_from([None, {0: 2.0}, {1: -100.0, 3: 0.5}]),
    min_tokens=st.sampled_from([0, 2, 4]),
)
tokens = st.lists(st.integers(0, 7), max_size=6)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.floats(-5, 5, width=32), min_size=8, max_size=8), penalties, tokens, tokens, tokens)
def test_processing_is_the_naive_one_with_drafted_tokens_as_output(row, params, prompt, output, path):
    history = TokenHistory(prompt, 8)
    for token in output:
        history.append(token)
    given_row = torch.tensor(row)
    result = process_logits(given_row, params, history, path, [5, 7], len(output))
    expected = naive_logits(row, params, prompt, output + path, [5, 7])
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-5)
    assert given_row.tolist() == row, "the caller's row was written to"
    if not needs_processing(params):
        assert result is given_row


@given(tokens, tokens, tokens)
def test_asking_about_a_path_leaves_the_history_alone(prompt, output, path):
    history = TokenHistory(prompt, 8)
    for token in output:
        history.append(token)
    before = [x.tolist() for x in history.seen()]
    history.seen(path)
    assert [x.tolist() for x in history.seen()] == before
    assert [history.count(t) for t in range(8)] == [output.count(t) for t in range(8)]


def test_history_grows_past_its_first_allocation():
    history = TokenHistory(range(100), 1000)
    for token in range(50, 500):
        history.append(token)
    ids, counts = history.seen()
    assert ids.tolist() == list(range(500))
    assert counts.tolist() == [0.0] * 50 + [1.0] * 450


def test_min_tokens_counts_committed_and_drafted_tokens():
    params, row, history = SamplingParams(min_tokens=3), torch.zeros(4), TokenHistory([], 4)
    assert process_logits(row, params, history, [0], [2], 1)[2] == -math.inf
    assert process_logits(row, params, history, [0, 0], [2], 1) is row
    assert process_logits(row, params, history, [], [], 0) is row


@pytest.mark.parametrize("token", [-1, 4, 10**6])
def test_a_biased_token_outside_the_vocabulary_is_named(token):
    params = SamplingParams(logit_bias={token: 1.0, 0: 1.0})
    with pytest.raises(UsageError, match=f"token {token}: .* 0 to 3"):
        process_logits(torch.zeros(4), params, TokenHistory([], 4), [], [], 0)


def test_history_refuses_tokens_outside_the_vocabulary():
    with pytest.raises(ValueError, match="token id 9"):
        TokenHistory([9], 8)


# Log-probabilities


@settings(deadline=None)
@given(rows, st.integers(0, 20))
def test_logprobs_are_of_the_raw_row_and_ties_rank_by_id(row, k):
    result = top_logprobs(torch.tensor(row), len(row) - 1, k)
    expected = np.log(softmax(np.array(row)))
    assert result.token_id == len(row) - 1
    assert result.logprob == pytest.approx(expected[-1], abs=1e-5)
    assert [t for t, _ in result.top] == sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]
    for token, logprob in result.top:
        assert logprob == pytest.approx(expected[token], abs=1e-5)
