"""The engine's promises besides greedy equality: sampling, penalties, stops, log-probabilities, limits, aborts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from draftproof import Engine, SamplingParams
from draftproof.engine.types import PrefillFinished, RequestFinished, RoundFinished, TokensCommitted
from draftproof.errors import CapabilityError, UsageError
from support.tiny import MAX_POSITION, VOCAB, NoisyOracle, naive_greedy, tiny_drafter, tiny_model
from support.tokenizer import tiny_tokenizer

PROMPT = [3, 14, 15, 92, 65, 35]


def engine(drafter: Any = None, **options: Any) -> Engine:
    if drafter:
        options["length_policy"] = "fixed"
    return Engine.from_model(tiny_model("llama"), tiny_tokenizer(VOCAB), drafter, **options)


def speculating(params: SamplingParams, **options: Any) -> tuple[Any, Any]:
    """The plain answer and the answer under a drafter that is partly right about it."""
    plain = engine().generate(PROMPT, params)[0]
    answers = {tuple(PROMPT): plain.token_ids + [0] * 8}
    fast = engine(lambda t: NoisyOracle(answers, VOCAB), **options).generate(PROMPT, params)[0]
    return plain, fast


SAMPLED = [
    SamplingParams(temperature=0.8, seed=1, max_tokens=60),
    SamplingParams(temperature=1.3, top_k=9, seed=2, max_tokens=60),
    SamplingParams(temperature=1.0, top_p=0.7, seed=3, max_tokens=60),
    SamplingParams(temperature=1.0, min_p=0.1, seed=4, max_tokens=60),
    SamplingParams(temperature=0.9, repetition_penalty=1.3, presence_penalty=0.5, seed=5, max_tokens=60),
    SamplingParams(temperature=0.9, frequency_penalty=0.7, logit_bias={7: 3.0, 9: -100.0}, seed=6, max_tokens=60),
    SamplingParams(repetition_penalty=1.4, frequency_penalty=0.3, max_tokens=60),
    SamplingParams(logit_bias={11: 2.5}, presence_penalty=1.0, max_tokens=60),
]


@pytest.mark.parametrize("params", SAMPLED, ids=range(len(SAMPLED)))
@pytest.mark.parametrize("options", [{"method": "tree"}, {"draft_sample_method": "greedy"}], ids=["tree", "chain"])
def test_seeded_text_is_plain_sampling_s(params: SamplingParams, options: dict[str, Any]) -> None:
    """Where the token always comes from the target's own draw, speculation does not even change the draw."""
    plain, fast = speculating(params, **options)
    assert fast.token_ids == plain.token_ids
    assert sum(r.accepted for r in fast.rounds) > 10


def test_rejection_sampling_is_reproducible_by_seed_and_uses_drafts() -> None:
    params = SamplingParams(temperature=1.0, seed=11, max_tokens=60)
    _, first = speculating(params)
    _, second = speculating(params)
    assert first.token_ids == second.token_ids
    assert sum(r.accepted for r in first.rounds) > 5


def test_without_a_seed_answers_differ() -> None:
    running = engine()
    outputs = {
        tuple(running.generate(PROMPT, SamplingParams(temperature=2.0, max_tokens=20))[0].token_ids) for _ in range(4)
    }
    assert len(outputs) > 1


@pytest.mark.parametrize("method", ["chain", "tree"])
def test_a_stop_inside_an_accepted_block_ends_there(method: str) -> None:
    truth = naive_greedy(tiny_model("llama"), PROMPT, 60)
    for cut in range(1, 40):
        if truth.index(truth[cut]) != cut:
            continue
        params = SamplingParams(max_tokens=60, stop_token_ids=[truth[cut]])
        _, fast = speculating(params, method=method)
        assert fast.token_ids == truth[: cut + 1]
        assert fast.finish_reason == "stop"


@pytest.mark.parametrize("method", ["chain", "tree"])
def test_stop_strings_and_text_are_those_of_plain_decoding(method: str) -> None:
    text = engine().generate(PROMPT, SamplingParams(max_tokens=60))[0].text
    for begin in range(5, len(text) - 4, 7):
        stop = text[begin : begin + 3]
        plain, fast = speculating(SamplingParams(max_tokens=60, stop=[stop]), method=method)
        assert fast.text == plain.text == text[: text.index(stop)]
        assert fast.token_ids == plain.token_ids
        assert fast.finish_reason == plain.finish_reason == "stop"


def test_min_tokens_holds_back_the_stop() -> None:
    truth = naive_greedy(tiny_model("llama"), PROMPT, 20)
    params = SamplingParams(max_tokens=20, min_tokens=12, stop_token_ids=[truth[3]])
    plain, fast = speculating(params, method="tree")
    assert fast.token_ids == plain.token_ids
    assert len(fast.token_ids) >= 12
    assert truth[3] not in fast.token_ids[:11]


@pytest.mark.parametrize("options", [{"method": "chain"}, {"method": "tree"}])
def test_logprobs_are_the_target_s_own(options: dict[str, Any]) -> None:
    params = SamplingParams(max_tokens=40, logprobs=3)
    _, fast = speculating(params, **options)
    model = tiny_model("llama")
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([PROMPT + fast.token_ids])).logits[0, len(PROMPT) - 1 : -1]
    expected = logits.log_softmax(-1)
    assert fast.logprobs is not None and len(fast.logprobs) == len(fast.token_ids)
    for row, entry, token in zip(expected, fast.logprobs, fast.token_ids, strict=True):
        assert entry.token_id == token
        assert entry.logprob == pytest.approx(float(row[token]), abs=1e-4)
        assert [t for t, _ in entry.top] == row.topk(3).indices.tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9])
