"""How long passes of different numbers of rows take on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from draftproof.native.decoder import NativeDecoder
from draftproof.native.linear import PackedLinear
from draftproof.native.plan import LayerKV, RowPlan
from draftproof.native.runtime import library

DEFAULT_ROWS = (1, 8, 16, 32, 64)


@dataclass(frozen=True)
class RowTiming:
    """Medians of one number of rows, in milliseconds; head_ms is 0 without a head."""

    rows: int
    layers_ms: float
    head_ms: float

    @property
    def total_ms(self) -> float:
        """Layers and head together."""
        return self.layers_ms + self.head_ms


def chain_plan(rows: int, context: int) -> RowPlan:
    """One request: `context` earlier positions, then `rows` rows in a chain."""
    slots = torch.arange(context + rows, dtype=torch.int32)
    new = slots[context:].contiguous()
    return RowPlan(new, new, torch.zeros(rows, dtype=torch.int32), slots[None], new + 1)


def median(values: Sequence[float]) -> float:
    """The middle value (the upper one of two)."""
    return sorted(values)[len(values) // 2]


def rows_table(
    decoder: NativeDecoder,
    head: PackedLinear | None = None,
    *,
    rows: Sequence[int] = DEFAULT_ROWS,
    context: int = 128,
    repeats: int = 9,
) -> list[RowTiming]:
    """Median times of passes with each number of rows after `context` positions.

    A pass and the head alternate, as in decoding, so that neither finds its
    weights in a cache that the other would have emptied.
    """
    most = context + max(rows)
    shape = (most, decoder.num_kv_heads, decoder.head_dim)
    kv = [
        LayerKV(torch.zeros(shape, dtype=decoder.dtype), torch.zeros(shape, dtype=decoder.dtype))
        for _ in range(decoder.num_layers)
    ]
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(most, decoder.hidden_size, generator=generator)
    decoder.forward(states, chain_plan(most, 0), kv)
    table = []
    for count in rows:
        plan, x = chain_plan(count, context), states[context : context + count].contiguous()
        layers: list[float] = []
        heads: list[float] = []
        for _ in range(repeats + 1):
            start = time.perf_counter()
            hidden, _taps = decoder.forward(x, plan, kv)
            middle = time.perf_counter()
            if head is not None:
                head(hidden)
            layers.append(middle - start)
            heads.append(time.perf_counter() - middle)
        # The first repetition pays for scratch memory.
        table.append(RowTiming(count, 1e3 * median(layers[1:]), 1e3 * median(heads[1:]) if head else 0.0))
    return table


def read_bandwidth(megabytes: int = 256, repeats: int = 7) -> float:
    """Median rate at which all threads together read memory, in GB/s (1e9 bytes)."""
    count = megabytes * 2**20 // 4
    data = torch.empty(count)
    lib = library()
    lib.dp_advise(data.data_ptr(), 4 * count)
    data.zero_()
    return 4 * count / median([timed(lambda: lib.dp_read(data.data_ptr(), count)) for _ in range(repeats)]) / 1e9


def timed(work: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
