"""``draftproof convert``: a drafter's folder in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from draftproof.cli.terminal import note


def convert(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="The drafter's folder, in any format that is read.")],
    destination: Annotated[Path, typer.Argument(metavar="DST", help="A new folder.")],
    form: Annotated[Literal["zlab", "speculators"], typer.Option("--format", help="What to write.")],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors.")] = False,
) -> None:
    """Write a drafter in z-lab's or speculators' format, with every setting where their readers look for it."""
    from draftproof.train.export import convert as write

    for remark in write(source, destination, form):
        note(f"note: {remark}", quiet=quiet)
    print(destination)
