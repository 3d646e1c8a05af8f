"""The law of sampled output: however text is drafted and verified, it is distributed as the target's own.

A tiny world: 6 tokens, a target whose logits depend on the last two tokens, a drafter that knows only the
anchor. Whole answers of 3 tokens are drawn by a round loop and their 216 frequencies compared with exact
probabilities from the naive definitions. Verifiers that are wrong on purpose must fail the same comparison.
"""

import numpy as np
import pytest
from scipy import stats

from draftproof.engine import verify
from draftproof.engine.distribution import Distribution
from draftproof.engine.rng import Purpose, RequestRng
from draftproof.engine.sampling import distribution, greedy_token
from draftproof.engine.tree import ancestors, build_tree, chain
from draftproof.engine.types import SamplingParams
from draftproof.engine.verify import Walk, draft_tokens, reject, walk

from .world import LENGTH, PARAMS, VOCAB, World

DRAWS = 20_000


def by_rejection(method, truth=reject):
    def one_round(world, out, logits, rng):
        tokens, q = draft_tokens(logits, world.params, rng, len(out), method)
        return truth(tokens, q, lambda row, path: world.p(out, tuple(path)), rng, len(out))

    return one_round


def unaware_of_q(world, out, logits, rng):
    """Sampled drafts, but no q handed over: still exact, since any fixed token may be proposed."""
    tokens, _ = draft_tokens(logits, world.params, rng, len(out), "probabilistic")
    return reject(tokens, None, lambda row, path: world.p(out, tuple(path)), rng, len(out))


def by_walk(make_tree, follow=walk):
    trees = {}

    def one_round(world, out, logits, rng):
        key = (logits.data_ptr(), len(logits))
        if key not in trees:
            tree = make_tree(logits)
            trees[key] = tree, [[], *([tree.tokens[i] for i in path] for path in ancestors(tree))]
        tree, rows = trees[key]

        def pick(row, path):  # as an engine sees it: a row of the verification forward, found by index
            target = world.p(out, tuple(rows[row]))
            return target.sample(rng.uniform(len(out) + len(path), Purpose.TARGET))

        return follow(tree, pick)

    return one_round


METHODS = {
    "rejection, probabilistic drafts": by_rejection("probabilistic"),
    "rejection, greedy drafts": by_rejection("greedy"),
    "rejection, sampled drafts without q": unaware_of_q,
    "rejection, nothing drafted": lambda world, out, logits, rng: reject(
        [], None, lambda row, path: world.p(out, tuple(path)), rng, len(out)
    ),
    "walk, chain": by_walk(lambda logits: chain(logits.argmax(-1).tolist())),
    "walk, tree": by_walk(lambda logits: build_tree(logits, 7)),
}


@pytest.fixture(autouse=True)
def drafter_distributions_computed_once(monkeypatch):
    known = {}  # rows are views of one table, so their address names them

    def remembered(row, params):
        key = (row.data_ptr(), id(params))
        if key not in known:
            known[key] = distribution(row, params)
        return known[key]

    monkeypatch.setattr(verify, "distribution", remembered)


def p_value(world, one_round, draws=DRAWS):
    """Chi-square of the answers' frequencies against the exact law; 0 if an impossible answer occurred."""
    powers = VOCAB ** np.arange(LENGTH)[::-1]
    answers = np.array([world.answer(RequestRng(seed), one_round) for seed in range(draws)])
    observed = np.bincount(answers @ powers, minlength=VOCAB**LENGTH)
    expected = world.exact() * draws
    if observed[expected == 0].sum():
        return 0.0
    rare = expected < 8
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    keep = expected > 0
    return stats.chisquare(observed[keep], expected[keep]).pvalue


CASES = [(m, "everything") for m in METHODS]
CASES += [("rejection, probabilistic drafts", p) for p in PARAMS if p != "everything"]
CASES += [("walk, tree", "penalties"), ("walk, tree", "plain"), ("rejection, greedy drafts", "penalties")]


@pytest.mark.parametrize("method,params", CASES)
def test_output_follows_the_targets_law(method, params):
    assert p_value(World(PARAMS[params]), METHODS[method]) > 1e-3


@pytest.mark.parametrize("params", PARAMS)
@pytest.mark.parametrize("method", ["walk, chain", "walk, tree", "rejection, nothing drafted"])
def test_target_sampled_text_is_the_text_of_plain_sampling(method, params):
    world = World(PARAMS[params])
    for seed in range(300):
        rng, plain = RequestRng(seed), ()
        while len(plain) < LENGTH:
            plain += (world.p(plain, ()).sample(rng.uniform(len(plain), Purpose.TARGET)),)
        assert world.answer(rng, METHODS[method]) == plain


