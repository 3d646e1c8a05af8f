"""The exactness run: it passes on the real engine, and fails where something is made to differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from draftproof import Engine
from draftproof.bench import exactness as module
from draftproof.bench.exactness import run_exactness
from draftproof.bench.reference import TransformersReference
from draftproof.bench.tables import render
from draftproof.bench.ways import timed_run, ways_of
from support.tiny import MAX_POSITION, VOCAB, NoisyOracle, naive_greedy, tiny_drafter, tiny_model

PROMPTS = [("one", [3, 14, 15, 92]), ("two", [65, 35, 89]), ("three", [7, 9, 32, 38, 46])]


def oracle(family):
    """Accepts some tokens and misses some, so that rounds of all kinds are compared."""
    count = MAX_POSITION - 40
    answers = {tuple(ids): naive_greedy(tiny_model(family), ids, count) for _, ids in PROMPTS}
    return lambda target: NoisyOracle(answers, VOCAB)


def engine_of(family, drafter=None, dtype=torch.float32, **options):
    return Engine.from_model(
        tiny_model(family, dtype=dtype), drafter=drafter or oracle(family), length_policy="fixed", **options
    )


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_float32_passes_and_agrees_with_transformers(family):
    engine = engine_of(family)
    reference = TransformersReference(tiny_model(family), engine.eos_token_ids)
    lines = []
    result = run_exactness(
        ways_of(engine),
        PROMPTS,
        max_tokens=24,
        reference=reference,
        reference_prompts=2,
        progress=lines.append,
    )
    assert result["passed"] and list(result["ways"]) == ["chain", "tree"]
    for told in result["ways"].values():
        assert told["identical"] == 3 and told["agreed_tokens"] == 72 and not told["differences"]
        assert told["accepted"] > 10  # else nothing but plain decoding was compared
    assert result["transformers"]["identical"] == result["transformers"]["prompts"] == 2
    assert lines[-1] == "3/3 three: chain 3/3 identical, tree 3/3 identical, transformers 2/2"


@pytest.mark.parametrize("native", [False, None])
def test_bfloat16_is_bit_for_bit_in_invariant_mode(native):
    drafter, dtype = (lambda t: tiny_drafter(t)), torch.bfloat16
    engine = engine_of("llama", drafter, dtype=dtype, invariant=True, native=native)
    result = run_exactness(ways_of(engine), PROMPTS, max_tokens=24)
    assert result["bits_promised"] and result["passed"] and result["transformers"] is None
    for told in result["ways"].values():
        assert told["compared_logprobs"] == 72 and told["logprobs_differ"] == 0


def tampered(monkeypatch, change):
    """The tree's runs, changed on their way back."""

    def run(engine, ids, params):
        done = timed_run(engine, ids, params)
        return change(done) if engine.method == "tree" else done

    monkeypatch.setattr(module, "timed_run", run)


def test_a_wrong_token_fails_and_is_explained(monkeypatch):
    def change(run):
        ids = list(run.token_ids)
        ids[5] = (ids[5] + 1) % VOCAB
        return replace(run, token_ids=tuple(ids))

    tampered(monkeypatch, change)
    result = run_exactness(ways_of(engine_of("llama")), PROMPTS[:1], max_tokens=8)
    [difference] = result["ways"]["tree"]["differences"]
    assert not result["passed"] and result["ways"]["chain"]["passed"]
    assert (difference["prompt"], difference["position"], difference["verdict"]) == ("one", 5, "error")
    shown = render(result)
    assert shown is not None and "**failed**" in shown and "DDTree, prompt one, token 6: not rounding" in shown


def test_a_single_bit_fails_where_bits_are_promised(monkeypatch):
    def change(run):
        first = replace(run.logprobs[2], logprob=run.logprobs[2].logprob * (1 + 2**-50))
        return replace(run, logprobs=(*run.logprobs[:2], first, *run.logprobs[3:]))

    tampered(monkeypatch, change)
    engine = engine_of("llama", invariant=True, native=False)
    result = run_exactness(ways_of(engine), PROMPTS[:1], max_tokens=8)
    told = result["ways"]["tree"]
    assert not result["passed"] and told["identical"] == 1 and told["logprobs_differ"] == 1
    assert told["first_logprob_difference"] == {"prompt": "one", "position": 2}
    loose = run_exactness(ways_of(engine_of("llama", native=False)), PROMPTS[:1], max_tokens=8)
    assert not loose["bits_promised"] and loose["passed"]


def test_the_reference_stops_where_the_engine_stops():
    ids = PROMPTS[0][1]
    answer = naive_greedy(tiny_model("llama"), ids, 12)
    reference = TransformersReference(tiny_model("llama"), [answer[6]])
    end = answer.index(answer[6])
    assert reference.greedy(ids, 12) == answer[: end + 1]
    assert TransformersReference(tiny_model("llama"), []).greedy(ids, 12) == answer


def test_ways_share_the_weights_and_leave_out_what_cannot_be():
    engine = engine_of("llama")
    ways = ways_of(engine, (4, 8))
    assert list(ways) == ["plain", "chain", "tree-4", "tree-8"]
    assert all(way.target is engine.target for way in ways.values())
    assert [way.describe()["tree_budget"] for way in ways.values()] == [0, 0, 4, 8]
    assert list(ways_of(engine_of("qwen3_5", lambda t: tiny_drafter(t)))) == ["plain", "chain"]
    assert list(ways_of(Engine.from_model(tiny_model("llama")))) == ["plain"]
