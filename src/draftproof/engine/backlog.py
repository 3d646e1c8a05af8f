"""Committed rows whose context K/V was put off: several passes' taps as if they were one's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from draftproof.drafters.base import CommittedRows

Piece = tuple[int, int, Sequence[int], Tensor]  # sequence, first position, rows of a pass, the pass's taps


def join(pieces: Sequence[Piece]) -> tuple[list[CommittedRows], Tensor]:
    """Rows of several passes as if they were one's; the positions of a sequence stay in order."""
    passes: dict[int, tuple[Tensor, list[Piece]]] = {}
    for piece in pieces:
        passes.setdefault(id(piece[3]), (piece[3], []))[1].append(piece)
    if len(passes) == 1:
        return [CommittedRows(seq, rows, start) for seq, start, rows, _ in pieces], pieces[0][3]
    first = pieces[0][3]
    joined = first.new_empty(sum(len(rows) for _, _, rows, _ in pieces), first.shape[1])
    committed, at = [], 0
    for taps, parts in passes.values():
        wanted = torch.tensor([row for _, _, rows, _ in parts for row in rows], device=taps.device)
        torch.index_select(taps, 0, wanted, out=joined[at : at + len(wanted)])
        for seq, start, rows, _ in parts:
            committed.append(CommittedRows(seq, range(at, at + len(rows)), start))
            at += len(rows)
    return committed, joined
