"""Rounds of a drafter against recorded answers, through the engine's own loop and without running the target.

Greedy: the target's next token is known, so drafts are verified exactly as by the target itself. Sampled: a recorded
token x, drawn from p, counts as drafted and accepted with probability min(1, q(x)/p(x)), else as rejected and drawn
anew. Accepted tokens then follow min(p, q) and the others max(p - q, 0), which is speculative sampling (Leviathan et
al., ICML 2023) with the end result fixed first: the number of accepted tokens has the same law.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from draftproof.drafters.base import Draft, DraftRequest
from draftproof.engine.memory import KVShape
from draftproof.engine.plan import Pass
from draftproof.engine.pool import KVPool
from draftproof.errors import DraftproofError
from draftproof.proof.lab.recording import Recording
from draftproof.targets.base import Target

_SURE = 100.0  # logit of the recorded token; all others are 0
_SMALL = (KVShape(1, 1, 1),)  # nothing is kept of a target that does not run


class ReplayTarget:
    """Says what ``load`` was given, to sequences in the order in which they begin; what drafters borrow (embedding,
    head) is ``target``'s own."""

    kv_shapes = _SMALL

    def __init__(self, target: Target) -> None:
        self._target = target
        self._coming: deque[Recording] = deque()
        self.playing: dict[int, Recording] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def load(self, recordings: Iterable[Recording]) -> None:
        self._coming = deque(recordings)
        self.playing.clear()

    def forward(
        self, batch: Pass, kv: Any, *, taps: Sequence[int] = (), logits: Sequence[int] | Tensor = ()
    ) -> tuple[Tensor, Tensor | None]:
        following: list[int] = []
        tapped: list[Tensor] = []
        for segment in batch.segments:
            tokens = self._playing(segment.seq, segment.start, segment.token_ids).tokens
            rows = range(segment.start, segment.start + len(segment))
            following += [tokens[row + 1] if row + 1 < len(tokens) else 0 for row in rows]
            tapped.append(self._taps(self.playing[segment.seq], rows, taps))
        wanted = torch.as_tensor(list(logits), dtype=torch.long)
        said = torch.zeros(len(wanted), self._target.info.vocab_size)
        said[torch.arange(len(wanted)), torch.tensor(following)[wanted]] = _SURE
        return said.to(self._target.info.device), torch.cat(tapped) if taps else None

    def _playing(self, seq: int, start: int, token_ids: Sequence[int]) -> Recording:
        if seq not in self.playing:
            self.playing[seq] = self._coming.popleft()
        found = self.playing[seq]
        if found.tokens[start] != token_ids[0]:
            raise DraftproofError(f"sequence {seq} left its recording at position {start}")
        return found

    @staticmethod
    def _taps(recording: Recording, rows: range, layers: Sequence[int]) -> Tensor:
        """Rows past the recorded ones belong to rejected drafts; they repeat the last."""
        last = len(recording.tokens) - 2
        index = torch.tensor([min(row, last) for row in rows])
        return torch.cat([recording.taps[layer][index] for layer in layers], dim=1)

    def release(self, seq: int) -> None:
        self.playing.pop(seq, None)


class Coupled:
    """Turns a drafter's distributions into drafts of the recorded token or of another one, with the probability of
    being accepted that speculative sampling gives them at temperature 1."""

    def __init__(self, drafter: Any, target: ReplayTarget, seed: int) -> None:
        self._drafter, self._target, self._seed = drafter, target, seed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drafter, name)

    def propose(self, pool: KVPool, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafts = self._drafter.propose(pool, requests)
        wide = [draft.wide(self._target.info.vocab_size) for draft in drafts]
        return [
            draft if logits is None else Draft(tokens=self._tokens(request, logits))
            for request, draft, logits in zip(requests, drafts, wide, strict=True)
        ]

    def _tokens(self, request: DraftRequest, logits: Tensor) -> list[int]:
        recording = self._target.playing[request.seq]
        begin = len(request.token_ids)
        wanted = recording.tokens[begin : begin + len(logits)]
        rows = logits[: len(wanted)]
        q = rows[torch.arange(len(wanted)), torch.tensor(wanted)] - rows.logsumexp(-1)
        p = recording.logprobs[begin - len(recording.prompt) :]
        chance = random.Random(f"{self._seed} {recording.prompt[-8:]} {begin}")
        return [
            token if chance.random() < math.exp(min(0.0, mine - its)) else (token + 1) % logits.shape[1]
            for token, mine, its in zip(wanted, q.tolist(), p, strict=False)
        ]
