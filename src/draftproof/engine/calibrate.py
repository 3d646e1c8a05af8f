"""Measures what passes cost on this machine, before the first request: under a second."""

from __future__ import annotations

from time import perf_counter

from draftproof import compat
from draftproof.drafters.base import CommittedRows, Drafter, DraftRequest
from draftproof.engine.cost import CostCurve, measure
from draftproof.engine.plan import Segment, build_pass
from draftproof.engine.policy import Costs
from draftproof.engine.pool import KVPool
from draftproof.engine.sampling import peaks
from draftproof.targets.base import Target

TARGET_ROWS = (1, 2, 4, 8, 16, 32, 64)
DRAFT_BLOCKS = (1, 4, 16)
_CONTEXT = 32
_TARGET_S, _DRAFT_S = 0.55, 0.25  # seconds that may be spent
_HOPE = 0.1  # of a target's pass: what a draft is thought to take that could not be measured


def measure_costs(target: Target, drafter: Drafter, pool: KVPool) -> Costs:
    """Curves of target passes by rows and of drafts by block rows, over a short context of arbitrary tokens. Takes
    sequences of ``pool`` and gives them back."""
    seqs = [pool.acquire() for _ in range(min(pool.free_seqs, DRAFT_BLOCKS[-1]))]
    try:
        most = min(TARGET_ROWS[-1], max(pool.room(seqs[0], 0) - _CONTEXT, 1))
        context = max(min(_CONTEXT, pool.room(seqs[0], 0) - most), 1)
        pool.reserve(seqs[0], 0, context + most)
        rows = [r for r in TARGET_ROWS if r <= most] or [1]
        curve = measure(lambda n: _target_pass(target, drafter, pool, seqs[0], context, n), rows, budget_s=_TARGET_S)
        try:
            return Costs(curve, _draft_curve(target, drafter, pool, seqs))
        except Exception:
            # What is wrong shows in the rounds, which survive it and say so; but only if a draft seems worth a try.
            return Costs(curve, CostCurve([(drafter.num_draft_tokens + 1, _HOPE * curve(1))]))
    finally:
        for seq in seqs:
            target.release(seq)
            pool.release(seq)


def _target_pass(target: Target, drafter: Drafter, pool: KVPool, seq: int, context: int, rows: int) -> float:
    """Seconds of a pass of ``rows`` rows after ``context`` tokens, choosing tokens included."""
    ids = [(7919 * i + 11) % target.info.vocab_size for i in range(rows)]
    work = build_pass(pool, [Segment(seq, context, ids)])
    began = perf_counter()
    logits, _ = target.forward(work, pool.target_kv, taps=tuple(drafter.tap_layers), logits=range(rows))
    compat.synchronize(target.info.device)
    peaks(logits)
    took = perf_counter() - began
    target.commit(seq, rows, 0)
    return took


def _draft_curve(target: Target, drafter: Drafter, pool: KVPool, seqs: list[int]) -> CostCurve:
    """By rows of all blocks together, the context K/V of one token per request included."""
    depth = drafter.num_draft_tokens
    ready = [s for s in seqs if pool.reserve(s, 0, 2 + depth)]

    def draft(rows: int) -> float:
        some, count = ready[: max(rows // (depth + 1), 1)], min(rows - 1, depth)
        ids = [(7919 * i + 11) % target.info.vocab_size for i in range(2)]
        work = build_pass(pool, [Segment(s, 0, ids[:1]) for s in some])
        _, taps = target.forward(work, pool.target_kv, taps=tuple(drafter.tap_layers), logits=())
        began = perf_counter()
        drafter.observe(pool, [CommittedRows(s, [i], 0) for i, s in enumerate(some)], taps)
        drafts = drafter.propose(pool, [DraftRequest(s, ids, count) for s in some])
        for one in drafts:
            if one.logits is not None:
                peaks(one.logits, with_lse=True)
        compat.synchronize(target.info.device)
        took = perf_counter() - began
        for s in some:
            target.release(s)
        return took

    if not ready:
        return CostCurve()
    sizes = [n * (depth + 1) for n in DRAFT_BLOCKS if n <= len(ready)]
    if len(sizes) == 1:  # a line needs two points: a block of one drafted token, too
        sizes = sorted({2, *sizes})
    return measure(draft, sizes, budget_s=_DRAFT_S)
