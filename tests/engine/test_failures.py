"""When something goes wrong in mid-flight: the request it concerns ends, the others and the engine go on."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof import Engine, SamplingParams
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
