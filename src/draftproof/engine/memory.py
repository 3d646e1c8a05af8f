"""Memory for keys and values: what a layer needs, how a budget is divided, and how it is taken from the system."""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class KVShape:
    """Heads and widths of one layer's keys and values.

    ``window``: how far back a row of this layer sees, itself included; None: to the start. What no later row can
    see need not be kept.
    """

    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None

    def bytes_per_token(self, dtype: torch.dtype) -> int:
        return self.kv_heads * (self.key_dim + self.value_dim) * dtype.itemsize


@dataclass(frozen=True)
class PoolSizes:
    """How many blocks the pool has: ``blocks`` in all, of which ``windows[w]`` at once have memory in the layers
    with window ``w``."""

    blocks: int
    windows: dict[int, int]

    @classmethod
    def whole(cls, blocks: int, shapes: Sequence[KVShape]) -> PoolSizes:
        """Every block has memory in every layer."""
        return cls(blocks, {s.window: blocks for s in shapes if s.window is not None})


def divide_memory(
    budget: int,
    shapes: Sequence[KVShape],
    dtype: torch.dtype,
    *,
    block_size: int,
    most_blocks: int,
    window_blocks: dict[int, int],
) -> PoolSizes:
    """Spend ``budget`` bytes on blocks. Layers with a window get memory for at most ``window_blocks[w]`` blocks,
    the others for every block; no more than ``most_blocks`` are taken, since no more could be used."""
    per_block: dict[int | None, int] = dict.fromkeys([None, *window_blocks], 0)
    for shape in shapes:
        per_block[shape.window] += shape.bytes_per_token(dtype) * block_size

    def price(blocks: int) -> int:
        windows = sum(min(blocks, window_blocks[w]) * per_block[w] for w in window_blocks)
        return blocks * per_block[None] + windows

    low, high = 0, most_blocks  # the largest number of blocks that the budget pays
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if price(middle) <= budget else (low, middle - 1)
    return PoolSizes(low, {w: min(low, most) for w, most in window_blocks.items()})


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