def test_greedy_walks_and_rejection_all_give_the_greedy_text():
    world, plain = World(SamplingParams(repetition_penalty=1.3)), ()
    while len(plain) < LENGTH:
        plain += (greedy_token(world.row(plain, ())),)
    for method in METHODS.values():
        for seed in range(3):
            assert world.answer(RequestRng(seed), method) == plain


BARE = SamplingParams(temperature=PARAMS["top_p"].temperature)

# Wrong on purpose. Each is a mistake that engines have made or could make.


def wrong_reject(accept, replace):
    """``reject`` with its two decisions replaced: accept(u, p, q) and replace(p, q, token, u, fresh)."""

    def decide(tokens, q, p, rng, position):
        done = []
        for i, token in enumerate(tokens):
            target, draft = p(i, done), Distribution.point(token) if q is None else q[i]
            u = rng.uniform(position + i, Purpose.ACCEPT)
            if not accept(u, target.prob_of(token), draft.prob_of(token)):
                fresh = rng.uniform(position + i, Purpose.RESIDUAL)
                return Walk(list(range(i)), done, replace(target, draft, u, fresh))
            done.append(token)
        last = p(len(tokens), done).sample(rng.uniform(position + len(tokens), Purpose.TARGET))
        return Walk(list(range(len(tokens))), done, last)

    return decide


def right_accept(u, p, q):
    return u * q < p


def right_replace(p, q, u, fresh):
    return p.residual(q).sample(fresh)


def sampled_from_a_narrower_q(world, out, logits, rng):
    """Truncation applied to the drafter's distribution only; the target is judged without it."""
    tokens, q = draft_tokens(logits, world.params, rng, len(out), "probabilistic")
    return reject(tokens, q, lambda row, path: world.bare_p(out, tuple(path)), rng, len(out))


def q_without_its_truncation(world, out, logits, rng):
    """Drafts drawn with truncation, q reported without."""
    tokens, _ = draft_tokens(logits, world.params, rng, len(out), "probabilistic")
    q = [verify.distribution(row, BARE) for row in logits]
    return reject(tokens, q, lambda row, path: world.p(out, tuple(path)), rng, len(out))


def walk_ignoring_the_parent(tree, pick):
    """Takes any node of the next depth with the right token, whosever child it is."""
    node, path, tokens = -1, [], []
    while True:
        token = pick(node + 1, tokens)
        same = [i for i, t in enumerate(tree.tokens) if t == token and tree.depths[i] == len(tokens) + 1 and i > node]
        if not same:
            return Walk(path, tokens, token)
        node = same[0]
        path.append(node)
        tokens.append(token)


def greedy_verification(world, out, logits, rng):
    """Verifies a sampled request by argmax, as one engine does without its sampling kernel."""
    tree = chain(logits.argmax(-1).tolist())
    return walk(tree, lambda row, path: greedy_token(world.row(out, tuple(path))))


WRONG = {
    "residual replaced by p": (
        by_rejection("probabilistic", wrong_reject(right_accept, lambda p, q, u, fresh: p.sample(fresh))),
        "plain",
    ),
    "residual replaced by p, greedy drafts": (
        by_rejection("greedy", wrong_reject(right_accept, lambda p, q, u, fresh: p.sample(fresh))),
        "everything",
    ),
    "acceptance ratio inverted": (
        by_rejection("probabilistic", wrong_reject(lambda u, p, q: u * p < q, right_replace)),
        "plain",
    ),
    "acceptance ignores q": (
        by_rejection("probabilistic", wrong_reject(lambda u, p, q: u < p, right_replace)),
        "plain",
    ),
    "one number decides acceptance and replacement": (
        by_rejection("probabilistic", wrong_reject(right_accept, lambda p, q, u, fresh: p.residual(q).sample(u))),
        "plain",
    ),
    "top-p applied to q only": (sampled_from_a_narrower_q, "top_p"),
    "q reported without its top-p": (q_without_its_truncation, "top_p"),
    "tree walk ignoring the parent": (by_walk(lambda x: build_tree(x, 7), walk_ignoring_the_parent), "plain"),
    "sampled request verified by argmax": (greedy_verification, "plain"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_verifier_is_found_out(name):
    one_round, params = WRONG[name]
    assert p_value(World(PARAMS[params]), one_round, DRAWS // 2) < 1e-6


@pytest.mark.parametrize("method", ["rejection, probabilistic drafts", "walk, tree"])
def test_penalties_blind_to_drafted_tokens_are_found_out(method):
    world = World(PARAMS["penalties"], path_counts=False)
    assert p_value(world, METHODS[method], DRAWS // 2) < 1e-6
