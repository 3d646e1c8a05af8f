"""Prompts from the command line, from stdin and from JSON Lines files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from draftproof.cli.protocol import Prompt, TextEngine
from draftproof.errors import UsageError


@dataclass(frozen=True)
class NamedPrompt:
    name: str
    text: str


def read_prompt(argument: str) -> str:
    """The argument itself, or stdin for ``-``."""
    if argument == "-":
        try:
            argument = sys.stdin.read()
        except UnicodeDecodeError as error:
            raise UsageError(f"stdin is not UTF-8 text: {error.reason} at byte {error.start}") from None
    if not argument.strip():
        raise UsageError("the prompt is empty")
    return argument


def has_chat_template(engine: TextEngine) -> bool:
    return bool(getattr(engine.tokenizer, "chat_template", None))


def as_request(engine: TextEngine, text: str, *, chat: bool | None, system: str | None = None) -> Prompt:
    """The prompt as the target wants it: through its chat template if it has one, unless told otherwise."""
    template = has_chat_template(engine)
    if chat and not template:
        raise UsageError("--chat: this target's tokenizer has no chat template; use --raw")
    if chat is False or not template:
        if system is not None:
            raise UsageError("--system has no effect on a raw prompt")
        return text
    messages = [{"role": "system", "content": system}] if system is not None else []
    return engine.apply_chat_template([*messages, {"role": "user", "content": text}])


def demo_prompts(path: Path | None) -> list[NamedPrompt]:
    """The demo's own prompts, or those of a file with one JSON object per line ("prompt", "name")."""
    if path is None:
        own = resources.files("draftproof.cli") / "data" / "demo_prompts.jsonl"
        return list(_parse(own.read_text(encoding="utf-8"), "demo_prompts.jsonl"))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UsageError(f"--prompts {path}: {reason}") from None
    prompts = list(_parse(text, str(path)))
    if not prompts:
        raise UsageError(f"--prompts {path}: no prompts in this file")
    return prompts


def _parse(text: str, where: str) -> Iterator[NamedPrompt]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UsageError(f"{where}:{number}: not JSON: {error.msg}") from None
        prompt = row.get("prompt") if isinstance(row, dict) else None
        if not isinstance(prompt, str) or not prompt.strip():
            raise UsageError(f'{where}:{number}: every line must be an object with a text "prompt"')
        yield NamedPrompt(str(row.get("name", f"prompt {number}")), prompt)
