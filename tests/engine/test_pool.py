"""Blocks with several holders: sharing, copying on write, windows that let go, eviction, and names that find them."""

from __future__ import annotations

import pytest
import torch

from draftproof.engine.blocks import BlockPool
from draftproof.engine.memory import KVShape, PoolSizes, divide_memory
from draftproof.engine.pool import KVPool
from draftproof.engine.prefix_cache import PrefixCache, block_name, root_name

SIZE = 4
FULL, NARROW = KVShape(1, 2, 2), KVShape(1, 2, 2, window=6)


def pool(blocks: int = 8, *, window_blocks: int = 6, shapes: tuple[KVShape, ...] = (FULL, NARROW)) -> KVPool:
    return KVPool(
        shapes,
        (FULL,),
        sizes=PoolSizes(blocks, {6: window_blocks} if NARROW in shapes else {}),
        block_size=SIZE,
        max_seqs=4,
        max_len=64,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


def write(p: KVPool, seq: int, positions: range, value: float) -> None:
    for layer in [*p.target_kv, *p.drafter_kv]:
        slots = p.table[seq, list(positions)].long()
        layer.key[slots if layer.slot_map is None else layer.slot_map[slots].long()] = value


def read(p: KVPool, seq: int, position: int, layer: int = 0) -> float:
    pools = p.target_kv[layer]
    slot = int(p.table[seq, position])
    return float(pools.key[slot if pools.slot_map is None else int(pools.slot_map[slot]), 0, 0])


def test_a_fork_shares_and_copies_only_what_it_writes() -> None:
    p = pool(shapes=(FULL,))
    parent = p.acquire()
    assert p.reserve(parent, 0, 10)
    write(p, parent, range(10), 1.0)
    child = p.fork(parent, 9)
    assert p.free_blocks == 5  # three blocks, held twice
    assert p.reserve(child, 9, 11)
    assert p.free_blocks == 4  # the block with position 9 was copied, the first two are shared
    write(p, child, range(9, 11), 2.0)
    assert read(p, parent, 9) == 1.0 and read(p, child, 9) == 2.0 and read(p, child, 8) == 1.0
    assert p.table[parent, 7] == p.table[child, 7] and p.table[parent, 8] != p.table[child, 8]
    p.release(parent)
    assert read(p, child, 3) == 1.0  # what it shared stays
    p.release(child)
    assert p.free_blocks == p.num_blocks


def test_a_fork_copies_the_parent_s_next_write_too() -> None:
    p = pool(shapes=(FULL,))
    parent = p.acquire()
    p.reserve(parent, 0, 6)
    write(p, parent, range(6), 1.0)
    child = p.fork(parent, 6)
    assert p.reserve(parent, 6, 7)  # the half-full block is shared: the writer gets a copy, whoever it is
    write(p, parent, range(6, 7), 3.0)
    assert p.reserve(child, 6, 7)  # now the child is its only holder
    write(p, child, range(6, 7), 4.0)
    assert read(p, parent, 6) == 3.0 and read(p, child, 6) == 4.0 and read(p, child, 5) == 1.0


def test_reserve_changes_nothing_when_there_is_no_room() -> None:
    p = pool(3, window_blocks=3)
    first, second = p.acquire(), p.acquire()
    assert p.reserve(first, 0, 8) and not p.reserve(second, 0, 5)
    assert p.free_blocks == 1 and p.held(second) == 0
    assert p.room(second, 0) == 4 and p.reserve(second, 0, 4) and not p.reserve(second, 4, 5)


def test_windows_let_go_of_what_no_row_can_see() -> None:
    """Two window blocks at a time serve a sequence of any length; layers without a window keep everything."""
    p = pool(8, window_blocks=3)
    seq = p.acquire()
    for position in range(32):
        assert p.reserve(seq, position, position + 1)
        write(p, seq, range(position, position + 1), float(position))
        for seen in range(max(position - 5, 0), position + 1):
            assert read(p, seq, seen, layer=1) == seen
        p.slide(seq, position + 1)
    assert [read(p, seq, i) for i in range(32)] == list(range(32))
    assert p.windows[0].blocks.available >= 1
    p.release(seq)
    assert p.windows[0].blocks.available == 3 and p.free_blocks == 8
    assert bool((p.windows[0].slot_map == -1).all())


def named(p: KVPool, cache: PrefixCache, seq: int, tokens: list[int]) -> list[bytes]:
    names, before = [], root_name(None)
    for i in range(len(tokens) // SIZE):
        part = tokens[i * SIZE : (i + 1) * SIZE]
        names.append(block_name(before, part))
        cache.publish(p.block(seq, i), names[-1], before, part)
        before = names[-1]
    return names


def test_cached_blocks_survive_their_holder_and_are_evicted_last_first() -> None:
    p = pool(4, shapes=(FULL,))
    cache = PrefixCache(p)
    tokens = list(range(12))
    seq = p.acquire()
    p.reserve(seq, 0, 12)
    names = named(p, cache, seq, tokens)
    p.release(seq)
    assert p.free_blocks == 4 and p.kept_blocks == 3
    assert len(cache.match(names, root_name(None), tokens).blocks) == 3
    other = p.acquire()
    p.reserve(other, 0, 8)  # one block was free, one had to be evicted: the end of the prefix, not its beginning
    assert cache.stats.evictions == 1
    assert len(cache.match(names, root_name(None), tokens).blocks) == 2
    p.release(other)


def test_a_match_may_end_inside_a_block_and_respects_salts() -> None:
    p = pool(6, shapes=(FULL,))
    cache = PrefixCache(p)
    tokens = list(range(8))
    seq = p.acquire()
    p.reserve(seq, 0, 8)
    write(p, seq, range(8), 5.0)
    named(p, cache, seq, tokens)
    other = [0, 1, 2, 3, 4, 5, 99, 98, 97]
    names = [block_name(root_name(None), other[:4])]
    match = cache.match(names, root_name(None), other)
    assert len(match.blocks) == 1 and match.rows == 2 and match.length(SIZE) == 6
    new = p.acquire()
    p.adopt(new, match.blocks, 4)
    p.copy_rows(new, match.part, match.rows)
    assert read(p, new, 5) == 5.0 and read(p, new, 6) == 0.0
    salted = root_name("tenant")
    assert cache.match([block_name(salted, other[:4])], salted, other).length(SIZE) == 0


def test_a_match_needs_the_window_s_memory() -> None:
    """A cached prefix whose window memory was given away is shortened to what can still be used, or not used."""
    p = pool(8, window_blocks=3)
    cache = PrefixCache(p)
    tokens = list(range(16))
    seq = p.acquire()
    for i in range(16):
        p.reserve(seq, i, i + 1)
        if i % SIZE == SIZE - 1:
            names = named(p, cache, seq, tokens[: i + 1])
        p.slide(seq, i + 1)
    p.release(seq)
    assert cache.match(names, root_name(None), tokens).length(SIZE) == 16
    other = p.acquire()
    assert p.reserve(other, 0, 12)  # takes all of the window's memory
    assert cache.match(names, root_name(None), tokens).length(SIZE) == 0
    p.release(other)


def test_a_block_dropped_too_often_is_a_defect() -> None:
    blocks = BlockPool(2)
    block = blocks.take()
    blocks.drop(block, keep=False)
    with pytest.raises(AssertionError, match="dropped more often"):
        blocks.drop(block, keep=False)


def test_memory_is_divided_between_windows_and_the_rest() -> None:
    shapes = [FULL, NARROW]  # 16 bytes a token each in float32
    assert divide_memory(10_000, shapes, torch.float32, block_size=4, most_blocks=20, window_blocks={6: 5}) == (
        PoolSizes(20, {6: 5})
    )
    assert divide_memory(1_280, shapes, torch.float32, block_size=4, most_blocks=99, window_blocks={6: 5}) == (
        PoolSizes(15, {6: 5})  # 15 × 64 + 5 × 64
    )
    assert divide_memory(256, shapes, torch.float32, block_size=4, most_blocks=99, window_blocks={6: 5}).blocks == 2
