"""Drafters that fail: what it costs, and what it must not cost."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from draftproof import Engine, SamplingParams
from draftproof.engine.types import RequestFinished, RequestPreempted, RoundFinished, TokensCommitted
from support.tiny import VOCAB, naive_greedy, tiny_drafter, tiny_model

PROMPTS = [[3, 14, 15], [92, 65, 35, 89], [7, 9]]
LONG = [(7 * i + 3) % VOCAB for i in range(20)]


class Faulty:
    """A drafter that misbehaves from its ``after``-th call of a kind on, as long as ``broken``."""

    def __init__(self, inner: Any, kind: str, after: int = 0) -> None:
        self._inner, self._kind, self._after, self._calls = inner, kind, after, 0
        self.broken = True
        self.victim = -1  # the one sequence whose rows it cannot take in; -1: any
        self.said: dict[tuple[int, ...], Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _fails(self, kind: str) -> bool:
        self._calls += kind == self._kind
        return self.broken and kind == self._kind and self._calls > self._after

    def observe(self, pool: Any, committed: Any, taps: Any) -> None:
        if self._fails("observe") and (self.victim < 0 or any(c.seq == self.victim for c in committed)):
            raise RuntimeError("no context today")
        self._inner.observe(pool, committed, taps)

    def propose(self, pool: Any, requests: Any) -> Any:
        drafts = self._inner.propose(pool, requests)
        self.said |= {tuple(r.token_ids): d.logits for r, d in zip(requests, drafts, strict=True) if r.count}
        return drafts[:-1] if self._fails("count") else drafts


def engine(kind: str, after: int = 0, family: str = "llama", **options: Any) -> Engine:
    options = {"length_policy": "fixed", "block_size": 4} | options
    return Engine.from_model(tiny_model(family), None, lambda t: Faulty(tiny_drafter(t), kind, after), **options)


def test_a_drafter_that_answers_too_few_costs_no_token() -> None:
    running = engine("count", 3)
    outputs = running.generate(PROMPTS, SamplingParams(max_tokens=20))
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        assert output.token_ids == naive_greedy(tiny_model("llama"), prompt, 20)
        assert len(output.warnings) == 1 and "0 drafts for 1 requests" in output.warnings[0]


def test_context_that_fails_for_one_request_leaves_the_others_their_drafts() -> None:
    running = engine("observe", 4)
    drafter: Any = running.drafter
    for i, prompt in enumerate(PROMPTS):
        running.add_request(prompt, SamplingParams(max_tokens=20), str(i))
    events = running.step()
    drafter.victim = running.scheduler.running[1].seq
    while running.has_work:
        events += running.step()
    late = [e for e in events if isinstance(e, RoundFinished)][-12:]
    assert {e.request_id for e in late if e.stats.drafted} == {"0", "2"}
    for i, prompt in enumerate(PROMPTS):
        text = [t for e in events if isinstance(e, TokensCommitted) and e.request_id == str(i) for t in e.token_ids]
        assert text == naive_greedy(tiny_model("llama"), prompt, 20)


def test_answers_do_not_share_a_prompt_that_the_drafter_could_not_take_in() -> None:
    """Its keys and values would be missing under all their drafts, and in the prefix cache."""
    running, healthy = engine("observe"), engine("none")
    drafter: Any = running.drafter
    running.add_request(LONG, SamplingParams(max_tokens=16, n=2))
    events = running.step()
    drafter.broken = False
    while running.has_work:
        events += running.step()
    assert running.generate(LONG, SamplingParams(max_tokens=16))[0].cached_tokens
    healthy.generate(LONG, SamplingParams(max_tokens=16))
    expected: Any = healthy.drafter
    assert len(drafter.said) >= 12
    for tokens, logits in drafter.said.items():
        torch.testing.assert_close(logits, expected.said[tokens])


def test_a_request_that_drafts_no_more_keeps_no_window_for_its_drafter() -> None:
    """Else its windows fill up all memory, and it would be pre-empted and computed again for ever."""
    options = {"block_size": 1, "max_num_seqs": 1, "max_num_batched_tokens": 1}
    running = Engine.from_model(
        tiny_model("mistral"),
        None,
        lambda t: Faulty(tiny_drafter(t, block=2), "observe", 2),
        length_policy="fixed",
        **options,
    )
    assert min(w.blocks.count for w in running.pool.windows) < 90
    running.add_request(PROMPTS[0], SamplingParams(max_tokens=90))
    events = [event for _ in range(100) for event in running.step()]
    assert any(isinstance(e, RequestFinished) for e in events)
    assert not any(isinstance(e, RequestPreempted) for e in events)


def test_one_request_without_drafts_does_not_end_the_others_waiting() -> None:
    """Context K/V of what is not drafted for is made of many rows at once, which costs hardly more than of one."""
    running = Engine.from_model(tiny_model("llama"), None, lambda t: Faulty(tiny_drafter(t), "observe", 10**6))
    drafter: Any = running.drafter
    running.core.loop.drafting.policy.choose = lambda batch: _none(batch)  # type: ignore[union-attr, method-assign]
    for i, prompt in enumerate(PROMPTS[:2]):
        running.add_request(prompt, SamplingParams(max_tokens=80), str(i))
    running.step()
    running.scheduler.running[0].no_drafts = "as if its drafter had failed"
    before = drafter._calls
    for _ in range(70):
        running.step()
    assert drafter._calls - before <= 3


def _none(batch: Any) -> Any:
    from draftproof.engine.policy import Choice

    return Choice([0] * len(batch.requests), "none")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_numbers_that_overflow_are_no_token_under_processors_either(temperature: float) -> None:
    running = Engine.from_model(tiny_model("llama"))
    inner = running.target.forward

    def forward(*args: Any, **wanted: Any) -> Any:
        logits, taps = inner(*args, **wanted)
        return logits * float("nan"), taps

    running.target.forward = forward  # type: ignore[method-assign]
    params = SamplingParams(max_tokens=3, temperature=temperature, logit_bias={3: 1.0})
    (output,) = running.generate(PROMPTS[0], params)
    assert output.finish_reason == "error" and "overflowed" in output.finish_detail
