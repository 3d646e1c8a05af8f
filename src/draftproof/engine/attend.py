"""Attention of a pass over the K/V pool, in plain torch: what is visible to whom, for every family and device.

The native kernel does the same on CPUs with a compiler; this module is its reference and its fallback, and the
only path on CUDA and MPS.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.native import LayerKV, RowPlan


@dataclass(frozen=True)
class _Run:
    """Consecutive rows of one sequence: their keys (as slots, in logical order) and who sees which."""

    rows: slice
    keys: Tensor  # [L] slots
    key_positions: Tensor  # [L]
    causal: Tensor  # [rows, L] bool: visible to layers that are causal
    block: Tensor  # [rows, L] bool: visible to bidirectional layers


class PlanView:
    """A row plan seen as one boolean mask per sequence. Built once a pass, shared by all layers."""

    def __init__(self, plan: RowPlan) -> None:
        self.plan = plan
        self._runs = [_make_run(plan, rows) for rows in _sequence_runs(plan)]
        self._masks: dict[tuple[int | None, bool], list[Tensor]] = {}

    def masks(self, window: int | None, bidirectional: bool) -> list[Tensor]:
        """One [rows, L] boolean mask per run; a key further than ``window`` - 1 back is not visible."""
        key = (window, bidirectional)
        if key not in self._masks:
            self._masks[key] = [self._mask(run, window, bidirectional) for run in self._runs]
        return self._masks[key]

    def _mask(self, run: _Run, window: int | None, bidirectional: bool) -> Tensor:
        visible = run.block if bidirectional else run.causal
        if window is None:
            return visible
        origin = self.plan.positions if self.plan.window_positions is None else self.plan.window_positions
        distance = origin[run.rows].long()[:, None] - run.key_positions[None, :]
        return visible & (distance < window) & (-distance < window)

    def attend(
        self,
        query: Tensor,
        pools: LayerKV,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: Tensor | None = None,
        bidirectional: bool = False,
        row_by_row: bool = False,
    ) -> Tensor:
        """Attention of ``query`` [R, heads, dim] over a layer's pools → [R, heads, value_dim].

        ``row_by_row`` gives every row a call of its own over exactly the keys it sees, so that its rounding does
        not depend on its neighbours. Rows that see nothing (padding) get zeros.
        """
        keys, values, slot_map = pools
        out = query.new_zeros(query.shape[0], query.shape[1], values.shape[2])
        for run, mask in zip(self._runs, self.masks(window, bidirectional), strict=True):
            if run.keys.numel() == 0:
                continue
            seen_by_any = mask.any(dim=0)
            slots, mask = run.keys[seen_by_any], mask[:, seen_by_any]  # what left the window may have no memory
            if slot_map is not None:
                slots = slot_map[slots].long()
            if row_by_row:
                for i, row in enumerate(range(run.rows.start, run.rows.stop)):
                    seen = slots[mask[i]]
                    if seen.numel():
                        out[row] = _softmax_attention(
                            query[row : row + 1], keys[seen], values[seen], None, scale, softcap, sinks
                        )[0]
                continue
            k, v = keys[slots], values[slots]
            out[run.rows] = _softmax_attention(query[run.rows], k, v, mask, scale, softcap, sinks)
        return out


def _sequence_runs(plan: RowPlan) -> list[slice]:
    """Rows of the same sequence stand together; padding rows (no slot) form runs of their own."""
    owners = torch.where(plan.slots < 0, -1, plan.request).tolist()
    runs: list[slice] = []
    begin = 0
    for i in range(1, len(owners) + 1):
        if i == len(owners) or owners[i] != owners[begin]:
            runs.append(slice(begin, i))
            begin = i
    return runs


def _make_run(plan: RowPlan, rows: slice) -> _Run:
    device = plan.visible.device
    if int(plan.slots[rows.start]) < 0:
        none = torch.zeros(rows.stop - rows.start, 0, dtype=torch.bool, device=device)
        empty = torch.zeros(0, dtype=torch.long, device=device)
        return _Run(rows, empty, empty, none, none)
    visible = plan.visible[rows].long()
    block = visible if plan.visible_block is None else plan.visible_block[rows].long()
    length = int(torch.maximum(visible, block).max())
    logical = torch.arange(length, device=device)
    keys = plan.table[int(plan.request[rows.start]), :length].long()
    causal_mask = logical[None, :] < visible[:, None]
    block_mask = logical[None, :] < block[:, None]
    if plan.extra_ptr is None or plan.extra_slots is None:
        return _Run(rows, keys, logical, causal_mask, block_mask)
    extra_keys, extra_positions, extra_mask = _extras(plan, rows)
    both = torch.cat([causal_mask, extra_mask], dim=1)
    return _Run(rows, torch.cat([keys, extra_keys]), torch.cat([logical, extra_positions]), both, both)


def _extras(plan: RowPlan, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
    """The tree part of a run: each distinct extra key once, its logical position, and who sees it."""
    assert plan.extra_ptr is not None and plan.extra_slots is not None
    pointers = plan.extra_ptr[rows.start : rows.stop + 1].tolist()
    visible = plan.visible[rows].tolist()
    columns: dict[int, int] = {}
    positions: list[int] = []
    seen: list[tuple[int, int]] = []
    for i, (begin, end) in enumerate(itertools.pairwise(pointers)):
        for depth, slot in enumerate(plan.extra_slots[begin:end].tolist()):
            if slot not in columns:
                columns[slot] = len(columns)
                positions.append(visible[i] + depth)
            seen.append((i, columns[slot]))
    device = plan.visible.device
    mask = torch.zeros(rows.stop - rows.start, len(columns), dtype=torch.bool, device=device)
    if seen:
        index = torch.tensor(seen, device=device)
        mask[index[:, 0], index[:, 1]] = True
    keys = torch.tensor(list(columns), dtype=torch.long, device=device)
    return keys, torch.tensor(positions, dtype=torch.long, device=device), mask


def _softmax_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """[R, heads, d] × [L, kv, d] × [L, kv, dv] → [R, heads, dv]; soft-cap and sinks need the scores by hand."""
    q = query.transpose(0, 1)[None]  # [1, heads, R, d]
    groups = query.shape[1] // keys.shape[1]
    k = keys.transpose(0, 1).repeat_interleave(groups, dim=0)[None]
    v = values.transpose(0, 1).repeat_interleave(groups, dim=0)[None]
    if softcap is None and sinks is None:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        return out[0].transpose(0, 1)
    scores = (q @ k.transpose(-1, -2)).float() * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if sinks is not None:
        column = sinks.float().view(1, -1, 1, 1).expand(1, scores.shape[1], scores.shape[2], 1)
        scores = torch.cat([scores, column], dim=-1)
    weights = torch.softmax(scores, dim=-1)
    if sinks is not None:
        weights = weights[..., :-1]
    return (weights.to(values.dtype) @ v)[0].transpose(0, 1)
