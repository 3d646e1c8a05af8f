"""Reading turns and writing answers at the terminal."""

from __future__ import annotations

import sys
from typing import Any

from rich.text import Text

from draftproof.cli.summary import committed_text
from draftproof.cli.terminal import out_console, printable, write_text
from draftproof.engine.origins import OriginTracker
from draftproof.engine.types import Event

HELP = '''/reset   forget everything said so far
/undo    take back the last turn
/stats   speed and acceptance so far
/quit    end (also Ctrl-D)
A line ending in \\ goes on in the next one;
""" alone on a line opens and closes a longer text.'''

FENCE = '"""'
_DRAFTED = "green"


def read_turn() -> str:
    """One message; several lines with a trailing backslash or between lines of three quotes."""
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    if interactive:
        import readline  # noqa: F401  (line editing and history for input())
    lines = [_line("> ", interactive)]
    if lines[0].strip() == FENCE:
        lines.clear()
        while (line := _line("… ", interactive)).strip() != FENCE:
            lines.append(line)
        return "\n".join(lines)
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(_line("… ", interactive))
    return "\n".join(lines).strip()


def _line(prompt: str, interactive: bool) -> str:
    if interactive:
        return input(prompt)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def farewell() -> None:
    """Ctrl-D leaves the cursor behind the prompt; the shell's should start on a line of its own."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        print()


class AnswerWriter:
    """Writes an answer as its text becomes final, tinted by origin on demand."""

    def __init__(self, tokenizer: Any, *, tint: bool) -> None:
        self._console = out_console() if tint else None
        self._origins = OriginTracker(tokenizer)
        self._last = ""

    def write(self, event: Event) -> None:
        text = committed_text(event)
        if text:
            self._last = text
        if self._console is None:
            if text:
                write_text(text)
            return
        for piece, drafted in self._origins.pieces(event):
            self._console.print(Text(printable(piece), style=_DRAFTED if drafted else ""), end="", soft_wrap=True)

    def stopped(self) -> None:
        """Marks an answer that Ctrl-C cut off."""
        write_text(" [stopped]")
        self._last = "."

    def end(self) -> None:
        if self._last and not self._last.endswith("\n"):
            write_text("\n")
