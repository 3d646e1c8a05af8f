"""A constraint on the tokens: the text is the naive loop's under the same masks, whatever is drafted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from draftproof import Engine, SamplingParams
from draftproof.engine.constraint import constrained_rows, prune
from draftproof.engine.rng import RequestRng
from draftproof.engine.sampling import distribution
from draftproof.engine.tree import build_tree
from draftproof.engine.types import DraftingStopped, RoundFinished
from draftproof.engine.verify import draft_tokens, reject
from draftproof.errors import UsageError
from support.tiny import VOCAB, NoisyOracle, tiny_drafter, tiny_model

from .world import LENGTH, World

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
EOS = 7
STEPS = 24


class Stairs:
    """After token t only those of the next residue class modulo ``period`` may come; the end after ``STEPS``."""

    def __init__(self, vocab: int = VOCAB, period: int = 5, steps: int = STEPS) -> None:
        self.vocab, self.period, self.steps = vocab, period, steps
        self.done: list[int] = []
        self.asked = 0

    def allowed(self, path: Sequence[int]) -> torch.Tensor:
        self.asked += 1
        return self._mask([*self.done, *path])

    def _mask(self, tokens: list[int]) -> torch.Tensor:
        if len(tokens) >= self.steps:
            return torch.arange(self.vocab) == EOS
        last = tokens[-1] if tokens else 0
        mask = torch.arange(self.vocab) % self.period == (last + 1) % self.period
        mask[EOS] = False
        return mask

    def accepts(self, path: Sequence[int], token: int) -> bool:
        return bool(self._mask([*self.done, *path])[token])

    def advance(self, token: int) -> None:
        assert self.accepts([], token)
        self.done.append(token)


def ending_model() -> Any:
    model = tiny_model("llama")
    model.config.eos_token_id = EOS
    model.generation_config.eos_token_id = EOS
    return model


@torch.inference_mode()
def naive() -> list[int]:
    model, state, ids = ending_model(), Stairs(), list(PROMPT)
    while ids[-1] != EOS or len(ids) == len(PROMPT):
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
        token = int(logits.masked_fill(~state.allowed([]), -torch.inf).argmax())
        ids.append(token)
        if token != EOS:
            state.advance(token)
    return ids[len(PROMPT) :]


@pytest.mark.parametrize("policy", ["fixed", "adaptive"])
@pytest.mark.parametrize("method", ["chain", "tree"])
@pytest.mark.parametrize("drafter", ["oracle", "dflash", "none"])
def test_greedy_text_is_the_naive_loops(method: str, drafter: str, policy: str) -> None:
    truth = naive()
    makers: dict[str, Any] = {
        "oracle": lambda t: NoisyOracle({tuple(PROMPT): truth}, VOCAB),
        "dflash": tiny_drafter,
    }
    options = {"method": method, "length_policy": policy} if drafter != "none" else {}
    engine = Engine.from_model(ending_model(), None, makers.get(drafter), **options)
    name = engine.add_request(PROMPT, SamplingParams(max_tokens=60, n=2), constraint=Stairs)
    tokens: dict[int, list[int]] = {0: [], 1: []}
    accepted = 0
    while engine.has_work:
        for event in engine.step():
            assert event.request_id == name
            if hasattr(event, "token_ids"):
                tokens[event.index] += event.token_ids
                accepted += event.accepted
    assert tokens == {0: truth, 1: truth}
    if drafter == "oracle" and policy == "fixed":
        assert accepted > 0


class _FewWords(NoisyOracle):
    """Drafts from every third token only, as drafters with a vocabulary of their own do."""

    def _draft(self, request: Any) -> Any:
        draft = super()._draft(request)
        if draft.logits is not None:
            draft.logits[:, torch.arange(self.vocab) % 3 != 0] = -torch.inf
        return draft


@pytest.mark.parametrize("policy", ["fixed", "adaptive"])
@pytest.mark.parametrize("method", ["chain", "tree"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_place_where_the_drafter_knows_no_allowed_token_ends_a_draft_only(
    method: str, policy: str, temperature: float
) -> None:
    truth = naive()
    engine = Engine.from_model(
        ending_model(), None, lambda t: _FewWords({tuple(PROMPT): truth}, VOCAB), method=method, length_policy=policy
    )
    period_six = partial(Stairs, period=6)  # two of three of its steps are outside the drafter's vocabulary
    engine.add_request(PROMPT, SamplingParams(max_tokens=60, temperature=temperature, seed=3), constraint=period_six)
    drafted, stopped = 0, []
    while engine.has_work:
        for event in engine.step():
            stopped += [event.detail] if isinstance(event, DraftingStopped) else []
            drafted += event.stats.drafted > 0 if isinstance(event, RoundFinished) else 0
    assert stopped == [] and (drafted > 3 or policy == "adaptive")


def test_seeded_sampling_does_not_depend_on_drafts() -> None:
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=40, presence_penalty=0.5)
    texts = []
    for drafter, options in ((None, {}), (tiny_drafter, {"method": "tree"}), (tiny_drafter, {})):
        engine = Engine.from_model(ending_model(), None, drafter, **options)
        engine.add_request(PROMPT, params, constraint=Stairs)
        tokens: list[int] = []
        while engine.has_work:
            tokens += [t for e in engine.step() if hasattr(e, "token_ids") for t in e.token_ids]
        texts.append(tokens)
    assert texts[0] == texts[1] == texts[2] and texts[0][-1] == EOS


def test_drafts_hold_only_what_is_allowed() -> None:
    generator = torch.Generator().manual_seed(0)
    tree = prune(build_tree(torch.randn(6, VOCAB, generator=generator), 400), Stairs(), (EOS,))
    assert len(tree) > 15
    for node, parent in enumerate(tree.parents):
        before = 0 if parent < 0 else tree.tokens[parent]
        assert tree.tokens[node] % 5 == (before + 1) % 5


class _Narrow(Stairs):
    """In the world of six tokens: no token twice in a row."""

    def _mask(self, tokens: list[int]) -> torch.Tensor:
        mask = torch.ones(self.vocab, dtype=torch.bool)
        if tokens:
            mask[tokens[-1]] = False
        return mask


def _frequencies(draws: int, mask: bool) -> tuple[np.ndarray, np.ndarray]:
    """Counts of sampled, constrained answers, and their exact probabilities."""
    world = World(SamplingParams(temperature=1.0))

    def row(out: tuple[int, ...], path: Sequence[int]) -> torch.Tensor:
        return world.row(out, tuple(path)).masked_fill(~_Narrow(6)._mask([*out, *path]), -torch.inf)

    def one_round(_: World, out: tuple[int, ...], logits: torch.Tensor, rng: RequestRng) -> Any:
        state = _Narrow(6)
        state.done = list(out)
        rows = constrained_rows(logits, state, ()) if mask else None
        tokens, q = draft_tokens(logits, world.params, rng, len(out), "probabilistic", rows)
        if not mask:  # cut by looking at what was drawn: bends the law
            keep = next((i for i, t in enumerate(tokens) if not state.accepts(tokens[:i], t)), len(tokens))
            tokens, q = tokens[:keep], q[:keep] if q else None
        return reject(tokens, q, lambda r, path: distribution(row(out, path), world.params), rng, len(out))

    answers = np.array([world.answer(RequestRng(seed), one_round) for seed in range(draws)])
    observed = np.bincount(answers @ (6 ** np.arange(LENGTH)[::-1]), minlength=6**LENGTH)
    exact = np.ones((6,) * LENGTH)
    for answer in np.ndindex(*exact.shape):
        for i, token in enumerate(answer):
            exact[answer] *= distribution(row(answer[:i], ()), world.params).prob_of(token)
    return observed, exact.ravel()


@pytest.mark.parametrize(("mask", "right"), [(True, True), (False, False)])
def test_sampled_drafts_under_a_constraint_keep_the_law(mask: bool, right: bool) -> None:
    draws = 12_000
    observed, exact = _frequencies(draws, mask)
    assert observed[exact == 0].sum() == 0
    keep = exact * draws > 5
    seen = np.append(observed[keep], observed[~keep].sum())
    wanted = np.append(exact[keep], exact[~keep].sum()) * draws
    assert (stats.chisquare(seen, wanted).pvalue > 1e-3) == right


@pytest.mark.parametrize(
    "params",
    [SamplingParams(min_tokens=3), SamplingParams(ignore_eos=True), SamplingParams(logit_bias={3: float("-inf")})],
)
def test_what_could_leave_no_token_is_refused(params: SamplingParams) -> None:
    with pytest.raises(UsageError):
        Engine.from_model(ending_model()).add_request(PROMPT, params, constraint=Stairs)
