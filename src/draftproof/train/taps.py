"""Keep the target's hidden states of whatever it decodes, for free: a drafter that reads taps and proposes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from draftproof.drafters.base import CommittedRows, Draft, DraftRequest
from draftproof.engine.pool import KVPool, KVShape
from draftproof.errors import CapabilityError


class TapCollector:
    """Passes through an engine as its drafter. ``take(seq, rows)`` hands a sequence's taps over, position by position.

    A row's taps are the same bits in prefill and in decoding where the target is row-invariant, so what is kept
    here is what serving will feed to the drafter.
    """

    name = "taps"
    kv_shapes: Sequence[KVShape] = ()
    num_draft_tokens = 1
    max_position: int | None = None

    def __init__(self, tap_layers: Sequence[int]) -> None:
        self.tap_layers = tuple(tap_layers)
        self._rows: dict[int, list[Tensor]] = {}
        self._length: dict[int, int] = {}

    def observe(self, pool: KVPool, committed: Sequence[CommittedRows], taps: Tensor | None) -> None:
        if taps is None:
            return
        for part in committed:
            if part.start == 0:
                self._rows[part.seq], self._length[part.seq] = [], 0
            if part.start != self._length.get(part.seq):
                raise CapabilityError(
                    f"taps of positions {self._length.get(part.seq, 0)} to {part.start - 1} were not computed in this "
                    "run: record with the prefix cache off"
                )
            rows = taps[torch.as_tensor(list(part.rows), device=taps.device)]
            self._rows[part.seq].append(rows.to("cpu", torch.bfloat16))
            self._length[part.seq] += len(rows)

    def propose(self, pool: KVPool, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [Draft() for _ in requests]

    def take(self, seq: int, rows: int) -> Tensor:
        """[rows, taps × H] bfloat16 on the CPU: the first ``rows`` positions of a sequence, which is then forgotten."""
        parts = self._rows.pop(seq)
        self._length.pop(seq)
        return torch.cat(parts)[:rows]
