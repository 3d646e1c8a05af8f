"""Where output goes: answers and cards to stdout, everything else to stderr, no escape codes into files."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console, RenderableType

_CONTROL = {code: None for code in [*range(32), 127, *range(128, 160)] if chr(code) not in "\n\t"}


def out_console(**options: Any) -> Console:
    """For what the user asked for. Rich itself heeds NO_COLOR and leaves files free of escape codes."""
    return Console(highlight=False, markup=False, emoji=False, **options)


def err_console() -> Console:
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def note(text: str, *, quiet: bool = False) -> None:
    """A line about what is going on; never part of an answer."""
    if not quiet and text:
        print(text, file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Text as a terminal may show it: a model must not be able to send control sequences."""
    return text.translate(_CONTROL)


def write_text(text: str) -> None:
    """A piece of streamed answer, at once."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def tolerate_encodings() -> None:
    """A terminal that cannot show a sign shows '?' instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def print_trimmed(console: Console, *renderables: RenderableType) -> None:
    """Rich pads table rows with blanks to their full width; files and diffs are better without."""
    with console.capture() as captured:
        for renderable in renderables:
            console.print(renderable)
    lines = captured.get().splitlines()
    console.file.write("\n".join(line.rstrip() for line in lines) + "\n")
    console.file.flush()


def rounded(value: Any, digits: int = 6) -> Any:
    """Plain data with its floats cut to ``digits`` significant digits, for JSON that people read too."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded(entry, digits) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(entry, digits) for entry in value]
    return value
