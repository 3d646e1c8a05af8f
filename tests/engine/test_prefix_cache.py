"""What the prefix cache finds, what it forgets first, and what a search costs."""

from __future__ import annotations

import pytest
import torch

from draftproof.engine.memory import KVShape, PoolSizes
from draftproof.engine.pool import KVPool
from draftproof.engine.prefix_cache import PrefixCache, block_name, root_name
from draftproof.engine.windows import WindowMemory
from draftproof.targets.base import Snapshot

SIZE, WINDOW = 4, 6
ROOT = root_name(None)


def pool(blocks: int, window_blocks: int) -> KVPool:
    return KVPool(
        [KVShape(1, 2, 2), KVShape(1, 2, 2, window=WINDOW)],
        [],
        sizes=PoolSizes(blocks, {WINDOW: window_blocks}),
        block_size=SIZE,
        max_seqs=4,
        max_len=blocks * SIZE,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


def publish(p: KVPool, cache: PrefixCache, tokens: list[int]) -> list[bytes]:
    """A sequence that wrote ``tokens``, block by block, and is gone; the names of its blocks."""
    seq, names = p.acquire(), list[bytes]()
    for index in range(len(tokens) // SIZE):
        begin = index * SIZE
        assert p.reserve(seq, begin, begin + SIZE)
        before = names[-1] if names else ROOT
        names.append(block_name(before, tokens[begin : begin + SIZE]))
        cache.publish(p.block(seq, index), names[-1], before, tokens[begin : begin + SIZE])
        p.slide(seq, begin + SIZE)
    p.release(seq)
    return names


def test_the_snapshot_that_is_used_again_and_again_stays() -> None:
    p = pool(16, 16)
    cache = PrefixCache(p, snapshot_bytes=2)
    tokens = list(range(12))
    names = publish(p, cache, tokens)
    for name in names[:2]:
        cache.keep_snapshot(name, Snapshot(name, 1))
    assert cache.match(names[:1], ROOT, tokens).snapshot == Snapshot(names[0], 1)
    cache.keep_snapshot(names[2], Snapshot(names[2], 1))
    assert cache.match(names[:1], ROOT, tokens).snapshot == Snapshot(names[0], 1)
    assert len(cache.match(names[:2], ROOT, tokens).blocks) == 1  # the other one's snapshot went


def test_a_search_through_a_long_prefix_that_left_the_window_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = 400
    p = pool(blocks, 8)
    cache = PrefixCache(p)
    tokens = [i % 90 for i in range(blocks * SIZE)]
    names = publish(p, cache, tokens)[: blocks - 20]
    asked: list[int] = []
    first_seen, holds = WindowMemory.first_seen, WindowMemory.holds
    monkeypatch.setattr(WindowMemory, "first_seen", lambda w, at: asked.append(at) or first_seen(w, at))
    monkeypatch.setattr(WindowMemory, "holds", lambda w, block: asked.append(block) or holds(w, block))
    assert cache.match(names, ROOT, tokens[: len(names) * SIZE]).blocks == ()
    assert len(asked) < 4 * blocks  # not a multiple of its square


def test_a_block_known_in_part_is_looked_for_among_those_that_begin_alike() -> None:
    p = pool(64, 64)
    cache = PrefixCache(p)
    for i in range(40):
        publish(p, cache, [i, 1, 2, 3])
    publish(p, cache, [7, 8, 2, 3])
    match = cache.match([], ROOT, [7, 8, 9])
    assert (match.blocks, match.rows) == ((), 2)
    assert cache.match([], ROOT, [7, 1, 2, 9]).rows == 3
    assert cache.match([], ROOT, [50, 1, 2]).rows == 0
    assert cache.match([], ROOT, []).rows == 0
    cache.reset()
    assert not cache._after and cache.match([], ROOT, [7, 8, 9]).rows == 0
