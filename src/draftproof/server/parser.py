"""From an answer's text to content, reasoning and tool calls, piece by piece as the text arrives.

A round may yield half a marker or a whole call with text behind it. All decisions are taken on the text alone, never
on how it was grouped, so the pieces add up to the same whatever the drafter did. Nothing is lost: what looks like a
call and is none stays content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

THINK, END_THINK = "<think>", "</think>"
CALL, END_CALL = "<tool_call>", "</tool_call>"


@dataclass(frozen=True)
class Call:
    name: str
    arguments: str  # JSON


@dataclass
class Pieces:
    """What became certain by one push."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


class OutputParser:
    """``thinks``: the model may begin with a ``<think>`` section; ``thinking``: the prompt has opened it already.
    ``tools``: names of the functions that may be called."""

    def __init__(self, *, thinks: bool = False, thinking: bool = False, tools: Collection[str] = ()) -> None:
        self._tools = frozenset(tools)
        self._thinks = thinks
        self._state: Literal["start", "reasoning", "content", "call"] = "reasoning" if thinking else "start"
        self._held = ""  # text not decided yet
        self._blank = ""  # white space that is content only if more content follows
        self._trim = thinking  # drop white space at the beginning of a section
        self._called = False
        self.reasoned = thinking  # was there a reasoning section?
        self._out = Pieces()

    def push(self, text: str) -> Pieces:
        """Take the next text of the answer."""
        self._held += text
        while self._advance():
            pass
        return self._taken()

    def finish(self) -> Pieces:
        """The answer has ended: what was held back is decided now."""
        if self._state == "call":
            self._close_call(self._held, ended=False)
        elif self._state == "reasoning":
            self._reason(self._held)
            self._blank = ""
        else:
            self._state = "content"
            self._say(self._held)
        if not self._called:
            self._out.content += self._blank
        self._held = self._blank = ""
        return self._taken()

    def _taken(self) -> Pieces:
        out, self._out = self._out, Pieces()
        return out

    def _advance(self) -> bool:
        """Consume up to the next marker; False if nothing more can be decided."""
        match self._state:
            case "start":
                return self._start()
            case "reasoning":
                return self._until(END_THINK, self._reason, self._end_reasoning)
            case "call":
                at = self._held.find(END_CALL)
                if at < 0:
                    return False
                body, self._held = self._held[:at], self._held[at + len(END_CALL) :]
                self._close_call(body, ended=True)
                return True
            case _ if self._tools:
                return self._until(CALL, self._say, self._open_call)
            case _:
                self._say(self._held)
                self._held = ""
                return False

    def _start(self) -> bool:
        """Only the very beginning can open a reasoning section."""
        stripped = self._held.lstrip()
        if self._thinks and stripped.startswith(THINK):
            self._held = stripped[len(THINK) :]
            self._state, self._trim, self.reasoned = "reasoning", True, True
            return True
        if self._thinks and THINK.startswith(stripped):
            return False
        self._state = "content"
        return bool(self._held)

    def _until(self, marker: str, emit: Callable[[str], None], found: Callable[[], None]) -> bool:
        at = self._held.find(marker)
        if at >= 0:
            before, self._held = self._held[:at], self._held[at + len(marker) :]
            emit(before)
            found()
            return True
        keep = next((n for n in range(len(marker) - 1, 0, -1) if self._held.endswith(marker[:n])), 0)
        ready, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        emit(ready)
        return False

    # -- sections -----------------------------------------------------------------------------------------

    def _reason(self, text: str) -> None:
        self._out.reasoning += self._settled(self._trimmed(text))

    def _end_reasoning(self) -> None:
        self._state, self._trim, self._blank = "content", True, ""

    def _say(self, text: str) -> None:
        text = self._trimmed(text)
        self._out.content += self._settled(text) if self._tools else text

    def _trimmed(self, text: str) -> str:
        if self._trim:
            text = text.lstrip()
            self._trim = not text
        return text

    def _settled(self, text: str) -> str:
        """White space at the end waits: it may turn out to stand at the end of a section or before a call."""
        text = self._blank + text
        kept = text.rstrip()
        self._blank = text[len(kept) :]
        return kept

    def _open_call(self) -> None:
        self._state, self._blank = "call", ""

    def _close_call(self, body: str, *, ended: bool) -> None:
        call = parse_call(body, self._tools)
        self._state = "content"
        if call is None:
            self._say(CALL + body + (END_CALL if ended else ""))
            return
        self._out.calls += (call,)
        self._called = self._trim = True


def parse_call(body: str, tools: Collection[str]) -> Call | None:
    """A call of one of ``tools`` in JSON, or None."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or not isinstance(told.get("name"), str) or told["name"] not in tools:
        return None
    arguments = told.get("arguments", told.get("parameters", {}))
    if isinstance(arguments, str):
        return Call(told["name"], arguments)
    if not isinstance(arguments, dict):
        return None
    return Call(told["name"], json.dumps(arguments, ensure_ascii=False))
