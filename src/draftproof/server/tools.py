"""Tools: how a model without a template for them is told of them, and the grammar of the calls it must make."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import llguidance

from draftproof.server.grammar import lark_json
from draftproof.server.parser import CALL, END_CALL
from draftproof.server.schema_chat import ChatBody, Message, NamedTool, Tool


def instructions(tools: Sequence[dict[str, Any]]) -> str:
    """For the system message, where the chat template knows no tools."""
    listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return (
        f"You can call these functions, each given with a JSON schema of its parameters:\n{listed}\n"
        f"To call one, write:\n{CALL}\n" + '{"name": "<function>", "arguments": {<arguments>}}' + f"\n{END_CALL}"
    )


def without_tools(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages in words that any chat template knows: calls and their results become text."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            turns.append({"role": "user", "content": f"<tool_response>\n{message.text}\n</tool_response>"})
            continue
        calls = [
            f'{CALL}\n{{"name": {json.dumps(c.function.name)}, "arguments": {c.function.arguments}}}\n{END_CALL}'
            for c in message.tool_calls or ()
        ]
        content = "\n".join(part for part in (message.text, *calls) if part)
        turns.append({"role": "system" if message.role == "developer" else message.role, "content": content})
    if tools:
        told = instructions(tools)
        if turns and turns[0]["role"] == "system":
            turns[0]["content"] = f"{turns[0]['content']}\n\n{told}".strip()
        else:
            turns.insert(0, {"role": "system", "content": told})
    return turns


def with_tools(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages for a template that knows tools; it wants arguments as objects, not as text."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        turn: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role}
        turn["content"] = message.text
        for name in ("name", "tool_call_id", "reasoning_content"):
            if getattr(message, name) is not None:
                turn[name] = getattr(message, name)
        if message.tool_calls:
            turn["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.function.name, "arguments": _object(c)}}
                for c in message.tool_calls
            ]
        turns.append(turn)
    return turns


def _object(call: Any) -> Any:
    try:
        return json.loads(call.function.arguments)
    except (ValueError, RecursionError):
        return call.function.arguments


def call_grammar(body: ChatBody) -> str | None:
    """What must be kept to: a call of the tool or tools chosen; any text with right calls in it where a tool is
    strict; None where nothing needs to be."""
    tools = list(body.tools or ())
    if not tools or body.tool_choice == "none":
        return None
    if isinstance(body.tool_choice, NamedTool):
        name = body.tool_choice.function.name
        return _calls_only([t for t in tools if t.function.name == name], more=False)
    if body.tool_choice == "required":
        return _calls_only(tools, more=body.parallel_tool_calls is not False)
    if any(tool.function.strict for tool in tools):
        tag = llguidance.StructTag(
            trigger=CALL, begin=CALL + "\n", grammar=f"start: {lark_json(_schema(tools))}", end="\n" + END_CALL
        )
        grammar: str = llguidance.StructTag.to_grammar([tag], assume_special=False)
        return llguidance.LLMatcher.grammar_from_lark(grammar)
    return None


def _calls_only(tools: Sequence[Tool], *, more: bool) -> str:
    rest = ' ("\\n" call)*' if more else ""
    return llguidance.LLMatcher.grammar_from_lark(
        f"start: call{rest}\n"
        f"call: {json.dumps(CALL + chr(10))} body {json.dumps(chr(10) + END_CALL)}\n"
        f"body: {lark_json(_schema(tools))}\n"
    )


def _schema(tools: Sequence[Tool]) -> dict[str, Any]:
    """One call; parameters' own definitions move to the top, where their references look for them."""
    calls: list[dict[str, Any]] = []
    definitions: dict[str, Any] = {}
    for tool in tools:
        parameters = dict(tool.function.parameters or {"type": "object"})
        for key in ("$defs", "definitions"):
            if isinstance(parameters.get(key), dict):
                definitions.setdefault(key, {}).update(parameters.pop(key))
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": tool.function.name}, "arguments": parameters},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    return {"anyOf": calls, **definitions} if len(calls) > 1 else {**calls[0], **definitions}
