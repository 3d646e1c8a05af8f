"""When something goes wrong in mid-flight: the request it concerns ends, the others and the engine go on."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof import Engine, SamplingParams
from draftproof.drafters.base import Draft
from draftproof.engine.cost import CostCurve
from draftproof.engine.policy import Costs
from draftproof.engine.types import RequestFinished
from draftproof.errors import DraftproofError, UsageError
from support.tiny import VOCAB, NoisyOracle, naive_greedy, tiny_drafter, tiny_model

PROMPTS = [[3, 14, 15], [92, 65, 35, 89], [7, 9]]


def engine(**options: Any) -> Engine:
    return Engine.from_model(tiny_model("llama"), None, lambda t: tiny_drafter(t), length_policy="fixed", **options)


def poison(running: Engine, when: Any) -> None:
    """Turn the logits of chosen passes into NaN: ``when(batch)`` names the segments concerned."""
    inner = running.target.forward

    def forward(batch: Any, kv: Any, **wanted: Any) -> Any:
        logits, taps = inner(batch, kv, **wanted)
        logits = logits.clone()
        poisoned = {row for index in when(batch) for row in range(*batch.rows(index).indices(10**6))}
        for place, row in enumerate(wanted["logits"]):
            if row in poisoned:
                logits[place] = float("nan")
        return logits, taps

    running.target.forward = forward  # type: ignore[method-assign]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_numbers_that_overflow_end_only_their_own_request(temperature: float) -> None:
    running = engine()
    victim = {"seq": None}

    def when(batch: Any) -> list[int]:
        if len(batch.segments) < 3:
            return []
        victim["seq"] = victim["seq"] if victim["seq"] is not None else batch.segments[1].seq
        return [i for i, s in enumerate(batch.segments) if s.seq == victim["seq"]]

    poison(running, when)
    params = [SamplingParams(max_tokens=20, temperature=temperature if i == 1 else 0.0) for i in range(3)]
    first, second, third = running.generate(PROMPTS, params)
    assert second.finish_reason == "error" and "overflowed" in second.finish_detail
    for prompt, output in ((PROMPTS[0], first), (PROMPTS[2], third)):
        assert output.token_ids == naive_greedy(tiny_model("llama"), prompt, 20)
    assert running.scheduler.idle and running.pool.free_blocks == running.pool.num_blocks


def test_a_failing_prefill_leaves_nothing_behind() -> None:
    running = engine()
    poison(running, lambda batch: [i for i, s in enumerate(batch.segments) if s.start == 0 and len(s) == 4])
    outputs = running.generate(PROMPTS, SamplingParams(max_tokens=12))
    assert [o.finish_reason for o in outputs] == ["length", "error", "length"]
    assert outputs[1].token_ids == []
    assert running.pool.free_blocks == running.pool.num_blocks


def test_an_unforeseen_exception_is_raised_and_the_engine_stays_usable() -> None:
    running = engine()
    inner, calls = running.target.forward, []

    def forward(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("a defect")
        return inner(*args, **kwargs)

    running.target.forward = forward
    with pytest.raises(RuntimeError, match="a defect"):
        running.generate(PROMPTS[0], SamplingParams(max_tokens=20))
    assert running.scheduler.idle and running.pool.free_blocks == running.pool.num_blocks
    output = running.generate(PROMPTS[0], SamplingParams(max_tokens=20))[0]
    assert output.token_ids == naive_greedy(tiny_model("llama"), PROMPTS[0], 20)


def test_streams_read_in_turn_lose_nothing() -> None:
    running = engine()
    streams = [running.stream(prompt, SamplingParams(max_tokens=15)) for prompt in PROMPTS]
    seen: list[list[int]] = [[] for _ in PROMPTS]
    ended = [False] * len(PROMPTS)
    while not all(ended):
        for i, stream in enumerate(streams):
            event = next(stream, None)
            if event is None:
                continue
            seen[i] += getattr(event, "token_ids", ())
            ended[i] |= isinstance(event, RequestFinished)
    for prompt, tokens in zip(PROMPTS, seen, strict=True):
        assert tokens == naive_greedy(tiny_model("llama"), prompt, 15)


def test_a_drafter_made_for_fewer_positions_stops_drafting_there() -> None:
    prompt = PROMPTS[1]
    truth = naive_greedy(tiny_model("llama"), prompt, 60)

    def make(target: Any) -> NoisyOracle:
        oracle = NoisyOracle({tuple(prompt): truth}, VOCAB)
        oracle.max_position = 30
        return oracle

    running = Engine.from_model(tiny_model("llama"), None, make, length_policy="fixed")
    output = running.generate(prompt, SamplingParams(max_tokens=60))[0]
    assert output.token_ids == truth
    assert output.rounds[0].drafted == 7
    assert all(r.drafted == 0 for r in output.rounds[-25:])


def test_options_for_loading_are_refused_for_a_loaded_model() -> None:
    with pytest.raises(UsageError, match="dtype has no effect"):
        Engine.from_model(tiny_model("llama"), dtype="bfloat16")


def test_biases_must_be_numbers() -> None:
    with pytest.raises(DraftproofError, match="logit_bias"):
        SamplingParams(logit_bias={3: float("nan")})
    SamplingParams(logit_bias={3: float("-inf")})


def test_stop_strings_wait_for_min_tokens() -> None:
    from support.tokenizer import tiny_tokenizer

    running = Engine.from_model(tiny_model("llama"), tiny_tokenizer(VOCAB))
    text = running.generate(PROMPTS[0], SamplingParams(max_tokens=30))[0].text
    early = running.generate(PROMPTS[0], SamplingParams(max_tokens=30, stop=[text[1:3]]))[0]
    late = running.generate(PROMPTS[0], SamplingParams(max_tokens=30, stop=[text[1:3]], min_tokens=20))[0]
    assert len(early.token_ids) < 6
    assert len(late.token_ids) >= 20


class Broken:
    """A drafter that fails in one way for requests that begin with a token, and works for the others."""

    def __init__(self, inner: Any, where: str, bad: int) -> None:
        self._inner, self._where, self._bad = inner, where, bad
        self._calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def propose(self, pool: Any, requests: Any) -> Any:
        self._calls += 1
        ill = [r.token_ids[0] == self._bad and r.count > 0 for r in requests]
        if self._where == "propose" and self._calls > 3 and any(ill):
            raise RuntimeError("the drafter broke")
        drafts = self._inner.propose(pool, requests)
        if self._calls <= 3:
            return drafts
        spoiled = {
            "shape": lambda d: Draft(logits=d.logits[:, :-1]),
            "nan": lambda d: Draft(logits=d.logits * float("nan")),
            "tokens": lambda d: Draft(tokens=[10**6]),
        }
        change = spoiled.get(self._where, lambda d: d)
        return [change(d) if is_ill else d for d, is_ill in zip(drafts, ill, strict=True)]

    def observe(self, pool: Any, committed: Any, taps: Any) -> None:
        self._calls += 1
        if self._where == "observe" and self._calls > 6:
            raise RuntimeError("no context today")
        self._inner.observe(pool, committed, taps)


@pytest.mark.parametrize("policy", ["fixed", "adaptive"])
@pytest.mark.parametrize("where", ["propose", "shape", "nan", "tokens"])
def test_a_failing_drafter_costs_one_request_its_drafts_and_nobody_a_token(where: str, policy: str) -> None:
    running = Engine.from_model(
        tiny_model("llama"), None, lambda t: Broken(tiny_drafter(t), where, PROMPTS[1][0]), length_policy=policy
    )
    if policy == "adaptive":  # drafts cost nothing, so that some are asked for
        running.core.loop.drafting.policy.costs = Costs(CostCurve([(1, 1.0), (64, 1.001)]), CostCurve([(8, 1e-6)]))
    outputs = running.generate(PROMPTS, SamplingParams(max_tokens=30))
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        assert output.token_ids == naive_greedy(tiny_model("llama"), prompt, 30)
    first, second, third = outputs
    assert len(second.warnings) == 1 and "going on without drafts" in second.warnings[0]
    assert not first.warnings and not third.warnings
    assert all(r.drafted == 0 for r in second.rounds[8:]) and any(r.drafted for r in first.rounds[8:])
    assert running.pool.free_blocks == running.pool.num_blocks


def test_context_that_could_not_be_made_is_not_cached_either() -> None:
    running = Engine.from_model(
        tiny_model("llama"), None, lambda t: Broken(tiny_drafter(t), "observe", 0), length_policy="fixed", block_size=4
    )
    prompt = [(5 * i) % VOCAB for i in range(30)]
    (output,) = running.generate(prompt, SamplingParams(max_tokens=30))
    assert output.token_ids == naive_greedy(tiny_model("llama"), prompt, 30)
    assert len(output.warnings) == 1 and "no context today" in output.warnings[0]
    assert 30 // 4 <= len(running.prefix_cache) < (30 + 20) // 4  # the prompt's blocks were complete


def test_an_exception_in_one_request_s_processing_ends_that_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    running = engine()

    def broken(*args: Any) -> Any:
        raise ZeroDivisionError("in a processor")

    monkeypatch.setattr("draftproof.engine.rounds.process_logits", broken)
    params = [
        SamplingParams(max_tokens=20),
        SamplingParams(max_tokens=20, presence_penalty=1.0),
        SamplingParams(max_tokens=20),
    ]
    first, second, third = running.generate(PROMPTS, params)
    assert second.finish_reason == "error" and "in a processor" in second.finish_detail
    for prompt, output in ((PROMPTS[0], first), (PROMPTS[2], third)):
        assert output.token_ids == naive_greedy(tiny_model("llama"), prompt, 20)
    assert running.pool.free_blocks == running.pool.num_blocks
