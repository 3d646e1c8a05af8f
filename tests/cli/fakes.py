"""An engine without a model: it answers from a table, in rounds of a fixed pattern, as typed events.

Its tokens are UTF-8 bytes, so an answer with umlauts shows how half characters are held back.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from draftproof.engine.types import (
    Event,
    PrefillFinished,
    RequestFinished,
    RoundFinished,
    RoundStats,
    SamplingParams,
    TokenLogprob,
    TokensCommitted,
)

ANSWER = "Grüße aus der Küche – 12 × 8 = 96 rolls, and 26 are left."
PATTERNS = {"none": [0], "chain": [2, 0, 5, 1], "tree": [3, 1, 7, 2]}


class ByteTokenizer:
    chat_template: str | None = "as is"

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return bytes(ids).decode(errors="replace")


@dataclass
class FakeEngine:
    target: str = "fake"
    drafter: str | None = None
    method: str | None = None
    invariant: bool | None = True
    max_model_len: int = 4096
    answer: str = ANSWER
    delay_s: float = 0.0
    interrupt_after: int | None = None  # rounds until a Ctrl-C
    fail_with: str = ""
    tokenizer: ByteTokenizer = field(default_factory=ByteTokenizer)
    eos_token_ids: tuple[int, ...] = (0,)
    requests: list[tuple[Any, SamplingParams]] = field(default_factory=list)
    closed: int = 0

    def describe(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "drafter": self.drafter,
            "device": "cpu",
            "dtype": "float32",
            "threads": 2,
            "invariant": bool(self.invariant),
            "native": False,
        }

    def apply_chat_template(self, messages: list[dict[str, str]]) -> str:
        return "".join(f"<{m['role']}>{m['content']}\n" for m in messages)

    def stream(self, prompt: str | list[int], params: SamplingParams) -> Iterator[Event]:
        self.requests.append((prompt, params))
        try:
            yield from self._events(prompt, params)
        finally:
            self.closed += 1

    def _events(self, prompt: str | list[int], params: SamplingParams) -> Iterator[Event]:
        ids = list(prompt.encode()) if isinstance(prompt, str) else prompt
        yield PrefillFinished("r0", len(ids), 0.001)
        if self.fail_with:
            yield RequestFinished("r0", "error", detail=self.fail_with)
            return
        tokens = list(self.answer.encode())
        wanted = tokens[: params.max_tokens]
        shown = 0
        done = 0
        method = self.method or ("chain" if self.drafter else "none")
        for number, accepted in enumerate(itertools.cycle(PATTERNS[method])):
            if number == self.interrupt_after:
                raise KeyboardInterrupt
            time.sleep(self.delay_s)
            ids = wanted[done : done + accepted + 1]
            done += len(ids)
            text = bytes(wanted[:done]).decode(errors="ignore")
            logprobs = tuple(TokenLogprob(i, -0.5) for i in ids) if params.logprobs is not None else None
            kept = min(accepted, len(ids))
            yield TokensCommitted("r0", tuple(ids), text[shown:], kept, logprobs)
            yield RoundFinished("r0", self._round(method, kept, len(ids)))
            shown = len(text)
            if done >= len(wanted):
                break
        yield RequestFinished("r0", "stop" if len(wanted) == len(tokens) else "length")

    def _round(self, method: str, accepted: int, produced: int) -> RoundStats:
        depth = 0 if method == "none" else 7
        drafted = 16 if method == "tree" else depth
        return RoundStats(drafted, depth, accepted, produced, 0.002 if depth else 0.0, 0.005, 0.0004)