def test_max_tokens_is_exact(count: int) -> None:
    for method in ("chain", "tree"):
        plain, fast = speculating(SamplingParams(max_tokens=count), method=method)
        assert len(fast.token_ids) == len(plain.token_ids) == count
        assert fast.finish_reason == "length"


def test_events_tell_the_whole_story_in_order() -> None:
    events = list(engine(lambda t: tiny_drafter(t)).stream(PROMPT, SamplingParams(max_tokens=12)))
    assert isinstance(events[0], PrefillFinished) and events[0].prompt_tokens == len(PROMPT)
    assert isinstance(events[-1], RequestFinished) and events[-1].reason == "length"
    tokens = [t for e in events if isinstance(e, TokensCommitted) for t in e.token_ids]
    assert tokens == naive_greedy(tiny_model("llama"), PROMPT, 12)
    rounds = [e.stats for e in events if isinstance(e, RoundFinished)]
    assert sum(r.produced for r in rounds) == 11  # the first token comes from the prompt's pass
    assert all(r.draft_s >= 0 and r.verify_s > 0 and r.host_s >= 0 for r in rounds)


def test_closing_a_stream_frees_everything() -> None:
    running = engine(lambda t: tiny_drafter(t))
    stream = running.stream(PROMPT, SamplingParams(max_tokens=50))
    for _ in range(3):
        next(stream)
    stream.close()
    assert running.scheduler.idle
    assert running.pool.free_blocks == running.pool.num_blocks


def test_more_requests_than_places_all_finish_right() -> None:
    prompts = [[i, i + 1, i + 2] for i in range(9)]
    running = engine(lambda t: tiny_drafter(t), max_num_seqs=3)
    outputs = running.generate(prompts, SamplingParams(max_tokens=20))
    for prompt, output in zip(prompts, outputs, strict=True):
        assert output.token_ids == naive_greedy(tiny_model("llama"), prompt, 20)


BAD_REQUESTS = [
    ([], {}, "the prompt is empty"),
    (list(range(90)) * 2, {}, "the prompt has 180 tokens"),
    ([VOCAB], {}, "outside the target's vocabulary"),
    ([-1], {}, "outside the target's vocabulary"),
    (PROMPT, {"logit_bias": {500: 1.0}}, "logit_bias: token id 500"),
    (PROMPT, {"stop_token_ids": [500]}, "stop_token_ids: token id 500"),
    (PROMPT, {"max_tokens": 0}, "max_tokens=0 is out of range"),
    (PROMPT, {"max_tokens": -3}, "max_tokens=-3 is out of range"),
    (PROMPT, {"temperature": -1.0}, "temperature=-1.0 is out of range"),
    (PROMPT, {"temperature": float("nan")}, "temperature=nan is out of range"),
    (PROMPT, {"top_p": 0.0}, "top_p=0.0 is out of range"),
    (PROMPT, {"min_tokens": 9, "max_tokens": 4}, "min_tokens=9 is out of range"),
    (PROMPT, {"stop": [""]}, "every stop string"),
]


@pytest.mark.parametrize(("prompt", "values", "message"), BAD_REQUESTS)
def test_bad_requests_are_refused_in_one_line(prompt: list[int], values: dict[str, Any], message: str) -> None:
    running = engine()
    with pytest.raises(UsageError, match=message) as caught:
        running.generate([prompt], SamplingParams(**values))
    assert "\n" not in str(caught.value)
    assert running.scheduler.idle


BAD_OPTIONS = [
    ({"methode": "tree"}, "unknown engine option 'methode'"),
    ({"method": "tree"}, "needs a drafter"),
    ({"tree_budget": 8}, "tree_budget has no effect without a drafter"),
    ({"num_speculative_tokens": 4}, "num_speculative_tokens has no effect without a drafter"),
    ({"dtype": "float32"}, "dtype has no effect on a model that is loaded"),
    ({"max_num_seqs": 0}, "max_num_seqs=0 is out of range"),
    ({"max_model_len": 4096}, f"exceeds the target's {MAX_POSITION} positions"),
    ({"kv_cache_gb": 1e-9}, "too small for one request"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS)
def test_bad_options_are_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        engine(**options)


def test_invariant_is_refused_where_it_cannot_hold() -> None:
    with pytest.raises(CapabilityError, match="experts"):
        Engine.from_model(tiny_model("qwen3_moe"), invariant=True)


def test_duplicate_ids_are_refused_and_unknown_aborts_are_nothing() -> None:
    running = engine()
    running.add_request(PROMPT, SamplingParams(max_tokens=4), "a")
    with pytest.raises(UsageError, match="'a' is already in use"):
        running.add_request(PROMPT, SamplingParams(max_tokens=4), "a")
    assert not running.abort("nobody")
    assert running.abort("a")
    assert not running.abort("a")
    assert running.pool.free_blocks == running.pool.num_blocks  # freed at once, the event waits for the next step
    assert running.has_work
    assert [e.reason for e in running.step() if isinstance(e, RequestFinished)] == ["abort"]
    assert running.step() == [] and not running.has_work
