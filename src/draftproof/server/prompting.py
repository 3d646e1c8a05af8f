"""From messages or text to token ids, by the target's own tokenizer and chat template.

Templates come with the target, never with a request, and transformers runs them in Jinja's sandbox. Work on texts is
done in one thread beside the event loop: long bodies must not keep streams waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from jinja2 import TemplateError

from draftproof.engine.engine import Engine
from draftproof.server.errors import ApiError
from draftproof.server.parser import CALL, THINK
from draftproof.server.schema_chat import ChatBody, Message
from draftproof.server.tools import with_tools, without_tools

_PROBE = "probe_5f1c"
T = TypeVar("T")


@dataclass(frozen=True)
class ChatPrompt:
    """``thinking``: it ends inside an open reasoning section."""

    token_ids: list[int]
    thinking: bool


class Prompts:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tokenizer = engine.tokenizer
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="texts")
        template = str(getattr(self._tokenizer, "chat_template", None) or "")
        self.has_template = bool(template)
        self.knows_tools = CALL in template and self._probe()
        self.thinks = THINK in template or THINK in self._tokenizer.get_vocab()

    def _probe(self) -> bool:
        """Does the template write down the tools it is given?"""
        tool = {"type": "function", "function": {"name": _PROBE, "description": "", "parameters": {"type": "object"}}}
        try:
            return _PROBE in self._render([{"role": "user", "content": "x"}], [tool], {})
        except TemplateError:
            return False

    async def work(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run in the thread for texts."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, function, *arguments)

    def close(self) -> None:
        self._worker.shutdown(wait=False, cancel_futures=True)

    def chat(self, body: ChatBody) -> ChatPrompt:
        """For the worker's thread."""
        tools = [] if body.tool_choice == "none" else [t.model_dump(exclude_none=True) for t in body.tools or ()]
        return self.messages(body.messages, tools, body.chat_template_kwargs or {})

    def messages(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = (), extra: dict[str, Any] | None = None
    ) -> ChatPrompt:
        if not self.has_template:
            raise ApiError(400, "the target's tokenizer has no chat template: use /v1/completions", param="messages")
        turns = with_tools(messages) if self.knows_tools else without_tools(messages, tools)
        try:
            text = self._render(turns, list(tools) if self.knows_tools else [], extra or {})
        except TemplateError as error:
            raise ApiError(
                400, f"the chat template refuses these messages: {_line(error)}", param="messages", code="template"
            ) from None
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise ApiError(
                400, f"the chat template cannot render these messages: {_line(error)}", param="messages"
            ) from None
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ChatPrompt(list(ids), self.thinks and text.rstrip().endswith(THINK))

    def _render(self, turns: list[dict[str, Any]], tools: list[dict[str, Any]], extra: dict[str, Any]) -> str:
        return str(
            self._tokenizer.apply_chat_template(
                turns, tools=tools or None, add_generation_prompt=True, tokenize=False, **extra
            )
        )

    def text(self, prompt: str, special: bool = True) -> list[int]:
        """For the worker's thread."""
        return list(self._tokenizer(prompt, add_special_tokens=special)["input_ids"])


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
