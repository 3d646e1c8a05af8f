"""The bodies of ``/v1/completions``, ``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from draftproof.server.schema_chat import Message
from draftproof.server.schema_common import SamplingBody, Strict, Text

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
TokenIds = Annotated[list[TokenId], Field(min_length=1)]
MAX_PROMPTS = 128


class CompletionBody(SamplingBody):
    prompt: (
        Text
        | TokenIds
        | Annotated[list[Text], Field(min_length=1, max_length=MAX_PROMPTS)]
        | Annotated[list[TokenIds], Field(min_length=1, max_length=MAX_PROMPTS)]
    )
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [list(self.prompt)]  # type: ignore[arg-type]
        return list(self.prompt)  # type: ignore[arg-type]


class TokenizeBody(Strict):
    model: Text | None = None
    prompt: Text | None = None
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    add_special_tokens: bool = True

    @model_validator(mode="after")
    def _one(self) -> TokenizeBody:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either prompt or messages")
        return self


class DetokenizeBody(Strict):
    model: Text | None = None
    tokens: Annotated[list[TokenId], Field(max_length=1_000_000)]
