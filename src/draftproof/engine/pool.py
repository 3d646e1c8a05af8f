"""The K/V pool: one block table per sequence, addressing the target's keys and values and the drafter's alike.

Every layer's pool is ``[num_slots, kv_heads, head_dim]``. A sequence owns blocks of ``block_size`` slots;
``table[seq, position]`` is the slot of a logical position. Target and drafter layers share the table, so
whatever frees, copies or reuses a block does so for both.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.errors import UsageError

LayerKV = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class KVShape:
    """Heads and widths of one layer's keys and values."""

    kv_heads: int
    key_dim: int
    value_dim: int

    def bytes_per_token(self, dtype: torch.dtype) -> int:
        return self.kv_heads * (self.key_dim + self.value_dim) * dtype.itemsize


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros; on a CPU in anonymous memory that the system fills when it is first touched, in large pages where it
    can (they make long contexts measurably faster to read). Stale memory could hold NaN, which a weight of zero
    would not silence."""
    count = math.prod(shape)
    if device.type != "cpu" or count == 0:
        return torch.zeros(shape, dtype=dtype, device=device)
    # Private: shared anonymous memory gets no large pages, and a forked child would write into it.
    flags = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    memory = mmap.mmap(-1, count * dtype.itemsize, **flags)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype, count=count).view(shape)


class KVPool:
    """Slots for ``num_blocks × block_size`` tokens, for up to ``max_seqs`` sequences of ``max_len`` tokens.

    ``target_kv[i]`` and ``drafter_kv[i]`` are the (key, value) pools of layer i. Memory is taken without being
    touched, so on a CPU unused slots cost nothing.
    """

    def __init__(
        self,
        target: Sequence[KVShape],
        drafter: Sequence[KVShape],
        *,
        num_blocks: int,
        block_size: int,
        max_seqs: int,
        max_len: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.block_size = block_size
        self.max_len = max_len
        self.num_blocks = num_blocks
        slots = num_blocks * block_size

        def pools(shapes: Sequence[KVShape]) -> list[LayerKV]:
            return [
                (
                    lazy_zeros((slots, s.kv_heads, s.key_dim), dtype, device),
                    lazy_zeros((slots, s.kv_heads, s.value_dim), dtype, device),
                )
                for s in shapes
            ]

        self.target_kv = pools(target)
        self.drafter_kv = pools(drafter)
        self.table = torch.zeros(max_seqs, max_len, dtype=torch.int32, device=device)
        self._free_blocks = list(range(num_blocks - 1, -1, -1))
        self._free_seqs = list(range(max_seqs - 1, -1, -1))
        self._blocks: dict[int, list[int]] = {}

    @property
    def free_blocks(self) -> int:
        return len(self._free_blocks)

    @property
    def free_seqs(self) -> int:
        return len(self._free_seqs)

    def acquire(self) -> int:
        """A row of the table for a new sequence, without blocks yet."""
        seq = self._free_seqs.pop()
        self._blocks[seq] = []
        return seq

    def fits(self, seq: int, length: int) -> bool:
        """Can ``reserve(seq, length)`` succeed now?"""
        return -(-length // self.block_size) - len(self._blocks[seq]) <= len(self._free_blocks)

    def reserve(self, seq: int, length: int) -> None:
        """Give ``seq`` slots for logical positions 0..length-1 (those it has stay where they are)."""
        if length > self.max_len:
            raise UsageError(f"a sequence of {length} tokens exceeds the pool's limit of {self.max_len}")
        blocks = self._blocks[seq]
        while len(blocks) * self.block_size < length:
            if not self._free_blocks:
                raise UsageError(
                    f"the K/V pool is full: {self.num_blocks} blocks of {self.block_size} tokens are in use; "
                    "give it more memory or run fewer requests at once"
                )
            block = self._free_blocks.pop()
            first = len(blocks) * self.block_size
            last = min(first + self.block_size, self.max_len)
            begin = block * self.block_size
            self.table[seq, first:last] = torch.arange(begin, begin + last - first, dtype=torch.int32)
            blocks.append(block)

    def release(self, seq: int) -> None:
        """Return a sequence's blocks and its table row."""
        self._free_blocks.extend(reversed(self._blocks.pop(seq)))
        self._free_seqs.append(seq)

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
        for key, value in self.target_kv:
            key[target] = key[source]
            value[target] = value[source]
