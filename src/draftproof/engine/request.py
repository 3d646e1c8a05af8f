"""One request while it lives in the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from draftproof.engine.detokenize import IncrementalDetokenizer
from draftproof.engine.rng import RequestRng
from draftproof.engine.sampling import TokenHistory
from draftproof.engine.types import FinishReason, SamplingParams


@dataclass
class Request:
    """``token_ids``: everything committed, prompt first; its last token is the anchor of the next round.

    ``limit``: most tokens the sequence may reach. ``computed``: leading tokens whose target K/V (and context K/V
    of the drafter) stand in the pool. ``seq``: its row in the pool's block table once admitted.
    """

    request_id: str
    token_ids: list[int]
    params: SamplingParams
    limit: int
    stop_ids: frozenset[int]
    rng: RequestRng
    history: TokenHistory | None = None
    detokenizer: IncrementalDetokenizer | None = None
    prompt_length: int = field(init=False)
    computed: int = 0
    seq: int = -1
    failure: str = ""  # why the request cannot go on, once it cannot

    def __post_init__(self) -> None:
        self.prompt_length = len(self.token_ids)

    @property
    def generated(self) -> int:
        return len(self.token_ids) - self.prompt_length

    @property
    def remaining(self) -> int:
        """Tokens that may still be committed."""
        return self.limit - len(self.token_ids)

    def commit(self, tokens: Sequence[int]) -> Committed:
        """Append a round's tokens up to the first end: stop id, stop string or limit. Nothing past it counts."""
        kept: list[int] = []
        text = ""
        for token in tokens:
            kept.append(token)
            self.token_ids.append(token)
            if self.history is not None:
                self.history.append(token)
            if token in self.stop_ids:
                return Committed(kept, text, "stop", f"token {token}")
            if self.detokenizer is not None:
                delta = self.detokenizer.push([token])
                text += delta.text
                if delta.stopped is not None:
                    return Committed(kept, text, "stop", repr(delta.stopped))
            if self.remaining <= 0:
                return Committed(kept, text, "length", f"{self.generated} tokens")
        return Committed(kept, text, None, "")


@dataclass(frozen=True)
class Committed:
    """What ``Request.commit`` kept of a round, the text that became final, and whether the request ended."""

    token_ids: list[int]
    text: str
    reason: FinishReason | None
    detail: str
