"""Walks and rejection round by round. That the law is right is tested in test_law.py."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.engine.distribution import Distribution
from draftproof.engine.rng import Purpose, RequestRng
from draftproof.engine.sampling import distribution
from draftproof.engine.tree import ancestors, build_tree, chain
from draftproof.engine.types import SamplingParams
from draftproof.engine.verify import Walk, draft_tokens, picker, reject, walk

V = 5
seeds = st.integers(0, 2**32)
short = st.lists(st.integers(0, V - 1), max_size=5)


def table(seed):
    """A target: logits as a pure function of the drafted path."""
    return lambda path: torch.randn(V, generator=torch.Generator().manual_seed(hash((seed, *path)) % 2**31))


@settings(deadline=None)
@given(seeds, st.integers(1, 12))
def test_a_walk_follows_the_targets_tokens_as_far_as_the_tree_goes(seed, budget):
    target = table(seed)
    tree = build_tree(torch.randn(3, V, generator=torch.Generator().manual_seed(seed)), budget)
    paths = [[], *([tree.tokens[i] for i in p] for p in ancestors(tree))]
    asked = []

    def pick(row, path):
        assert list(path) == paths[row], "row and path disagree"
        asked.append(row)
        return int(target(path).argmax())

    result = walk(tree, pick)
    greedy = []
    while len(greedy) < len(result.committed):
        greedy.append(int(target(greedy).argmax()))
    assert result.committed == greedy
    assert asked == [0, *(i + 1 for i in result.path)]
    assert [tree.tokens[i] for i in result.path] == result.tokens
    assert tree.child(result.path[-1] if result.path else -1, result.bonus) is None
    assert result.accepted == len(result.tokens) == len(result.committed) - 1


@given(short, st.lists(st.integers(0, V - 1), min_size=6, max_size=6))
def test_a_chain_walk_accepts_the_common_prefix(drafted, target):
    result = walk(chain(drafted), lambda row, path: target[row])
    n = next((i for i, (d, t) in enumerate(zip(drafted, target, strict=False)) if d != t), len(drafted))
    assert result == Walk(list(range(n)), drafted[:n], target[n])


@settings(deadline=None)
@given(short, seeds, st.booleans())
def test_rejection_asks_only_for_rows_it_reaches_and_decides_as_defined(drafted, seed, sampled):
    params, rng, asked = SamplingParams(temperature=1.0), RequestRng(seed), []
    flat = Distribution(None, np.full(V, 1 / V))
    q = [flat] * len(drafted) if sampled else None

    def p(row, path):
        assert list(path) == drafted[:row]
        asked.append(row)
        return distribution(table(seed)(path), params)

    result = reject(drafted, q, p, rng, 10)
    n = result.accepted
    assert asked == list(range(n + 1))
    assert result.tokens == drafted[:n] and result.path == list(range(n))
    for i in range(n):
        q_token = 1 / V if sampled else 1.0
        assert rng.uniform(10 + i, Purpose.ACCEPT) * q_token < p(i, drafted[:i]).prob_of(drafted[i])
    if n < len(drafted) and not sampled:
        assert result.bonus != drafted[n], "the replacement of a rejected deterministic draft is another token"


@given(st.lists(st.integers(0, V - 1), max_size=4), seeds)
def test_identical_drafter_and_target_accept_everything(drafted, seed):
    same = Distribution(None, np.full(V, 1 / V))
    result = reject(drafted, [same] * len(drafted), lambda row, path: same, RequestRng(seed), 0)
    assert result.tokens == drafted
    assert result.bonus == same.sample(RequestRng(seed).uniform(len(drafted), Purpose.TARGET))


def test_greedy_targets_make_rejection_exact_matching():
    target = [3, 1, 4]
    result = reject([3, 1, 2], None, lambda row, path: Distribution.point([*target, 0][row]), RequestRng(1), 0)
    assert result == Walk([0, 1], [3, 1], 4)


def test_the_caller_may_keep_the_path_it_was_shown():
    shown = []
    walk(chain([1, 2]), lambda row, path: shown.append(tuple(path)) or row + 1)
    assert shown == [(), (1,), (1, 2)]


def test_a_token_that_its_q_cannot_give_is_refused():
    q = [Distribution(None, np.array([1.0, 0.0]))]
    with pytest.raises(ValueError, match="probability 0"):
        reject([1], q, lambda row, path: q[0], RequestRng(0), 0)
    with pytest.raises(ValueError, match="2 drafted tokens, but 1"):
        reject([0, 0], q, lambda row, path: q[0], RequestRng(0), 0)


def test_drafts_are_greedy_or_sampled_with_the_numbers_of_their_positions():
    logits = torch.randn(4, V, generator=torch.Generator().manual_seed(0))
    params, rng = SamplingParams(temperature=0.9, top_k=3), RequestRng(5)
    best = logits.argmax(-1).tolist()
    assert draft_tokens(logits, params, rng, 0, "greedy") == (best, None)
    assert draft_tokens(logits, SamplingParams(), rng, 0, "probabilistic") == (best, None)
    tokens, q = draft_tokens(logits, params, rng, 100, "probabilistic")
    assert tokens == [
        distribution(row, params).sample(rng.uniform(100 + i, Purpose.DRAFT)) for i, row in enumerate(logits)
    ]
    assert all(d.prob_of(t) > 0 and len(d) == 3 for d, t in zip(q, tokens, strict=True))
    assert draft_tokens(logits[:0], params, rng, 0, "probabilistic") == ([], [])


@given(seeds, st.sampled_from([0.0, 0.8]))
@settings(deadline=None)
def test_picker_gives_plain_samplings_text_for_any_tree(seed, temperature):
    target, params, rng = table(seed), SamplingParams(temperature=temperature), RequestRng(seed)
    plain = []
    for i in range(5):
        row = target(plain)
        u = rng.uniform(i, Purpose.TARGET)
        plain.append(distribution(row, params).sample(u) if temperature else int(row.argmax()))
    for budget in (0, 1, 8):
        out = []
        while len(out) < 5:
            drafts = torch.randn(3, V, generator=torch.Generator().manual_seed(seed + len(out)))
            pick = picker(lambda row, path, out=out: target([*out, *path]), params, rng, len(out))
            out = [*out, *walk(build_tree(drafts, budget), pick).committed]
        assert out[:5] == plain
