"""How deltas and answers are written down: OpenAI's objects, whole and as chunks of server-sent events."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

from draftproof import __version__
from draftproof.engine.types import TokenLogprob
from draftproof.server.answers import Delta
from draftproof.server.parser import Call

DONE = "data: [DONE]\n\n"


def sse(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


class TokenTexts:
    """What a token's bytes are. ``table``: llguidance's, which knows the bytes of tokens that are no whole text."""

    def __init__(self, tokenizer: Any, table: Any) -> None:
        self._tokenizer, self._table = tokenizer, table

    def __call__(self, token: int) -> tuple[str, list[int]]:
        raw = bytes(self._table.decode_bytes([token])) if self._table is not None else b""
        if not raw:
            raw = str(self._tokenizer.decode([token])).encode()
        return raw.decode("utf-8", errors="replace"), list(raw)


class Envelope:
    """The fields that all objects of one response share."""

    def __init__(self, kind: str, model: str) -> None:
        self._kind = kind
        self.id = f"{'chatcmpl' if kind == 'chat.completion' else 'cmpl'}-{uuid.uuid4().hex}"
        self._rest = {"created": int(time.time()), "model": model, "system_fingerprint": f"draftproof-{__version__}"}

    def whole(self, choices: list[dict[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
        return {"id": self.id, "object": self._kind, **self._rest, "choices": choices, "usage": usage}

    def chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self._kind == "chat.completion" else self._kind
        return {"id": self.id, "object": kind, **self._rest, "choices": choices}


def tool_calls(calls: Sequence[Call], prefix: str, first: int, *, indexed: bool) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for number, call in enumerate(calls, start=first):
        entry: dict[str, Any] = {"index": number} if indexed else {}
        entry |= {
            "id": f"call_{prefix}_{number}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        made.append(entry)
    return made


def chat_logprobs(tokens: Sequence[TokenLogprob], text_of: TokenTexts) -> dict[str, Any]:
    def entry(token: int, logprob: float) -> dict[str, Any]:
        text, raw = text_of(token)
        return {"token": text, "logprob": _finite(logprob), "bytes": raw}

    return {
        "content": [
            entry(t.token_id, t.logprob) | {"top_logprobs": [entry(token, value) for token, value in t.top]}
            for t in tokens
        ],
        "refusal": None,
    }


def text_logprobs(tokens: Sequence[TokenLogprob], text_of: TokenTexts, offset: int) -> dict[str, Any]:
    """The older shape, of ``/v1/completions``. ``offset``: characters of the answer's tokens before these."""
    texts = [text_of(t.token_id)[0] for t in tokens]
    offsets = [offset + sum(map(len, texts[:i])) for i in range(len(texts))]
    return {
        "tokens": texts,
        "token_logprobs": [_finite(t.logprob) for t in tokens],
        "top_logprobs": [{text_of(token)[0]: _finite(value) for token, value in t.top} for t in tokens],
        "text_offset": offsets,
    }


def _finite(value: float) -> float:
    """JSON has no infinity."""
    return max(value, -9999.0)


def chat_delta(delta: Delta, prefix: str, *, role: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"role": "assistant"} if role else {}
    if delta.content or role:
        told["content"] = delta.content
    if delta.reasoning:
        told["reasoning_content"] = delta.reasoning
    if delta.calls:
        told["tool_calls"] = tool_calls(delta.calls, prefix, delta.first_call, indexed=True)
    return told
