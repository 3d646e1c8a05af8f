"""Prompt lookup: propose what followed the last few tokens the last time they occurred.

Source: Saxena, "Prompt Lookup Decoding" (2023). No weights, no taps; pays on rewriting, quoting and code.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from draftproof.drafters.base import CommittedRows, Draft, DraftRequest
from draftproof.engine.memory import KVShape
from draftproof.engine.pool import KVPool
from draftproof.errors import UsageError


class NgramDrafter:
    """Looks for the longest suffix of ``max_match`` down to ``min_match`` tokens; its latest occurrence wins."""

    name = "ngram"
    tap_layers: Sequence[int] = ()
    kv_shapes: Sequence[KVShape] = ()
    max_position: int | None = None

    def __init__(self, num_draft_tokens: int = 7, *, min_match: int = 2, max_match: int = 4) -> None:
        if not 1 <= min_match <= max_match:
            raise UsageError(f"ngram: min_match={min_match} must be between 1 and max_match={max_match}")
        self.num_draft_tokens = num_draft_tokens
        self.min_match = min_match
        self.max_match = max_match

    def observe(self, pool: KVPool, committed: Sequence[CommittedRows], taps: Tensor | None) -> None:
        pass

    def propose(self, pool: KVPool, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [Draft(tokens=self.lookup(request.token_ids, request.count)) for request in requests]

    def lookup(self, tokens: Sequence[int], count: int) -> list[int]:
        """Up to ``count`` tokens that followed the latest earlier occurrence of the longest matching suffix."""
        ids = list(tokens)
        for size in range(min(self.max_match, len(ids) - 1), self.min_match - 1, -1):
            suffix = ids[-size:]
            for start in range(len(ids) - size - 1, -1, -1):
                if ids[start + size - 1] == suffix[-1] and ids[start : start + size] == suffix:
                    return ids[start + size : start + size + count]
        return []
