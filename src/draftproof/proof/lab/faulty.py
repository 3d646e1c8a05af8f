"""Drafters that do one thing wrong, each the way an engine has done it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.drafters.base import CommittedRows, DraftRequest
from draftproof.drafters.decoder import rms_norm
from draftproof.drafters.dflash import DFlashDrafter
from draftproof.engine.pool import KVPool
from draftproof.native import RowPlan

LEAK = 64  # positions of a new request that still hold the one before
PREFIX_BLOCK = 16  # tokens of a block of the prefix cache that is dropped


class AnchorMasked(DFlashDrafter):
    """The block begins with one more mask instead of the last committed token."""

    def block_input(self, requests: Sequence[DraftRequest]) -> Tensor:
        rows = super().block_input(requests).clone()
        first = 0
        for request in requests:
            rows[first] = self._mask_row.to(rows.dtype)
            first += request.count + 1
        return rows


class Shifted(DFlashDrafter):
    """Block rows are rotated one position later than they stand."""

    def block_plan(self, pool: KVPool, requests: Sequence[DraftRequest]) -> RowPlan:
        plan = super().block_plan(pool, requests)
        return replace(plan, positions=plan.positions + 1)


class HiddenNormSkipped(DFlashDrafter):
    """What ``fc`` makes of the taps goes into keys and values as it is."""

    def context_features(self, taps: Tensor) -> Tensor:
        out = F.linear(taps.to(self.weights.fc.dtype), self.weights.fc)
        return out.float() if self._native else out


class ContextNormedTwice(DFlashDrafter):
    """Context rows pass each layer's input norm, as block rows do."""

    def observe(self, pool: KVPool, committed: Sequence[CommittedRows], taps: Tensor | None) -> None:
        layers, own = self.weights.layers, self._decoder
        features = self.context_features
        try:
            for i, layer in enumerate(layers):

                def normed(given: Tensor, weight: Tensor = layer.input_norm) -> Tensor:
                    out = rms_norm(features(given), weight.float(), self.spec.rms_norm_eps)
                    return out.float() if self._native else out.to(weight.dtype)

                self.context_features = normed  # type: ignore[method-assign, assignment]
                self._decoder = _OneLayer(self._single(i), i)  # type: ignore[assignment]
                super().observe(pool, committed, taps)
        finally:
            self._decoder = own
            del self.context_features

    def _single(self, index: int) -> Any:
        """A decoder of layer ``index`` alone."""
        cache = self.__dict__.setdefault("_singles", {})
        if index not in cache:
            whole = self.weights
            try:
                self.weights = replace(whole, layers=[whole.layers[index]])
                cache[index] = self._make_decoder(self._target)
            finally:
                self.weights = whole
        return cache[index]


class _OneLayer:
    """Writes one layer's context K/V where the whole stack would have written all."""

    def __init__(self, decoder: Any, index: int) -> None:
        self.decoder, self.index = decoder, index

    def append_context(self, x: Tensor, positions: Tensor, slots: Tensor, kv: Sequence[Any]) -> None:
        self.decoder.append_context(x, positions, slots, kv[self.index : self.index + 1])


class ContextFirstKNorm(DFlashDrafter):
    """Context keys of every layer pass the first layer's k_norm; block keys their own (vLLM 0.32.0 on a CPU)."""

    def observe(self, pool: KVPool, committed: Sequence[CommittedRows], taps: Tensor | None) -> None:
        own = self._decoder
        self._decoder = self._of_the_first()
        try:
            super().observe(pool, committed, taps)
        finally:
            self._decoder = own

    def _of_the_first(self) -> Any:
        """The whole stack, each layer with the first one's k_norm."""
        if "_first" not in self.__dict__:
            whole, first = self.weights, self.weights.layers[0].k_norm
            try:
                self.weights = replace(whole, layers=[replace(layer, k_norm=first) for layer in whole.layers])
                self.__dict__["_first"] = self._make_decoder(self._target)
            finally:
                self.weights = whole
        return self.__dict__["_first"]


class HalfPrecision(DFlashDrafter):
    """Taps and what ``fc`` makes of them in float16, whose largest number is 65,504."""

    def context_features(self, taps: Tensor) -> Tensor:
        fused = F.linear(taps.half().float(), self.weights.fc.half().float()).half()
        out = rms_norm(torch.nan_to_num(fused.float()), self.weights.hidden_norm.float(), self.spec.rms_norm_eps)
        return out if self._native else out.to(self.weights.fc.dtype)


class StaleRows(DFlashDrafter):
    """Accepted tokens keep the block's own keys and values: only the first row of a round gets its context's."""

    def observe(self, pool: KVPool, committed: Sequence[CommittedRows], taps: Tensor | None) -> None:
        kept = [
            part
            if len(part.rows) > self.num_draft_tokens + 1 or part.start == 0
            else CommittedRows(part.seq, part.rows[:1], part.start)
            for part in committed
        ]
        super().observe(pool, kept, taps)


class _Noticing(DFlashDrafter):
    """Notices where a sequence begins, from positions that do not follow the last ones."""

    def observe(self, pool: KVPool, committed: Sequence[CommittedRows], taps: Tensor | None) -> None:
        ends = self.__dict__.setdefault("_ends", {})
        begun = [part for part in committed if ends.get(part.seq) != part.start]
        super().observe(pool, self._kept(committed, begun), taps)
        for part in begun:
            self._begin(pool, part)
        ends.update({part.seq: part.start + len(part.rows) for part in committed})

    def _kept(self, committed: Sequence[CommittedRows], begun: Sequence[CommittedRows]) -> Sequence[CommittedRows]:
        return committed

    def _begin(self, pool: KVPool, part: CommittedRows) -> None:
        pass


class CachedContextLost(_Noticing):
    """A cached prefix brings back the target's keys and values, the drafter's are empty."""

    def _begin(self, pool: KVPool, part: CommittedRows) -> None:
        clear_context(pool, part.seq, 0, part.start)


class LastBlockLost(_Noticing):
    """A cached prefix comes without the drafter's keys and values of its last block."""

    def _begin(self, pool: KVPool, part: CommittedRows) -> None:
        clear_context(pool, part.seq, max(part.start - PREFIX_BLOCK, 0), part.start)


class Leaking(_Noticing):
    """A request that is not the first starts with the drafter's context of the one before it."""

    def _kept(self, committed: Sequence[CommittedRows], begun: Sequence[CommittedRows]) -> Sequence[CommittedRows]:
        if not self.__dict__.setdefault("_used", False):
            self.__dict__["_used"] = True
            return committed
        fresh = {id(part) for part in begun if part.start == 0}
        return [
            CommittedRows(part.seq, part.rows[LEAK:], part.start + LEAK) if id(part) in fresh else part
            for part in committed
            if id(part) not in fresh or len(part.rows) > LEAK
        ]


def clear_context(pool: KVPool, seq: int, begin: int, end: int) -> None:
    """Zero the drafter's keys and values of positions begin … end - 1."""
    slots = pool.table[seq, begin:end].long()
    for layer in pool.drafter_kv:
        where = slots if layer.slot_map is None else layer.slot_map[slots].long()
        where = where[where >= 0]
        layer.key[where] = 0
        layer.value[where] = 0
