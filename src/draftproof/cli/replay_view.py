"""How a replay looks in a terminal: the verdict, the walk step by step, what explains the drafts, what to do."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from draftproof.cli.terminal import out_console, print_trimmed, printable

_STYLE = {
    "faulty": "bold red",
    "different": "bold red",
    "healthy": "bold green",
    "same": "bold green",
    "inconclusive": "bold cyan",
    "ok": "green",
    "wrong": "red",
    "unknown": "cyan",
}
_MARK = {"ok": "ok", "wrong": "WRONG", "unknown": "?"}


def print_replay(document: dict[str, Any]) -> None:
    verdict = document["verdict"]
    certainty = document.get("certainty")
    head = Text.assemble((verdict.upper(), _STYLE[verdict]), f"  {certainty}" if certainty else "")
    parts: list[RenderableType] = [head, _line(_engine(document), 0)]
    if document.get("faults"):
        parts.append(_line(f"{', '.join(document['faults'])}", 0, "bold"))
    parts.append(_line(document["says"], 0))
    if document.get("stages"):
        parts += [_heading("From weights to drafts"), _steps(document["stages"], document.get("first_wrong"))]
    if document.get("against"):
        parts += [_heading("Against the other capture"), _steps(document["against"], None)]
    parts += _explains(document)
    for finding in document.get("findings", ()):
        parts += [_heading(finding["code"]), _line(f"→ {finding['remedy']}")]
        sources = document.get("sources", {}).get(finding["code"])
        if sources:
            parts.append(_line(f"seen in {', '.join(sources)}"))
    if document.get("notes"):
        parts += [_heading("Notes"), *(_line(note) for note in document["notes"])]
    print_trimmed(out_console(), Group(*parts))


def _engine(document: dict[str, Any]) -> str:
    engine = document["engine"]
    what = [f"{engine.get('name')} {engine.get('version') or ''}".strip()]
    what += [f"{engine['runner']} runner"] if engine.get("runner") else []
    what += [str(engine[key]) for key in ("dtype", "attention_backend") if engine.get(key)]
    if "drafted_tokens" in document:
        what.append(f"{document['requests']} requests, {document['drafted_tokens']} drafted tokens")
    return ", ".join(what)


def _steps(stages: list[dict[str, Any]], first: str | None) -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for stage in stages:
        says = printable(stage["says"]) + (" ← first" if stage["name"] == first else "")
        table.add_row(f"  {stage['name']}", Text(_MARK[stage["status"]], style=_STYLE[stage["status"]]), Text(says))
    return table


def _explains(document: dict[str, Any]) -> list[RenderableType]:
    search = document.get("search")
    if not search or not search["tried"]:
        return []
    parts: list[RenderableType] = [_heading(f"Which fault explains the drafts ({search['tried']} tried)")]
    healthy = search["healthy"]
    rows = [("none", healthy), *((" + ".join(c["faults"]), c) for c in search["restoring"])]
    for name, count in rows:
        same = count["equal"] + count["near_ties"]
        parts.append(_line(f"{same / count['tokens']:7.1%}  {name} ({same} of {count['tokens']})"))
    return parts


def _heading(text: str) -> RenderableType:
    return Padding(Text(text, style="bold"), (1, 0, 0, 0))


def _line(text: str, indent: int = 2, style: str = "") -> RenderableType:
    return Padding(Text(printable(text), style=style), (0, 0, 0, indent))
