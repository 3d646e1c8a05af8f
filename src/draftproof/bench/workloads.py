"""Prompts to measure on: built-in by name, or JSON Lines in the shapes that data sets come in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from draftproof.errors import UsageError

BUILT_IN = "demo"
FIELDS = ("messages", "turns", "prompt", "question", "text")
_ROLES = ("system", "user", "assistant")

Message = dict[str, str]


@dataclass(frozen=True)
class WorkloadPrompt:
    """One conversation up to the answer that is to be measured; its last message is the user's."""

    name: str
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Workload:
    """``sha256`` is that of the whole file, so that a result can say what it used; ``seed`` None: all."""

    name: str
    prompts: tuple[WorkloadPrompt, ...]
    sha256: str
    available: int
    seed: int | None = None

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "prompts": len(self.prompts),
            "of": self.available,
            "seed": self.seed,
            "sha256": self.sha256,
        }


class Templating(Protocol):
    """What encoding a prompt needs of an engine."""

    @property
    def tokenizer(self) -> Any: ...

    def encode(self, prompt: str) -> list[int]: ...

    def apply_chat_template(self, messages: Sequence[Message]) -> list[int]: ...


def load_workload(source: str | Path, *, limit: int | None = None, seed: int = 0) -> Workload:
    """The built-in prompts (``demo``) or those of a JSON Lines file; at most ``limit`` of them.

    Each line is an object with one of ``messages`` (a conversation that ends with the user), ``turns`` (the
    first is taken), ``prompt``, ``question`` or ``text``; ``name``, ``id``, ``task_id`` or ``question_id``
    names it.
    ``seed`` picks the subset: the same on every machine, and a larger limit only adds to it.
    """
    text, name = _read(source)
    prompts = tuple(_parse(text, str(source)))
    if not prompts:
        raise UsageError(f"{source}: no prompts in this file")
    loaded = Workload(name, prompts, hashlib.sha256(text.encode()).hexdigest(), len(prompts))
    if limit is not None and limit < 1:
        raise UsageError(f"limit {limit} is out of range: it must be at least 1")
    if limit is None or limit >= len(prompts):
        return loaded
    return replace(loaded, prompts=subset(prompts, limit, seed), seed=seed)


def subset(prompts: Sequence[WorkloadPrompt], limit: int, seed: int) -> tuple[WorkloadPrompt, ...]:
    """``limit`` prompts in their own order. Ranked by hash, which no library version can change."""

    def rank(index: int) -> bytes:
        return hashlib.sha256(f"{seed}:{index}".encode()).digest()

    chosen = sorted(sorted(range(len(prompts)), key=rank)[:limit])
    return tuple(prompts[index] for index in chosen)


def encode(engine: Templating, prompt: WorkloadPrompt) -> list[int]:
    """Token ids of a prompt: through the chat template if the target has one, else its text as it is."""
    if getattr(engine.tokenizer, "chat_template", None):
        return list(engine.apply_chat_template(list(prompt.messages)))
    if len(prompt.messages) > 1:
        raise UsageError(f"prompt {prompt.name!r} is a conversation, but the target has no chat template")
    return engine.encode(prompt.messages[0]["content"])


def _read(source: str | Path) -> tuple[str, str]:
    if source == BUILT_IN:
        own = resources.files("draftproof.cli") / "data" / "demo_prompts.jsonl"
        return own.read_text(encoding="utf-8"), BUILT_IN
    path = Path(source)
    try:
        return path.read_text(encoding="utf-8"), path.stem
    except FileNotFoundError:
        raise UsageError(
            f"prompts {str(source)!r}: no such file, and the only built-in workload is {BUILT_IN!r}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{source}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None


def _parse(text: str, where: str) -> Iterator[WorkloadPrompt]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UsageError(f"{where}:{number}: not JSON: {error.msg}") from None
        if not isinstance(row, dict):
            raise UsageError(f"{where}:{number}: every line must be a JSON object, this is a {type(row).__name__}")
        try:
            yield WorkloadPrompt(_name(row, number), tuple(_messages(row)))
        except ValueError as error:
            raise UsageError(f"{where}:{number}: {error}") from None


def _name(row: dict[str, Any], number: int) -> str:
    for field in ("name", "id", "task_id", "question_id"):
        if row.get(field) is not None:
            return str(row[field])
    return f"line {number}"


def _messages(row: dict[str, Any]) -> list[Message]:
    field = next((name for name in FIELDS if name in row), None)
    if field is None:
        raise ValueError(f"none of the fields {', '.join(FIELDS)} is there")
    value = row[field]
    if field == "messages":
        return _conversation(value)
    if field == "turns":
        if not isinstance(value, list) or not value:
            raise ValueError('"turns" must be a list of texts')
        value = value[0]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f'"{field}" holds no text')
    return [{"role": "user", "content": value}]


def _conversation(value: Any) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise ValueError('"messages" must be a list of objects with "role" and "content"')
    for message in value:
        known = isinstance(message, dict) and message.get("role") in _ROLES
        if not known or not isinstance(message.get("content"), str):
            raise ValueError(f'every message needs a "role" of {", ".join(_ROLES)} and a text "content"')
    if value[-1]["role"] != "user":
        raise ValueError("the last message must be the user's, since the answer to it is measured")
    return [{"role": m["role"], "content": m["content"]} for m in value]
