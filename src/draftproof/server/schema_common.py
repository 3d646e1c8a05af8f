"""What the bodies of both completion endpoints share. Types are strict and unknown parameters are errors."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

MAX_STOPS, MAX_STOP_CHARS = 16, 1000
MAX_DEPTH = 64
_TOKEN_ID = re.compile(r"[0-9]{1,9}", re.ASCII)

# Parameters of OpenAI's that mean nothing here. Clients that send every field with its default are not refused for
# it; any other value is.
_WITHOUT_MEANING: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": (),
    "functions": (),
    "metadata": (),
    "modalities": (["text"],),
    "prediction": (),
    "prompt_cache_key": (),
    "reasoning_effort": (),
    "safety_identifier": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": (),
    "verbosity": (),
    "web_search_options": (),
}


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def plain_json(value: Any) -> Any:
    """JSON that may be handed on: not too deep, and text that can be encoded."""
    if _depth(value) > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ValueError("holds half of a surrogate pair, which is no text") from None
    return value


def _depth(value: Any) -> int:
    deepest, level = 0, [value]
    while level:
        deepest += 1
        if deepest > MAX_DEPTH:
            break
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
        ]
    return deepest


def _printable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half of a surrogate pair, which is no text") from None
    return text


Text = Annotated[str, AfterValidator(_printable)]
JsonObject = Annotated[dict[str, Any], AfterValidator(plain_json)]
StopText = Annotated[Text, Field(min_length=1, max_length=MAX_STOP_CHARS)]
Bias = Annotated[float, Field(ge=-100, le=100)]


class StreamOptions(Strict):
    include_usage: bool = False


class JsonSchemaFormat(Strict):
    name: Text = "answer"
    description: Text | None = None
    schema_: Annotated[JsonObject, Field(alias="schema")]
    strict: bool | None = None


class ResponseFormat(Strict):
    """``pattern`` with type ``regex``; ``grammar`` (Lark or GBNF) with type ``grammar``."""

    type: Literal["text", "json_object", "json_schema", "regex", "grammar"]
    json_schema: JsonSchemaFormat | None = None
    pattern: Annotated[Text, Field(max_length=20_000)] | None = None
    grammar: Annotated[Text, Field(max_length=100_000)] | None = None

    @model_validator(mode="after")
    def _fits(self) -> ResponseFormat:
        wanted = {"json_schema": "json_schema", "regex": "pattern", "grammar": "grammar"}.get(self.type)
        for name in ("json_schema", "pattern", "grammar"):
            present = getattr(self, name) is not None
            if present != (name == wanted):
                raise ValueError(f"type {self.type!r} {'has no' if present else 'needs'} {name!r}")
        return self


class SamplingBody(Strict):
    """Parameters of both endpoints. ``None`` everywhere means: as if not given."""

    model: Text | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=10)] | None = None  # smaller ones make logits overflow
    logit_bias: Annotated[dict[str, Bias], Field(max_length=1024)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=128)] | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    max_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    response_format: ResponseFormat | None = None
    user: Annotated[Text | None, Field(description="A label; nothing depends on it.")] = None
    cache_salt: Annotated[
        Annotated[Text, Field(min_length=1, max_length=256)] | None,
        Field(description="Prefixes are shared only among requests with the same salt."),
    ] = None
    timeout_s: Annotated[
        Annotated[float, Field(gt=0, le=86_400)] | None,
        Field(description="Deadline of this request; never later than the server's own."),
    ] = None
    speculation: Annotated[
        bool | None, Field(description="Report rounds: what was drafted, what was accepted, which text came of it.")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _drop_what_means_nothing(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        return {
            name: value
            for name, value in body.items()
            if name in cls.model_fields
            or name not in _WITHOUT_MEANING
            or not (value is None or value in _WITHOUT_MEANING[name])
        }

    @model_validator(mode="after")
    def _consistent(self) -> SamplingBody:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options has no effect without stream")
        for token in self.logit_bias or {}:
            if not _TOKEN_ID.fullmatch(token):
                raise ValueError(f"logit_bias: {token[:40]!r} is not a token id")
        return self

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())
