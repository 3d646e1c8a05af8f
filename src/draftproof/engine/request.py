"""One request while it lives in the engine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from draftproof.engine.acceptance import RunningAcceptance
from draftproof.engine.constraint import Constraint
from draftproof.engine.detokenize import IncrementalDetokenizer
from draftproof.engine.prefix_cache import block_name, root_name
from draftproof.engine.rng import RequestRng
from draftproof.engine.sampling import TokenHistory
from draftproof.engine.types import FinishReason, SamplingParams


@dataclass
class Request:
    """``token_ids``: everything committed, prompt first; its last token is the anchor of the next round.

    ``limit``: most tokens the sequence may reach. ``computed``: leading tokens whose target K/V stand in the pool;
    ``observed``: those the drafter has taken in too (its context K/V may come later, see ``backlog``). ``seq``: its
    row in the pool's block table while it runs. ``parent``: the request of the same prompt (n > 1) whose blocks it
    can share. ``no_drafts``: why the drafter is not asked for this request any more, if it is not.
    """

    request_id: str
    token_ids: list[int]
    params: SamplingParams
    limit: int
    stop_ids: frozenset[int]
    rng: RequestRng
    history: TokenHistory | None = None
    detokenizer: IncrementalDetokenizer | None = None
    constraint: Constraint | None = None
    index: int = 0
    salt: str | None = None
    parent: Request | None = None
    prompt_length: int = field(init=False)
    computed: int = 0
    observed: int = 0
    published: int = 0  # leading blocks offered to the prefix cache
    cached: int = 0  # prompt tokens that were found there
    branch: int = 0  # where its prompt leaves what the prefix cache knew when it was admitted
    seq: int = -1
    done: bool = False
    failure: str = ""  # why the request cannot go on, once it cannot
    no_drafts: str = ""
    names: list[bytes] = field(default_factory=list)
    backlog: list[tuple[int, Sequence[int], Tensor]] = field(default_factory=list)  # start, rows, taps of the pass
    acceptance: RunningAcceptance | None = None
    drafted_last: int = 0  # the policy's last choice
    last_draft: int = 0  # the policy's round in which something was drafted last
    told_length: int = -1  # the length of the last LengthChosen event
    order: int = field(default_factory=itertools.count().__next__)
    began: float = 0.0  # when its first pass began

    def __post_init__(self) -> None:
        self.prompt_length = len(self.token_ids)
        self.root = root_name(self.salt)

    @property
    def generated(self) -> int:
        return len(self.token_ids) - self.prompt_length

    @property
    def remaining(self) -> int:
        """Tokens that may still be committed."""
        return self.limit - len(self.token_ids)

    @property
    def prefill_end(self) -> int:
        """Tokens to compute before rounds can go on. A prompt's last row yields the first token; what comes back
        after a pre-emption has its next token already: the anchor, which a round computes."""
        return self.prompt_length if self.generated == 0 else len(self.token_ids) - 1

    @property
    def decoding(self) -> bool:
        return self.generated > 0 and self.computed == len(self.token_ids) - 1

    @property
    def needed_from(self) -> int:
        """No row before this position will come any more, of the target or of a drafter that is still asked."""
        return self.computed if self.no_drafts else min(self.computed, self.observed)

    def block_names(self, count: int, block_size: int) -> list[bytes]:
        """Names of the first ``count`` full blocks, as the prefix cache knows them."""
        while len(self.names) < count:
            begin = len(self.names) * block_size
            before = self.names[-1] if self.names else self.root
            self.names.append(block_name(before, self.token_ids[begin : begin + block_size]))
        return self.names[:count]

    def forget_computed(self) -> None:
        """Nothing stands in the pool any more: everything is computed again, with the same result."""
        self.seq, self.computed, self.observed, self.published = -1, 0, 0, 0
        self.backlog.clear()

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
            if self.constraint is not None:
                self.constraint.advance(token)
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
