"""What a pass costs by its number of rows, and how much of the memory bandwidth decoding reaches."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from draftproof import compat
from draftproof.drafters.base import CommittedRows, DraftRequest
from draftproof.engine.engine import Engine
from draftproof.engine.memory import PoolSizes
from draftproof.engine.plan import Segment, build_pass
from draftproof.engine.pool import KVPool

ROWS = (1, 8, 16, 32, 64)
CONTEXT = 256
_BLOCK = 16
_WARM_UPS = 2


@dataclass(frozen=True)
class PassCost:
    """Median milliseconds of a target pass of ``rows`` rows, and of drafting blocks of as many in all."""

    rows: int
    target_ms: float
    drafter_ms: float | None

    def to_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "target_ms": self.target_ms, "drafter_ms": self.drafter_ms}


class PassBench:
    """Passes over ``context`` arbitrary tokens, as the engine makes them, taps and all logits included.

    Target passes are one sequence's rows. A drafter's rows are whole blocks of as many requests as fit; fewer
    rows than a block are a shortened one, and one row drafts nothing.
    """

    def __init__(self, engine: Engine, *, context: int = CONTEXT, repeats: int = 7) -> None:
        self.target, self.drafter = engine.target, engine.drafter
        self.repeats = repeats
        self.context = max(1, min(context, engine.max_model_len - max(ROWS) - repeats - _WARM_UPS))
        self._taps = tuple(self.drafter.tap_layers) if self.drafter else ()
        vocab = self.target.info.vocab_size
        self._ids = [(7919 * i + 11) % vocab for i in range(self.context + max(ROWS) + repeats + _WARM_UPS)]
        block = 1 + self.drafter.num_draft_tokens if self.drafter else max(ROWS)
        self._seqs = max(1, max(ROWS) // block)
        self.pool = self._pool()

    def _pool(self) -> KVPool:
        length = len(self._ids) + (1 + self.drafter.num_draft_tokens if self.drafter else 0)
        drafter_shapes = self.drafter.kv_shapes if self.drafter else ()
        shapes = [*self.target.kv_shapes, *drafter_shapes]
        return KVPool(
            self.target.kv_shapes,
            drafter_shapes,
            sizes=PoolSizes.whole(self._seqs * -(-length // _BLOCK), shapes),
            block_size=_BLOCK,
            max_seqs=self._seqs,
            max_len=length,
            dtype=self.target.info.dtype,
            device=self.target.info.device,
        )

    def run(self, rows: Sequence[int] = ROWS) -> list[PassCost]:
        seqs = [self.pool.acquire() for _ in range(self._seqs)]
        try:
            for seq in seqs:
                self.pool.reserve(seq, 0, self.pool.max_len)
                self._pass(seq, 0, self.context, kept=self.context)
            return [PassCost(n, self._target_ms(seqs[0], n), self._drafter_ms(seqs, n)) for n in rows]
        finally:
            for seq in seqs:
                self.target.release(seq)
                self.pool.release(seq)

    def _pass(self, seq: int, start: int, rows: int, *, kept: int) -> float:
        """One target pass whose first ``kept`` rows stand; the seconds of the forward alone."""
        work = build_pass(self.pool, [Segment(seq, start, self._ids[start : start + rows])])
        began = perf_counter()
        _, taps = self.target.forward(work, self.pool.target_kv, taps=self._taps, logits=range(rows))
        compat.synchronize(self.target.info.device)
        seconds = perf_counter() - began
        self.target.commit(seq, rows, kept)
        if self.drafter is not None:
            self.drafter.observe(self.pool, [CommittedRows(seq, range(kept), start)], taps)
        return seconds

    def _target_ms(self, seq: int, rows: int) -> float:
        # One row stands each time, as after a round that accepts nothing: recurrent targets must be able to.
        self.target.release(seq)
        self._pass(seq, 0, self.context, kept=self.context)
        turns = range(_WARM_UPS + self.repeats)
        times = [self._pass(seq, self.context + turn, rows, kept=1) for turn in turns]
        return 1000 * statistics.median(times[_WARM_UPS:])

    def _drafter_ms(self, seqs: Sequence[int], rows: int) -> float | None:
        if self.drafter is None or rows < 2:
            return None
        block = 1 + self.drafter.num_draft_tokens
        several = max(1, min(rows // block, len(seqs)))
        count = min(rows, block) - 1
        ids = self._ids[: self.context + 1]  # the anchor is committed, but no pass has seen it
        asked = [DraftRequest(seq, ids, count) for seq in seqs[:several]]
        if several * (count + 1) != rows:
            return None  # this many rows are no whole number of blocks
        return 1000 * self._median(lambda: self.drafter and self.drafter.propose(self.pool, asked))

    def _median(self, work: Callable[[], object]) -> float:
        times = []
        for _ in range(_WARM_UPS + self.repeats):
            began = perf_counter()
            work()
            compat.synchronize(self.target.info.device)
            times.append(perf_counter() - began)
        return statistics.median(times[_WARM_UPS:])


def read_bandwidth(megabytes: int = 512, repeats: int = 7) -> float:
    """Bytes a second at which all threads together read main memory: the best of some reductions.

    The best, because this is a bound that others can only take away from; three kinds, because which of them
    torch reads fastest with depends on the machine.
    """
    values = torch.ones(megabytes * 2**20 // 4, dtype=torch.float32)
    best = 0.0
    for read in (values.sum, values.amax, lambda: torch.dot(values, values)) * repeats:
        began = perf_counter()
        read()
        best = max(best, values.nbytes / (perf_counter() - began))
    return best


def weight_bytes(engine: Engine) -> int | None:
    """Bytes of weights that one plain pass reads: all layers and the head, not the embedding table beside it.

    None where the target does not say what it holds.
    """
    target: Any = engine.target
    info = engine.target.info
    head = info.vocab_size * info.hidden_size
    if target.backend == "native":
        decoder = target._decoder
        heads = 2 * decoder.num_heads + 2 * decoder.num_kv_heads  # q and o, k and v
        layer = decoder.hidden_size * (heads * decoder.head_dim + 3 * decoder.intermediate_size)
        return int((decoder.num_layers * layer + head) * info.dtype.itemsize)
    if not hasattr(target, "model"):
        return None
    table = target.embedding
    body = sum(p.nbytes for p in target.model.parameters() if p.data_ptr() != table.data_ptr())
    tied = target.model.get_output_embeddings().weight.data_ptr() == table.data_ptr()
    return int(body + (table.nbytes if tied else 0))
