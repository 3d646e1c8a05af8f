"""What requests share: prompts of n > 1, prefixes of earlier requests and of those running, and what they must not."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from draftproof import Engine, RequestOutput, SamplingParams
from draftproof.engine.types import PrefillFinished, RequestFinished, TokensCommitted
from draftproof.errors import UsageError
from support.tiny import VOCAB, naive_greedy, tiny_drafter, tiny_model

LONG = [(7 * i + 3) % VOCAB for i in range(45)]
BLOCK = 4


def engine(**options: Any) -> Engine:
    options = {"block_size": BLOCK, "length_policy": "fixed"} | options
    return Engine.from_model(tiny_model("llama"), None, lambda t: tiny_drafter(t), **options)


def passes(running: Engine) -> list[int]:
    """Rows of every target pass from now on."""
    rows: list[int] = []
    inner = running.target.forward

    def forward(batch: Any, kv: Any, **wanted: Any) -> Any:
        rows.append(len(batch.token_ids))
        return inner(batch, kv, **wanted)

    running.target.forward = forward  # type: ignore[method-assign]
    return rows


@pytest.mark.parametrize("length", [2, 44, 45])
def test_n_answers_read_their_prompt_once(length: int) -> None:
    running = engine(enable_prefix_caching=False)
    rows = passes(running)
    prompt = LONG[:length]
    outputs = running.generate(prompt, SamplingParams(n=3, max_tokens=10))
    assert [o.index for o in outputs] == [0, 1, 2]
    for output in outputs:
        assert output.token_ids == naive_greedy(tiny_model("llama"), prompt, 10)
    assert rows[0] == length  # the first answer reads it, the others add their last row only
    assert rows[1] <= 8 + 2
    assert running.pool.free_blocks == running.pool.num_blocks


def test_n_answers_are_sampled_with_seeds_of_their_own() -> None:
    running = engine()
    three = running.generate(LONG, SamplingParams(n=3, temperature=1.0, seed=5, max_tokens=10))
    alone = [
        running.generate(LONG, SamplingParams(temperature=1.0, seed=5 + i, max_tokens=10))[0].token_ids
        for i in range(3)
    ]
    assert [o.token_ids for o in three] == alone
    assert len({tuple(ids) for ids in alone}) == 3


def test_two_requests_of_one_step_share_what_the_first_has_written() -> None:
    """The second waits for each block instead of computing it again, and finds none before it stands in the pool."""
    running = engine(max_num_seqs=2, max_num_batched_tokens=10)
    rows = passes(running)
    outputs = {name: RequestOutput(name, LONG) for name in "ab"}
    for name in outputs:
        running.add_request(LONG, SamplingParams(max_tokens=1), name)
    while running.has_work:
        for event in running.step():
            outputs[event.request_id].apply(event)
    for output in outputs.values():
        assert output.token_ids == naive_greedy(tiny_model("llama"), LONG, 1)
    assert sum(rows) == len(LONG) + 1  # of the second prompt its last row alone
    assert (outputs["a"].cached_tokens, outputs["b"].cached_tokens) == (0, len(LONG) - 1)


def test_a_block_is_found_only_after_it_was_written() -> None:
    running = engine(max_num_seqs=2, max_num_batched_tokens=10)
    running.add_request(LONG, SamplingParams(max_tokens=4))
    cache = running.prefix_cache
    assert cache is not None
    for steps in range(1, 5):
        running.step()
        assert len(cache) == min(10 * steps, len(LONG)) // BLOCK


def test_salts_keep_tenants_apart() -> None:
    running = engine()
    cached = []
    for salt in ("one", "one", "two", None, None):
        events = list(running.stream(LONG, SamplingParams(max_tokens=2), cache_salt=salt))
        cached += [e.cached_tokens for e in events if isinstance(e, PrefillFinished)]
    assert cached == [0, len(LONG) - 1, 0, 0, len(LONG) - 1]
    stats = running.prefix_cache.stats  # type: ignore[union-attr]
    assert (stats.requests, stats.queries, stats.hits) == (5, 5 * len(LONG), 2 * (len(LONG) - 1))


def test_the_second_turn_of_a_chat_finds_the_first_answer() -> None:
    running = engine()
    first = running.generate(LONG[:20], SamplingParams(max_tokens=16))[0]
    turn = [*LONG[:20], *first.token_ids, 9, 9, 9]
    (second,) = running.generate(turn, SamplingParams(max_tokens=4))
    assert second.cached_tokens >= (20 + 16 - 1) // BLOCK * BLOCK
    assert second.token_ids == naive_greedy(tiny_model("llama"), turn, 4)


def test_a_long_prompt_stalls_nobody() -> None:
    """Answers go on while it is read, in every pass, and no pass exceeds the budget."""
    running = engine(max_num_seqs=4, max_num_batched_tokens=12)
    rows = passes(running)
    running.add_request([5, 6, 7], SamplingParams(max_tokens=30), "short")
    running.step()
    running.add_request(LONG, SamplingParams(max_tokens=4), "long")
    events = running.step()
    while not any(isinstance(e, PrefillFinished) for e in events):
        assert any(isinstance(e, TokensCommitted) and e.request_id == "short" for e in events)
        events = running.step()
    assert max(rows) <= 12


def test_many_threads_hand_over_to_one_that_steps() -> None:
    running = engine(max_num_seqs=4)
    outputs: dict[str, RequestOutput] = {}
    todo = threading.Semaphore(0)

    def submit(worker: int) -> None:
        for i in range(5):
            name = f"{worker}-{i}"
            outputs[name] = RequestOutput(name, LONG[: 3 + worker + i])
            running.add_request(LONG[: 3 + worker + i], SamplingParams(max_tokens=12), name)
            todo.release()
            if i == 3:
                running.abort(f"{worker}-1")

    threads = [threading.Thread(target=submit, args=(w,)) for w in range(4)]
    for thread in threads:
        thread.start()
    ended = 0
    while ended < 20:
        todo.acquire(timeout=0.01)
        for event in running.step():
            outputs[event.request_id].apply(event)
            ended += isinstance(event, RequestFinished)
    for thread in threads:
        thread.join()
    for output in outputs.values():
        expected = naive_greedy(tiny_model("llama"), output.prompt_token_ids, 12)
        assert output.token_ids == expected[: len(output.token_ids)]
        assert output.finish_reason == "abort" or output.token_ids == expected
    assert not running.has_work and running.pool.free_blocks == running.pool.num_blocks


def test_a_request_that_can_never_fit_is_refused_with_the_arithmetic() -> None:
    running = engine(kv_cache_gb=5 * BLOCK * (4 + 2) * 128 / 2**30)
    assert running.max_model_len == 20 == running.pool.num_blocks * BLOCK
    message = (
        r"has 30 tokens, but .* may have 20: kv_cache_gb=\S+ holds 5 blocks of 4 tokens \(768 bytes a token\); raise"
    )
    with pytest.raises(UsageError, match=message):
        running.add_request(LONG[:30], SamplingParams(max_tokens=30))
    (output,) = running.generate(LONG[:19], SamplingParams(max_tokens=30))
    assert output.token_ids == naive_greedy(tiny_model("llama"), LONG[:19], 1) and output.finish_reason == "length"


def test_budgets_below_one_row_a_request_are_refused() -> None:
    with pytest.raises(UsageError, match="max_num_batched_tokens=3 is below max_num_seqs=4"):
        engine(max_num_seqs=4, max_num_batched_tokens=3)
