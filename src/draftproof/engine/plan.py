"""A pass: which rows go through a model at once, what each may see, and where its keys and values go.

A *segment* is one sequence's run of rows: a piece of prompt, an anchor alone, an anchor with a drafted chain, or
an anchor with a drafted tree. Segments of many sequences make one pass without padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.engine.pool import KVPool
from draftproof.native import RowPlan


@dataclass(frozen=True)
class Segment:
    """Rows of sequence ``seq`` whose first row has logical position ``start``.

    Chain (``ancestors`` None): row i has position start + i and sees everything up to itself. Tree:
    ``ancestors[i]`` lists the rows of this segment that row i sees, root first and itself last; its position is
    start + len(ancestors[i]) - 1, while its K/V takes the slot of position start + i until it is compacted.
    """

    seq: int
    start: int
    token_ids: Sequence[int]
    ancestors: Sequence[Sequence[int]] | None = None

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True)
class Pass:
    """``token_ids`` [R] and the row plan; ``offsets[i]`` is the first row of segment i."""

    token_ids: Tensor
    plan: RowPlan
    segments: Sequence[Segment]
    offsets: Sequence[int]

    def rows(self, index: int) -> slice:
        return slice(self.offsets[index], self.offsets[index] + len(self.segments[index]))


def _int32(values: Sequence[int] | Sequence[Sequence[int]], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def build_pass(pool: KVPool, segments: Sequence[Segment]) -> Pass:
    """Lay the segments out one after the other. Slots must have been reserved."""
    tokens: list[int] = []
    seqs: list[int] = []
    positions: list[int] = []
    logical: list[int] = []  # whose slot the row's K/V takes
    visible: list[int] = []
    extras: list[tuple[int, int]] = []  # (sequence, logical position) of further visible keys
    pointers = [0]
    offsets: list[int] = []
    for segment in segments:
        offsets.append(len(tokens))
        tokens.extend(segment.token_ids)
        for i in range(len(segment)):
            seqs.append(segment.seq)
            logical.append(segment.start + i)
            if segment.ancestors is None:
                positions.append(segment.start + i)
                visible.append(segment.start + i + 1)
            else:
                path = segment.ancestors[i]
                positions.append(segment.start + len(path) - 1)
                visible.append(segment.start)
                extras.extend((segment.seq, segment.start + row) for row in path)
            pointers.append(len(extras))
    device = pool.table.device
    # One transfer for all: making many small tensors costs more than what is in them.
    place, owner, seen, slot_of = _int32([positions, seqs, visible, logical], device)
    plan = RowPlan(
        positions=place,
        slots=pool.table[owner.long(), slot_of.long()],
        request=owner,
        table=pool.table,
        visible=seen,
        visible_block=None,
        extra_ptr=_int32(pointers, device) if extras else None,
        extra_slots=_slots(pool, *map(list, zip(*extras, strict=True))) if extras else None,
    )
    return Pass(torch.tensor(tokens, dtype=torch.long, device=device), plan, segments, offsets)


def build_block_plan(
    pool: KVPool, blocks: Sequence[tuple[int, int, int]], *, window_from_anchor: bool = False
) -> RowPlan:
    """Plan of draft blocks: (sequence, anchor position, rows). Causal layers see up to the row, bidirectional
    layers the whole block; the block's K/V takes the slots that context K/V will overwrite at the commit. With
    ``window_from_anchor`` all rows of a block share the anchor's window instead of having one each."""
    seqs: list[int] = []
    positions: list[int] = []
    ends: list[int] = []
    anchors: list[int] = []
    for seq, anchor, rows in blocks:
        seqs += [seq] * rows
        positions += range(anchor, anchor + rows)
        ends += [anchor + rows] * rows
        anchors += [anchor] * rows
    device = pool.table.device
    place = _int32(positions, device)
    return RowPlan(
        positions=place,
        slots=_slots(pool, seqs, positions),
        request=_int32(seqs, device),
        table=pool.table,
        visible=place + 1,
        visible_block=_int32(ends, device),
        window_positions=_int32(anchors, device) if window_from_anchor else None,
    )


def _slots(pool: KVPool, seqs: Sequence[int], positions: Sequence[int]) -> Tensor:
    device = pool.table.device
    return pool.table[
        torch.tensor(seqs, dtype=torch.long, device=device),
        torch.tensor(positions, dtype=torch.long, device=device),
    ]
