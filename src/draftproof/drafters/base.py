"""What the engine asks of a drafter. A drafter knows nothing of sampling, verification or stopping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from draftproof.engine.memory import KVShape
from draftproof.engine.pool import KVPool


@dataclass(frozen=True)
class DraftRequest:
    """Ask for up to ``count`` tokens after ``token_ids`` (all committed tokens; the last one is the anchor)."""

    seq: int
    token_ids: Sequence[int]
    count: int


@dataclass(frozen=True)
class Draft:
    """Either ``logits`` [n, C] (float32, one row per drafted position) from which the engine picks a chain or grows
    a tree, or ``tokens`` proposed with certainty. At most one is set; neither means nothing is proposed this round.

    ``vocabulary`` [C]: the target's ids, ascending, that the columns of ``logits`` stand for, if the drafter knows
    only some; None: column i is id i. A drafter that ranks a sixth of the vocabulary is read six times as fast.
    """

    logits: Tensor | None = None
    tokens: Sequence[int] = ()
    vocabulary: Tensor | None = None

    def wide(self, vocab_size: int) -> Tensor | None:
        """[n, vocab_size]: ``logits`` over the target's whole vocabulary, -inf where the drafter knows no token."""
        if self.logits is None or self.vocabulary is None:
            return self.logits
        wide = self.logits.new_full((len(self.logits), vocab_size), float("-inf"))
        wide[:, self.vocabulary] = self.logits
        return wide


@dataclass(frozen=True)
class CommittedRows:
    """Rows of the last target pass that are now committed: where they are in its taps, and what positions they
    have in their sequence. ``start`` is the position of the first."""

    seq: int
    rows: Sequence[int]
    start: int


class Drafter(Protocol):
    """Proposes tokens; reads taps of committed tokens where it wants any.

    ``tap_layers``: ``output_hidden_states`` indices it reads (empty: none). ``kv_shapes``: context K/V it keeps
    in the engine's pool, under the sequence's own block table. ``num_draft_tokens``: most it can propose.
    ``max_position``: positions it was made for; nothing is drafted past them. None: any.
    """

    @property
    def name(self) -> str: ...

    @property
    def tap_layers(self) -> Sequence[int]: ...

    @property
    def kv_shapes(self) -> Sequence[KVShape]: ...

    @property
    def num_draft_tokens(self) -> int: ...

    @property
    def max_position(self) -> int | None: ...

    def observe(self, pool: KVPool, committed: Sequence[CommittedRows], taps: Tensor | None) -> None:
        """Take over committed rows. ``taps`` [R, taps × H] are those of the whole pass."""
        ...

    def propose(self, pool: KVPool, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One draft per request, in order. Slots for the block have been reserved."""
        ...
