"""The K/V pool: one block table per sequence, addressing the target's keys and values and the drafter's alike.

A sequence holds blocks of ``block_size`` slots; ``table[seq, position]`` is the slot of a logical position. Target
and drafter layers share the table, so whatever frees, copies or reuses a block does so for both. Blocks may be
held by several sequences (forks, cached prefixes); whoever writes into a shared one gets a copy first. Layers with
a sliding window have less memory behind the same table: see ``windows``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from draftproof.engine.blocks import BlockPool
from draftproof.engine.memory import KVShape, PoolSizes, lazy_zeros
from draftproof.engine.windows import WindowMemory
from draftproof.native import LayerKV


class NamedBlocks(Protocol):
    """Who knows the content of blocks: the prefix cache."""

    def holds(self, block: int) -> bool: ...

    def evicted(self, block: int) -> None: ...


@dataclass
class _Sequence:
    """Its blocks in order; per window the index of the first block that still has memory there."""

    blocks: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)


class KVPool:
    """Blocks for up to ``max_seqs`` sequences of ``max_len`` tokens.

    ``target_kv[i]`` and ``drafter_kv[i]`` are the pools of layer i. Memory is taken without being touched, so on a
    CPU unused slots cost nothing.
    """

    def __init__(
        self,
        target: Sequence[KVShape],
        drafter: Sequence[KVShape],
        *,
        sizes: PoolSizes,
        block_size: int,
        max_seqs: int,
        max_len: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.block_size = block_size
        self.max_len = max_len
        self.num_blocks = sizes.blocks
        self.names: NamedBlocks | None = None
        self._blocks = BlockPool(sizes.blocks, self._evict)
        self.windows = [WindowMemory(w, n, sizes.blocks, block_size, device) for w, n in sizes.windows.items()]
        by_window = {w.window: w for w in self.windows}

        def layer(shape: KVShape) -> LayerKV:
            behind = None if shape.window is None else by_window[shape.window]
            slots = (sizes.blocks if behind is None else behind.blocks.count) * block_size
            return LayerKV(
                lazy_zeros((slots, shape.kv_heads, shape.key_dim), dtype, device),
                lazy_zeros((slots, shape.kv_heads, shape.value_dim), dtype, device),
                None if behind is None else behind.slot_map,
            )

        self.target_kv = [layer(shape) for shape in target]
        self.drafter_kv = [layer(shape) for shape in drafter]
        self.table = torch.zeros(max_seqs, max_len, dtype=torch.int32, device=device)
        self._free_seqs = list(range(max_seqs - 1, -1, -1))
        self._seqs: dict[int, _Sequence] = {}

    # -- room ---------------------------------------------------------------------------------------------

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody holds, those kept for the prefix cache included."""
        return self._blocks.available

    @property
    def kept_blocks(self) -> int:
        """Blocks that nobody holds and that the prefix cache can still find."""
        return self._blocks.kept

    @property
    def free_seqs(self) -> int:
        return len(self._free_seqs)

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def held(self, seq: int) -> int:
        """Blocks of a sequence."""
        return len(self._seqs[seq].blocks)

    def block(self, seq: int, index: int) -> int:
        return self._seqs[seq].blocks[index]

    def refs(self, block: int) -> int:
        return self._blocks.refs(block)

    def room(self, seq: int, start: int) -> int:
        """Most positions from ``start`` on that ``reserve`` can give now."""
        sequence = self._seqs[seq]
        spare = min([self._blocks.available, *(w.blocks.available for w in self.windows)])
        if self._must_copy(sequence, start):
            if spare == 0:
                return 0
            spare -= 1
        return min((len(sequence.blocks) + spare) * self.block_size, self.max_len) - start

    def reserve(self, seq: int, start: int, end: int) -> bool:
        """Make positions ``start`` to ``end`` - 1 writable; False, and nothing changed, if there is no room. A
        block that others hold too, or that the prefix cache knows, is copied before it is written to."""
        sequence = self._seqs[seq]
        if end <= len(sequence.blocks) * self.block_size and not self._must_copy(sequence, start):
            return True  # nearly always
        if end - start > self.room(seq, start):
            return False
        if self._must_copy(sequence, start):
            self._copy_on_write(seq, sequence, start // self.block_size, start % self.block_size)
        while len(sequence.blocks) * self.block_size < end:
            self._append(seq, sequence, self._take())
        return True

    def _take(self) -> int:
        block = self._blocks.take()
        for window in self.windows:
            window.give(block)
        return block

    def _append(self, seq: int, sequence: _Sequence, block: int) -> None:
        sequence.blocks.append(block)
        self._write_table(seq, len(sequence.blocks) - 1, [block])

    def _write_table(self, seq: int, index: int, blocks: Sequence[int]) -> None:
        size = self.block_size
        line = self.table[seq, index * size : (index + len(blocks)) * size]  # the last block may reach past the table
        if len(blocks) == 1:  # what every sequence does time and again
            torch.arange(blocks[0] * size, blocks[0] * size + len(line), out=line)
            return
        inside = torch.arange(size, dtype=torch.int32)
        slots = (torch.tensor(blocks, dtype=torch.int32)[:, None] * size + inside).flatten()
        line.copy_(slots[: len(line)])

    # -- sequences ----------------------------------------------------------------------------------------

    def acquire(self) -> int:
        """A row of the table for a new sequence, without blocks yet."""
        seq = self._free_seqs.pop()
        self._seqs[seq] = _Sequence(first=[0] * len(self.windows))
        return seq

    def release(self, seq: int) -> None:
        """Let go of a sequence's blocks, the last one first, and of its table row."""
        sequence = self._seqs.pop(seq)
        for index in range(len(sequence.blocks) - 1, -1, -1):
            block = sequence.blocks[index]
            for window, first in zip(self.windows, sequence.first, strict=True):
                if index >= first:
                    window.drop(block, keep=self._is_named(block))
            self._blocks.drop(block, keep=self._is_named(block))
        self._free_seqs.append(seq)

    def adopt(self, seq: int, blocks: Sequence[int], length: int) -> None:
        """Hold ``blocks``, which others wrote, as the sequence's next ones; it goes on at position ``length``.
        Blocks inside a window as seen from there must have memory in it."""
        sequence = self._seqs[seq]
        begin = len(sequence.blocks)
        for block in blocks:
            self._blocks.share(block)
        sequence.blocks += blocks
        self._write_table(seq, begin, blocks)
        for i, window in enumerate(self.windows):
            first = max(sequence.first[i], window.first_seen(length))
            for index in range(sequence.first[i], min(first, begin)):
                window.drop(sequence.blocks[index], keep=self._is_named(sequence.blocks[index]))
            sequence.first[i] = first
            for index in range(max(first, begin), len(sequence.blocks)):
                window.share(sequence.blocks[index])

    def can_fork(self, seq: int, length: int) -> bool:
        """Does ``seq`` still hold all that a row at position ``length`` can see?"""
        sequence = self._seqs[seq]
        return all(
            first <= window.first_seen(length) for window, first in zip(self.windows, sequence.first, strict=True)
        )

    def fork(self, seq: int, length: int) -> int:
        """A new sequence that shares the first ``length`` positions of ``seq``."""
        new = self.acquire()
        self.adopt(new, self._seqs[seq].blocks[: self.blocks_for(length)], length)
        return new

    def slide(self, seq: int, position: int) -> None:
        """No row before ``position`` will come any more: layers with a window let go of what none can see."""
        sequence = self._seqs[seq]
        for i, window in enumerate(self.windows):
            first = min(window.first_seen(position), len(sequence.blocks))
            for index in range(sequence.first[i], first):
                block = sequence.blocks[index]
                window.drop(block, keep=self._is_named(block))
            sequence.first[i] = max(first, sequence.first[i])

    # -- content ------------------------------------------------------------------------------------------

    def copy_rows(self, seq: int, source: int, rows: int) -> None:
        """Append a block to ``seq`` whose first ``rows`` slots hold what block ``source`` holds."""
        self._blocks.share(source)  # it must not be the one that is given away
        for window in self.windows:
            window.share(source)
        block = self._take()
        self._copy(source, block, rows)
        for window in self.windows:
            window.drop(source, keep=self._is_named(source))
        self._blocks.drop(source, keep=self._is_named(source))
        self._append(seq, self._seqs[seq], block)

    def compact(self, seq: int, start: int, rows: Sequence[int]) -> None:
        """Keep rows ``start + rows[i]`` as logical positions ``start + i`` (target layers only).

        ``rows`` ascends and ``rows[i] >= i``: the accepted path of a tree, root first. The drafter's own K/V is
        not touched: context K/V is made from taps afterwards.
        """
        moves = [(start + src, start + dst) for dst, src in enumerate(rows) if src != dst]
        if not moves:
            return
        line = self.table[seq]
        source = line[torch.tensor([m[0] for m in moves], device=line.device)].long()
        target = line[torch.tensor([m[1] for m in moves], device=line.device)].long()
        for key, value, slot_map in self.target_kv:
            from_, to = (source, target) if slot_map is None else (slot_map[source].long(), slot_map[target].long())
            key[to] = key[from_]
            value[to] = value[from_]

    def forget(self, block: int) -> None:
        """The prefix cache does not know ``block`` any more: what was kept for it alone is free."""
        for window in self.windows:
            if window.holds(block) and window.refs(block) == 0:
                window.forget(block)
        self._blocks.forget(block)

    def _must_copy(self, sequence: _Sequence, start: int) -> bool:
        index = start // self.block_size
        if index >= len(sequence.blocks):
            return False
        block = sequence.blocks[index]
        return self._blocks.refs(block) > 1 or self._is_named(block)

    def _copy_on_write(self, seq: int, sequence: _Sequence, index: int, rows: int) -> None:
        old, new = sequence.blocks[index], self._take()
        self._copy(old, new, rows)
        for window, first in zip(self.windows, sequence.first, strict=True):
            if index >= first:
                window.drop(old, keep=self._is_named(old))
        self._blocks.drop(old, keep=self._is_named(old))
        sequence.blocks[index] = new
        self._write_table(seq, index, [new])

    def _copy(self, old: int, new: int, rows: int) -> None:
        if rows == 0:
            return
        for key, value, slot_map in [*self.target_kv, *self.drafter_kv]:
            from_, to = old * self.block_size, new * self.block_size
            if slot_map is not None:
                from_, to = int(slot_map[from_]), int(slot_map[to])
            if from_ >= 0:  # nobody can see what has no memory any more
                key[to : to + rows] = key[from_ : from_ + rows]
                value[to : to + rows] = value[from_ : from_ + rows]

    def _is_named(self, block: int) -> bool:
        return self.names is not None and self.names.holds(block)

    def _evict(self, block: int) -> None:
        if self.names is not None:
            self.names.evicted(block)
        for window in self.windows:
            window.forget(block)
