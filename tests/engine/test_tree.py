"""Draft trees: the likeliest prefixes and nothing else, in an order a verifier can rely on."""

import itertools
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.engine.tree import Tree, ancestors, build_tree, chain


@st.composite
def blocks(draw, grid=None):
    grid = st.floats(-4, 4, width=32) if grid is None else grid
    rows, vocab = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return torch.tensor(draw(st.lists(st.lists(grid, min_size=vocab, max_size=vocab), min_size=rows, max_size=rows)))


coarse = st.integers(-1, 1).map(float)
budgets = st.integers(1, 40)


def prefixes(logits):
    """Every prefix with its log-probability."""
    logprobs = torch.log_softmax(logits, dim=1).double().numpy()
    depth, vocab = logprobs.shape
    return {
        prefix: sum(logprobs[d, t] for d, t in enumerate(prefix))
        for n in range(1, depth + 1)
        for prefix in itertools.product(range(vocab), repeat=n)
    }


def node_prefixes(tree):
    return [tuple(tree.tokens[i] for i in path) for path in ancestors(tree)]


@settings(deadline=None, max_examples=300)
@given(st.one_of(blocks(), blocks(coarse)), budgets)
def test_nodes_are_the_likeliest_prefixes_in_falling_order(logits, budget):
    tree, every = build_tree(logits, budget), prefixes(logits)
    found = node_prefixes(tree)
    assert len(found) == len(set(found)) == min(budget, len(every))
    best = sorted(every.values(), reverse=True)[: len(found)]
    np.testing.assert_allclose([every[p] for p in found], best, atol=1e-5)
    np.testing.assert_allclose(tree.logprobs, [every[p] for p in found], atol=1e-5)


@settings(deadline=None, max_examples=200)
@given(st.one_of(blocks(), blocks(coarse)), budgets)
def test_shape(logits, budget):
    tree = build_tree(logits, budget)
    for i, (parent, depth) in enumerate(zip(tree.parents, tree.depths, strict=True)):
        assert -1 <= parent < i
        assert depth == (1 if parent == -1 else tree.depths[parent] + 1)
        assert tree.child(parent, tree.tokens[i]) == i
        assert tree.child(parent, tree.tokens[i]) == i
    assert len(set(zip(tree.parents, tree.tokens, strict=True))) == len(tree), "duplicate siblings"
    assert tree.depth == max(tree.depths) <= len(logits)


@given(blocks(coarse), budgets)
def test_a_smaller_budget_gives_the_beginning_of_the_same_tree(logits, budget):
    small, large = build_tree(logits, budget), build_tree(logits, 41)
    assert small.tokens == large.tokens[: len(small)]
    assert small.parents == large.parents[: len(small)]


@given(blocks(), st.integers(1, 4))
def test_max_depth_is_the_tree_of_fewer_rows(logits, depth):
    assert build_tree(logits, 20, max_depth=depth) == build_tree(logits[:depth], 20)


def test_equal_tokens_rank_by_id():
    assert build_tree(torch.zeros(1, 5), 5).tokens == [0, 1, 2, 3, 4]


def test_certain_tokens_make_a_chain_with_parents_first():
    logits = torch.full((4, 3), -1e9)
    logits[:, 1] = 0.0
    tree = build_tree(logits, 4)
    assert tree == chain([1, 1, 1, 1])


def test_impossible_tokens_are_left_out_even_below_the_budget():
    logits = torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]])
    assert build_tree(logits, 10) == chain([0, 1])


@pytest.mark.parametrize("logits,budget,depth", [((0, 5), 4, None), ((3, 5), 0, None), ((3, 5), 4, 0)])
def test_nothing_to_draft_gives_an_empty_tree(logits, budget, depth):
    tree = build_tree(torch.zeros(logits), budget, depth)
    assert len(tree) == 0 and tree.depth == 0 and ancestors(tree) == [] and tree.child(-1, 0) is None


def test_a_wrong_shape_is_refused():
    with pytest.raises(ValueError, match="need logits"):
        build_tree(torch.zeros(5), 3)


def test_chain_is_a_tree_without_branches():
    tree = chain([7, 7, 8], [-0.1, -0.2, -0.3])
    assert tree == Tree([7, 7, 8], [-1, 0, 1], [1, 2, 3], [-0.1, -0.2, -0.3])
    assert ancestors(tree) == [[0], [0, 1], [0, 1, 2]]
    assert tree.child(-1, tree.tokens[0]) == 0 and tree.first(1).tokens == tree.tokens[:1]


@pytest.mark.parametrize("budget", [16, 64])
def test_host_cost_after_topk(budget):
    """About 0.1 ms for 16 nodes and 0.4 ms for 64 of this thread; the margin is for slow machines."""
    logits = torch.randn(15, 200, generator=torch.Generator().manual_seed(0)) * 3
    best = min(_seconds(logits, budget) for _ in range(20))
    assert best < 5e-3


def _seconds(logits, budget):
    start = time.thread_time()
    build_tree(logits, budget)
    return time.thread_time() - start
