"""The reference drafter on the captured rows: what it drafts under any wiring, and how far that agrees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.drafters.base import CommittedRows, DraftRequest
from draftproof.drafters.dflash import DFlashDrafter
from draftproof.engine.memory import PoolSizes
from draftproof.engine.pool import KVPool
from draftproof.proof.capture.reading import RequestTrace, Step
from draftproof.proof.capture.replay.truth import Truth
from draftproof.proof.lab import faulty
from draftproof.proof.lab.wiring import Wiring

BLOCK = 16
# Two logits nearer than this, relative to the larger, may fall either way in another kernel.
NEAR = {torch.float32: 1e-5, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
TapsOf = Callable[[RequestTrace], Tensor]


@dataclass(frozen=True)
class Agreement:
    """Drafted tokens that are the reference's, those that differ at a near-tie, and all."""

    equal: int
    near: int
    tokens: int

    @property
    def full(self) -> bool:
        return self.tokens > 0 and self.equal + self.near == self.tokens

    @property
    def share(self) -> float:
        return (self.equal + self.near) / self.tokens if self.tokens else 0.0

    def __str__(self) -> str:
        ties = f" ({self.near} of them near-ties)" if self.near else ""
        return f"{self.equal + self.near} of {self.tokens}{ties}"

    def to_dict(self) -> dict[str, int]:
        return {"equal": self.equal, "near_ties": self.near, "tokens": self.tokens}


def replayable(requests: Sequence[RequestTrace], truth: Truth) -> list[RequestTrace]:
    """Requests whose context is known from position 0 on: by rows, or by taps that can be recomputed."""
    return [r for r in requests if _unbroken(r) and (r.first == 0 or r.name in truth.hidden)]


def _unbroken(request: RequestTrace) -> bool:
    at = request.first
    for step in request.steps:
        if step.positions != list(range(at, step.end)):
            return False
        at = step.end
    return True


def shortened(requests: Sequence[RequestTrace], tokens: int) -> list[RequestTrace]:
    """The first steps of every request, about ``tokens`` drafted tokens in all."""
    each = max(1, tokens // max(1, len(requests)))
    cut = []
    for request in requests:
        steps, left = [], each
        for step in request.steps:
            if left <= 0:
                break
            steps.append(step)
            left -= len(step.drafts)
        cut.append(RequestTrace(request.name, request.prefix, steps))
    return cut


@torch.inference_mode()
def agreement(wiring: Wiring, truth: Truth, requests: Sequence[RequestTrace], *, first_only: bool = False) -> Agreement:
    """Run all requests side by side, each from its first row on, and compare every block; ``first_only``: up to the
    first that differs."""
    drafter = wiring.build(truth.target)
    pool = _pool(drafter, requests, truth)
    seqs = {request.name: pool.acquire() for request in requests}
    equal = near = tokens = 0
    for number in range(max((len(r.steps) for r in requests), default=0)):
        active = [(r, r.steps[number]) for r in requests if number < len(r.steps)]
        for request, step in active:
            pool.reserve(seqs[request.name], 0 if number == 0 else step.start, step.end + len(step.drafts) + 1)
            if number == 0 and request.first:
                _observe_prefix(drafter, pool, seqs[request.name], request, truth)
        _observe(drafter, pool, [(seqs[r.name], step) for r, step in active], truth)
        asked = [DraftRequest(seqs[r.name], _Ended(step.end, step.anchor), len(step.drafts)) for r, step in active]
        for (_, step), draft in zip(active, drafter.propose(pool, asked), strict=True):
            logits = draft.wide(truth.target.info.vocab_size)
            assert logits is not None
            same, tied = _compare(logits, step, truth)
            equal, near, tokens = equal + same, near + tied, tokens + len(step.drafts)
        if first_only and equal + near < tokens:
            break
    return Agreement(equal, near, tokens)


class _Ended(Sequence[int]):
    """All that a drafter reads of committed tokens: how many there are, and the last one."""

    def __init__(self, before: int, anchor: int) -> None:
        self._before, self._anchor = before, anchor

    def __len__(self) -> int:
        return self._before + 1

    def __getitem__(self, index: int) -> int:  # type: ignore[override]
        if index not in (-1, self._before):
            raise IndexError("only the anchor is known")
        return self._anchor


def _pool(drafter: DFlashDrafter, requests: Sequence[RequestTrace], truth: Truth) -> KVPool:
    longest = max((r.steps[-1].end + len(r.steps[-1].drafts) + 1 for r in requests), default=1)
    longest = max(longest, max((s.end + len(s.drafts) + 1 for r in requests for s in r.steps), default=1))
    blocks = len(requests) * (longest // BLOCK + 2)
    info = truth.target.info
    return KVPool(
        [],
        drafter.kv_shapes,
        sizes=PoolSizes.whole(blocks, drafter.kv_shapes),
        block_size=BLOCK,
        max_seqs=max(1, len(requests)),
        max_len=(longest // BLOCK + 2) * BLOCK,
        dtype=info.dtype,
        device=info.device,
    )


def _observe(drafter: DFlashDrafter, pool: KVPool, parts: Sequence[tuple[int, Step]], truth: Truth) -> None:
    committed, at = [], 0
    for seq, step in parts:
        committed.append(CommittedRows(seq, range(at, at + len(step.positions)), step.start))
        at += len(step.positions)
    taps = torch.cat([step.taps for _, step in parts]).to(truth.target.info.device)
    drafter.observe(pool, committed, taps)


def _observe_prefix(drafter: DFlashDrafter, pool: KVPool, seq: int, request: RequestTrace, truth: Truth) -> None:
    """Rows that the engine's prefix cache skipped, as far as this drafter's fault leaves them."""
    kept = request.first
    if isinstance(drafter, faulty.CachedContextLost):
        kept = 0
    elif isinstance(drafter, faulty.LastBlockLost):
        kept = max(0, kept - faulty.PREFIX_BLOCK)
    if kept:
        taps = truth.taps(request, drafter.spec.tap_layers)[:kept]
        drafter.observe(pool, [CommittedRows(seq, range(kept), 0)], taps)


def _compare(logits: Tensor, step: Step, truth: Truth) -> tuple[int, int]:
    mine = logits.argmax(-1).cpu()
    theirs = torch.tensor(step.drafts)
    equal = mine == theirs
    if bool(equal.all()):
        return len(step.drafts), 0
    rows = torch.nonzero(~equal).flatten()
    inside = rows[(theirs[rows] >= 0) & (theirs[rows] < logits.shape[1])]
    best = logits[inside, mine[inside]].float()
    gap = (best - logits[inside, theirs[inside]].float()).abs()
    near = gap <= NEAR.get(truth.target.info.dtype, 1.6e-2) * best.abs()
    return int(equal.sum()), int(near.sum())
