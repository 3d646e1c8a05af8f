"""What the command line needs of an engine, so that its code and tests need neither torch nor weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from draftproof.engine.types import Event, SamplingParams

Prompt = str | list[int]
Message = dict[str, str]


class TextEngine(Protocol):
    @property
    def tokenizer(self) -> Any: ...

    @property
    def max_model_len(self) -> int: ...

    @property
    def eos_token_ids(self) -> Sequence[int] | frozenset[int] | set[int]: ...

    def stream(self, prompt: Prompt, params: SamplingParams) -> Iterator[Event]: ...

    def apply_chat_template(self, messages: list[Message]) -> Prompt: ...

    def describe(self) -> dict[str, Any]: ...
