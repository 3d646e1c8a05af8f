"""The two shapes of a response, chat and text, each as chunks and as a whole made of the same deltas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from draftproof.server.answers import Answer, Delta
from draftproof.server.parser import END_THINK
from draftproof.server.responses import (
    DONE,
    Envelope,
    chat_delta,
    chat_logprobs,
    sse,
    text_logprobs,
    tool_calls,
)
from draftproof.server.service import Service


class Writer(ABC):
    """Base of both: keeps what belongs to each answer until it is written as a whole."""

    DONE = DONE
    KIND = ""

    def __init__(self, service: Service) -> None:
        self._text_of = service.text_of
        self._tokenizer = service.engine.tokenizer
        self.envelope = Envelope(self.KIND, service.name)
        self._kept: dict[int, Delta] = {}

    def event(self, chunk: dict[str, Any], *, usage: bool = False) -> str:
        return sse(chunk | {"usage": None} if usage else chunk)

    def keep(self, delta: Delta) -> None:
        """Add to the answer's one whole delta."""
        whole = self._kept.setdefault(delta.index, Delta(delta.index))
        whole.content += delta.content
        whole.reasoning += delta.reasoning
        whole.calls += delta.calls
        whole.logprobs += delta.logprobs
        whole.rounds += delta.rounds
        whole.finish = delta.finish or whole.finish

    def opening(self, answers: int) -> list[dict[str, Any]]:
        return []

    def chunk(self, delta: Delta) -> dict[str, Any]:
        choice = {"index": delta.index, **self._part(delta), "finish_reason": delta.finish}
        told = self.envelope.chunk([choice])
        if delta.rounds:
            told["speculation"] = {"rounds": delta.rounds}
        return told

    def choices(self, answers: Sequence[Answer]) -> list[dict[str, Any]]:
        whole = [self._kept[a.index] for a in answers]
        return [{"index": d.index, **self._whole(d), "finish_reason": d.finish} for d in whole]

    def reasoning_tokens(self, answers: Sequence[Answer]) -> int | None:
        return None

    @abstractmethod
    def _part(self, delta: Delta) -> dict[str, Any]:
        """What a chunk's choice holds besides index and finish reason."""

    @abstractmethod
    def _whole(self, delta: Delta) -> dict[str, Any]:
        """The same of a whole answer."""


class TextWriter(Writer):
    KIND = "text_completion"

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._offsets: dict[int, int] = {}

    def _part(self, delta: Delta) -> dict[str, Any]:
        logprobs = None
        if delta.logprobs:
            begin = self._offsets.get(delta.index, 0)
            logprobs = text_logprobs(delta.logprobs, self._text_of, begin)
            self._offsets[delta.index] = begin + sum(map(len, logprobs["tokens"]))
        return {"text": delta.content, "logprobs": logprobs}

    _whole = _part


class ChatWriter(Writer):
    KIND = "chat.completion"

    def __init__(self, service: Service, thinks: bool) -> None:
        super().__init__(service)
        self._thinks = thinks

    def opening(self, answers: int) -> list[dict[str, Any]]:
        return [
            self.envelope.chunk([{"index": i, "delta": chat_delta(Delta(i), "", role=True), "logprobs": None,
                                  "finish_reason": None}])
            for i in range(answers)
        ]  # fmt: skip

    def _prefix(self, delta: Delta) -> str:
        return f"{self.envelope.id[-12:]}_{delta.index}"

    def _part(self, delta: Delta) -> dict[str, Any]:
        logprobs = chat_logprobs(delta.logprobs, self._text_of) if delta.logprobs else None
        return {"delta": chat_delta(delta, self._prefix(delta), role=False), "logprobs": logprobs}

    def _whole(self, delta: Delta) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": delta.content or (None if delta.calls else "")}
        if delta.reasoning:
            message["reasoning_content"] = delta.reasoning
        if delta.calls:
            message["tool_calls"] = tool_calls(delta.calls, self._prefix(delta), 0, indexed=False)
        message["refusal"] = None
        logprobs = chat_logprobs(delta.logprobs, self._text_of) if delta.logprobs else None
        return {"message": message, "logprobs": logprobs}

    def reasoning_tokens(self, answers: Sequence[Answer]) -> int | None:
        """Tokens up to the one that ends the reasoning section, counted on the ids, not on how they came."""
        if not self._thinks:
            return None
        return sum(self._reasoning(a) for a in answers)

    def _reasoning(self, answer: Answer) -> int:
        if answer.parser is None or not answer.parser.reasoned:
            return 0
        low, high = 0, len(answer.token_ids)
        while low < high:
            middle = (low + high) // 2
            if END_THINK in self._tokenizer.decode(answer.token_ids[:middle], skip_special_tokens=False):
                high = middle
            else:
                low = middle + 1
        return low
