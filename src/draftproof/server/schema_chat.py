"""The body of ``/v1/chat/completions``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from draftproof.server.schema_common import JsonObject, SamplingBody, Strict, Text

FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
TemplateValue = bool | int | float | Text
# Names that apply_chat_template or the template itself is given by the server.
RESERVED = {
    "messages", "conversation", "tools", "documents", "chat_template", "add_generation_prompt",
    "continue_final_message", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict",
    "return_assistant_tokens_mask", "tokenizer_kwargs", "self",
}  # fmt: skip


class TextPart(Strict):
    type: Literal["text"]
    text: Text


class FunctionCall(Strict):
    name: FunctionName
    arguments: Text


class ToolCall(Strict):
    id: Text
    type: Literal["function"] = "function"
    function: FunctionCall
    index: int | None = None


class Message(Strict):
    """One turn. Fields that only OpenAI's own answers have are taken back as null, as clients send them."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | list[TextPart] | None = None
    name: Text | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=128)] | None = None
    tool_call_id: Text | None = None
    reasoning_content: Text | None = None
    refusal: None = None
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    audio: None = None
    function_call: None = None

    @model_validator(mode="after")
    def _fits(self) -> Message:
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            raise ValueError(f"a message of role {self.role!r} needs content")
        if self.tool_calls is not None and self.role != "assistant":
            raise ValueError(f"a message of role {self.role!r} has no tool_calls")
        if self.tool_call_id is not None and self.role != "tool":
            raise ValueError(f"a message of role {self.role!r} has no tool_call_id")
        return self

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class FunctionDefinition(Strict):
    name: FunctionName
    description: Text | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class Tool(Strict):
    type: Literal["function"]
    function: FunctionDefinition


class NamedFunction(Strict):
    name: FunctionName


class NamedTool(Strict):
    type: Literal["function"]
    function: NamedFunction


class ChatBody(SamplingBody):
    messages: Annotated[list[Message], Field(min_length=1, max_length=10_000)]
    max_completion_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Annotated[list[Tool], Field(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: Annotated[dict[str, TemplateValue], Field(max_length=32)] | None = None

    @model_validator(mode="after")
    def _chat(self) -> ChatBody:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise ValueError("give max_completion_tokens or max_tokens, not both")
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs has no effect without logprobs")
        names = [tool.function.name for tool in self.tools or ()]
        if len(set(names)) < len(names):
            raise ValueError("tools: two functions have the same name")
        if self.tool_choice not in (None, "none") and not names:
            raise ValueError("tool_choice has no effect without tools")
        if isinstance(self.tool_choice, NamedTool) and self.tool_choice.function.name not in names:
            raise ValueError(f"tool_choice: no tool is named {self.tool_choice.function.name!r}")
        wrong = sorted(RESERVED & set(self.chat_template_kwargs or ()))
        if wrong:
            raise ValueError(f"chat_template_kwargs: {wrong[0]!r} cannot be set by a request")
        return self

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """Log-probabilities wanted: None, or the number of alternatives per token."""
        return (self.top_logprobs or 0) if self.logprobs else None
