"""Random sequences of everything that can happen to an engine, on a pool that is far too small for it.

After every operation the pool's books must balance; at the end every finished text is right and nothing is held.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftproof import Engine, SamplingParams
from draftproof.engine.policy import Batch, Choice
from draftproof.engine.types import RequestFinished, RequestPreempted, TokensCommitted
from support.tiny import VOCAB, naive_greedy, tiny_drafter, tiny_model

BLOCK, BLOCKS, MOST = 4, 22, 18
SEEN: Counter[str] = Counter()  # over all examples: did they reach what they are meant to reach?


class RandomLengths:
    """A policy that drafts any length at any time."""

    adaptive = False

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, batch: Batch) -> Choice:
        left = batch.draft_rows
        lengths = []
        for most in batch.most:
            lengths.append(self._random.randint(0, min(most, left)))
            left -= lengths[-1]
        return Choice(lengths, "at random")


@cache
def prompt(index: int) -> tuple[int, ...]:
    """Eight prompts; those of one parity share their first 9 tokens, the second half all of a shorter one."""
    made = torch.Generator().manual_seed(index % 2)
    shared = torch.randint(0, VOCAB, (9,), generator=made).tolist()
    own = torch.randint(0, VOCAB, (1 + 5 * index,), generator=torch.Generator().manual_seed(100 + index)).tolist()
    return tuple(shared + own) if index < 6 else tuple(shared[: index - 3])


@cache
def model() -> Any:
    return tiny_model("mistral")


@cache
def truth(index: int) -> list[int]:
    return naive_greedy(model(), list(prompt(index)), MOST)


@cache
def engine(method: str) -> Engine:
    """One engine per method for all examples: what an example leaves behind, the next one meets."""
    running = Engine.from_model(
        tiny_model("mistral"),
        None,
        lambda t: tiny_drafter(t, "sf"),
        method=method,
        length_policy="fixed",
        block_size=BLOCK,
        max_num_seqs=5,
        max_num_batched_tokens=24,
        max_model_len=BLOCKS * BLOCK,
        kv_cache_gb=BLOCKS * BLOCK * 6 * 128 / 2**30,
    )
    assert running.pool.num_blocks == BLOCKS
    return running


OPERATIONS = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 7), st.integers(1, MOST), st.sampled_from([1, 1, 1, 2, 3]), st.booleans()),
    st.tuples(st.just("step"), st.integers(1, 6)),
    st.tuples(st.just("abort"), st.integers(0, 30)),
    st.tuples(st.just("reset")),
)


class World:
    """An engine, and what its requests must say."""

    def __init__(self, method: str, seed: int) -> None:
        self.engine = engine(method)
        self.engine.core.loop.drafting.policy = RandomLengths(seed)  # type: ignore[union-attr, assignment]
        self.wanted: dict[str, tuple[int, int]] = {}
        self.texts: dict[tuple[str, int], list[int]] = {}
        self.finished: dict[tuple[str, int], str] = {}

    def add(self, index: int, count: int, answers: int, salted: bool) -> None:
        name = f"r{len(self.wanted)}"
        params = SamplingParams(max_tokens=count, n=answers)
        self.engine.add_request(list(prompt(index)), params, name, cache_salt="salt" if salted else None)
        self.wanted[name] = (index, count)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            for event in self.engine.step():
                key = (event.request_id, event.index)
                SEEN[type(event).__name__] += 1
                assert key not in self.finished
                if isinstance(event, TokensCommitted):
                    self.texts.setdefault(key, []).extend(event.token_ids)
                elif isinstance(event, RequestFinished):
                    self.finished[key] = event.reason

    def abort(self, number: int) -> None:
        self.engine.abort(f"r{number}")

    def reset(self) -> None:
        self.engine.prefix_cache.reset()  # type: ignore[union-attr]

    def check_books(self) -> None:
        pool = self.engine.pool
        held = Counter(block for sequence in pool._seqs.values() for block in sequence.blocks)
        assert all(pool.refs(block) == held[block] for block in range(pool.num_blocks))
        assert pool.free_blocks == pool.num_blocks - len(held)
        for i, window in enumerate(pool.windows):
            live = Counter(b for s in pool._seqs.values() for b in s.blocks[s.first[i] :])
            assert all(window.holds(block) and window.refs(block) == n for block, n in live.items())
            assert window.blocks.available == window.blocks.count - len(live)

    def drain(self) -> None:
        for _ in range(2000):
            if not self.engine.has_work:
                break
            self.step()
        assert not self.engine.has_work
        for (name, index), reason in self.finished.items():
            prompt_index, count = self.wanted[name]
            said = self.texts.get((name, index), [])
            assert reason in ("length", "abort") and said == truth(prompt_index)[: len(said)]
            assert reason == "abort" or len(said) == count
        assert self.engine.pool.free_blocks == self.engine.pool.num_blocks and self.engine.scheduler.idle


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    operations=st.lists(OPERATIONS, min_size=10, max_size=70),
    method=st.sampled_from(["chain", "tree"]),
    seed=st.integers(0, 2**16),
)
def run_example(operations: list[tuple[Any, ...]], method: str, seed: int) -> None:
    world = World(method, seed)
    try:
        for name, *arguments in operations:
            SEEN[name] += 1
            getattr(world, name)(*arguments)
            world.check_books()
        world.drain()
        world.check_books()
        hits = world.engine.prefix_cache.stats.hits  # type: ignore[union-attr]
        SEEN["hits"] = max(SEEN["hits"], hits)
    except BaseException:
        engine.cache_clear()  # a broken engine must not spoil the search for a smaller example
        raise


def test_nothing_that_happens_changes_a_text_or_leaks_a_block() -> None:
    run_example()
    for method in ("chain", "tree"):
        running = engine(method)
        running.prefix_cache.reset()  # type: ignore[union-attr]
        assert len(running.prefix_cache) == 0 and running.pool.kept_blocks == 0  # type: ignore[arg-type]
        assert all(bool((w.slot_map == -1).all()) for w in running.pool.windows)
    assert sum(SEEN[name] for name in ("add", "step", "abort", "reset")) > 2000
    assert SEEN[RequestPreempted.__name__] > 20 and SEEN["hits"] > 1000
