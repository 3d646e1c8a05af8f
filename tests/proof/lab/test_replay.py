"""A replayed round is the round that the target would have decided: same drafts, same acceptance, same text."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from draftproof.drafters.base import Draft
from draftproof.engine.engine import Engine
from draftproof.engine.types import SamplingParams
from draftproof.proof.lab.faults import BY_NAME, Fault
from draftproof.proof.lab.recording import Recording, record
from draftproof.proof.lab.replay import Coupled, ReplayTarget
from proof.lab.test_faults import PROMPTS, wiring_of
from support.tiny import VOCAB, tiny_model

TOKENS, LAYERS = 16, (0, 1, 2, 3, 4)


@pytest.fixture(scope="module")
def plain() -> Engine:
    return Engine.from_model(tiny_model("llama"), max_num_seqs=4, kv_cache_gb=0.01)


@pytest.fixture(scope="module")
def recordings(plain: Engine) -> list[Recording]:
    layers = range(plain.target.info.num_layers + 1)
    return record(plain, PROMPTS, layers, [SamplingParams(max_tokens=TOKENS + 6, ignore_eos=True)] * len(PROMPTS))


class Helped:
    """Names the right token at the first few positions, so that something is accepted; keeps what it was told."""

    def __init__(self, drafter: Any, answers: dict[int, tuple[int, ...]]) -> None:
        self._drafter, self._answers, self.said = drafter, answers, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drafter, name)

    def propose(self, pool: Any, requests: Any) -> list[Draft]:
        drafts: list[Draft] = []
        for request, draft in zip(requests, self._drafter.propose(pool, requests), strict=True):
            logits = draft.wide(VOCAB)
            if logits is None:
                drafts.append(draft)
                continue
            self.said.append(float(logits.max(-1).values.sum()))
            logits = logits.clone()
            begin = len(request.token_ids)
            coming = self._answers[request.token_ids[5]][begin : begin + begin % 4]
            for row, token in enumerate(coming[: len(logits)]):
                logits[row, token] = 1e4
            drafts.append(Draft(logits=logits))
        return drafts


def run(engine: Engine, target: Any, fault: Fault | None, recordings: list[Recording]) -> tuple[Any, ...]:
    wiring = wiring_of(target)
    drafter = (fault.change(wiring, target) if fault is not None and fault.change else wiring).build(target)
    helped = Helped(drafter, {r.prompt[5]: r.tokens for r in recordings})
    cached = fault is not None and fault.only == "cached"
    made = engine.around(target, helped, length_policy="fixed", max_num_seqs=1, enable_prefix_caching=cached)
    outputs = []
    for recording in recordings * (2 if cached else 1):
        if isinstance(target, ReplayTarget):
            target.load([recording])
        outputs += made.generate([list(recording.prompt)], SamplingParams(max_tokens=TOKENS, ignore_eos=True))
    assert not [w for o in outputs for w in o.warnings]
    return [o.token_ids for o in outputs], [[r.accepted for r in o.rounds] for o in outputs], helped.said


@pytest.mark.parametrize("name", [None, "taps-one-early", "window-ignored", "stale-rows", "cached-context-lost"])
def test_a_replay_is_the_run(name: str | None, plain: Engine, recordings: list[Recording]) -> None:
    fault = BY_NAME[name] if name else None
    texts, accepted, said = run(plain, plain.target, fault, recordings)
    again = run(plain, ReplayTarget(plain.target), fault, recordings)
    assert again[:2] == (texts, accepted)
    assert again[2] == pytest.approx(said, rel=1e-4)
    assert sum(map(sum, accepted)) > 10, "something was accepted, or nothing was shown"


def test_recordings_hold_what_the_target_says(plain: Engine, recordings: list[Recording]) -> None:
    wanted = plain.generate(PROMPTS, SamplingParams(max_tokens=TOKENS, ignore_eos=True, logprobs=0))
    for recording, output in zip(recordings, wanted, strict=True):
        assert list(recording.answer[:TOKENS]) == output.token_ids
        assert output.logprobs is not None
        assert list(recording.logprobs[:TOKENS]) == pytest.approx([lp.logprob for lp in output.logprobs], abs=1e-4)
        assert len(recording.taps[0]) == len(recording.tokens) - 1


def test_the_coupling_accepts_as_often_as_speculative_sampling() -> None:
    """One position, known p and q: over draws of x from p, the mean of min(1, q(x)/p(x)) is the sum of min(p, q)."""
    torch.manual_seed(0)
    p, q = torch.rand(6).softmax(-1), (3 * torch.rand(6)).softmax(-1)
    accepted = 0
    for i in range(3000):
        x = int(torch.multinomial(p, 1))
        recording = Recording((i, 1), (x, 0), (float(p[x].log()), 0.0), {})
        target = ReplayTarget.__new__(ReplayTarget)
        target.playing = {0: recording}
        request = type("Asked", (), {"seq": 0, "token_ids": [i, 1], "count": 1})()
        tokens = Coupled(None, target, seed=5)._tokens(request, q.log()[None])  # type: ignore[arg-type]
        accepted += tokens == [x]
    assert accepted / 3000 == pytest.approx(float(torch.minimum(p, q).sum()), abs=0.03)
