"""The demo's card for people and its JSON line for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from draftproof import __version__
from draftproof.cli.demo_run import PLAIN, WayReport

SCHEMA = "draftproof.demo/1"
LABELS = {PLAIN: "target alone", "chain": "DFlash chain", "tree": "DDTree"}
_BAR = "█"
_EMPTY = "·"


@dataclasses.dataclass(frozen=True)
class Card:
    """Everything the card and the JSON say."""

    facts: dict[str, Any]  # engine.describe() of a drafting way
    prompts: int
    max_tokens: int
    ways: Sequence[WayReport]

    @property
    def identical(self) -> bool:
        return all(way.identical for way in self.ways)

    @property
    def invariant(self) -> bool:
        return bool(self.facts.get("invariant"))


def as_json(card: Card) -> str:
    """One line; raw counts beside every rate."""
    ways = {
        way.name: way.numbers
        | {"speedup": way.speedup, "identical": way.identical}
        | {"differences": [dataclasses.asdict(d) for d in way.differences]}
        for way in card.ways
    }
    document = {
        "schema_version": SCHEMA,
        "tool_version": __version__,
        "engine": card.facts,
        "stand_in": drafter_remark(card.facts.get("drafter")),
        "prompts": card.prompts,
        "max_tokens": card.max_tokens,
        "temperature": 0,
        "identical": card.identical,
        "ways": ways,
    }
    return json.dumps(document, ensure_ascii=False)


def print_card(card: Card, console: Console) -> None:
    _header(card, console)
    console.print(_speed_table(card))
    drafting = [way for way in card.ways if way.numbers["acceptance"]]
    if drafting:
        console.print("\nrounds that accepted at least k drafted tokens")
        console.print(_acceptance_table(drafting, console.width))
    console.print("\ntime per round, in milliseconds")
    console.print(_time_table(card))
    _verdict(card, console)


def drafter_remark(drafter: object) -> str | None:
    """What must be said about a drafter that was not trained for speed."""
    name = str(drafter or "")
    if name == "random" or name.startswith("random:"):
        return "random weights: this run shows that the text stays the same, not how fast drafting can be"
    if "standin" in Path(name).name.lower().replace("-", "").replace("_", ""):
        return "a stand-in, trained briefly for development: a properly trained drafter accepts far more"
    return None


def _header(card: Card, console: Console) -> None:
    facts = card.facts
    console.print(Text("draftproof demo", style="bold"), end="")
    console.print(f" · {card.prompts} prompts, up to {card.max_tokens} tokens each, greedy\n")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("target", str(facts.get("target")))
    table.add_row("drafter", str(facts.get("drafter")))
    remark = drafter_remark(facts.get("drafter"))
    if remark:
        table.add_row("", Text(remark, style="yellow"))
    table.add_row("machine", machine_line(facts))
    console.print(table)
    console.print()


def machine_line(facts: dict[str, Any]) -> str:
    parts = [str(facts[key]) for key in ("device", "dtype") if key in facts]
    if "threads" in facts:
        parts.append(f"{facts['threads']} threads")
    parts.append(f"native kernels {_state(facts.get('native'))}")
    parts.append(f"invariant mode {_state(facts.get('invariant'))}")
    return " · ".join(parts)


def _state(value: object) -> str:
    if isinstance(value, str):
        return value
    return "on" if value else "off"


def _speed_table(card: Card) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("", "tok/s", "speed-up", "τ (95 %)", "same text"):
        table.add_column(title, justify="left" if title in ("", "same text") else "right", no_wrap=True)
    for way in card.ways:
        found = way.numbers["acceptance"]
        tau = f"{found['tau']:.2f} ({_interval(found['tau_interval_95'])})" if found else "1.00"
        same = "–" if way.name == PLAIN else _yes_no(way.identical)
        table.add_row(
            LABELS.get(way.name, way.name),
            f"{way.numbers['tokens_per_s']:.1f}",
            f"{way.speedup:.2f}×",
            tau,
            same,
        )
    return table


def _interval(ends: Sequence[float]) -> str:
    return f"{ends[0]:.2f}–{ends[1]:.2f}"


def _yes_no(good: bool) -> Text:
    return Text("yes", style="green") if good else Text("no", style="bold red")


def _acceptance_table(ways: Sequence[WayReport], width: int) -> Table:
    """Bars side by side; a narrow terminal gets short bars, a wide one no longer than 24."""
    curves = [way.numbers["acceptance"]["per_position"] for way in ways]
    length = max(6, min(24, (width - 4) // len(ways) - 8))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("k", justify="right", no_wrap=True)
    for way in ways:
        table.add_column(LABELS.get(way.name, way.name), no_wrap=True)
    for index in range(max(len(curve) for curve in curves)):
        shares = [curve[index] if index < len(curve) else None for curve in curves]
        table.add_row(str(index + 1), *(bar(share, length) for share in shares))
    return table


def bar(share: float | None, length: int) -> str:
    if share is None:
        return ""
    full = round(share * length)
    return _BAR * full + _EMPTY * (length - full) + f" {share:.2f}"


def _time_table(card: Card) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("", "draft", "verify", "host", "rounds"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    for way in card.ways:
        parts = way.numbers["ms_per_round"]
        times = (f"{parts[part]:.1f}" for part in ("draft", "verify", "host"))
        table.add_row(LABELS.get(way.name, way.name), *times, str(way.numbers["rounds"]))
    return table


def _verdict(card: Card, console: Console) -> None:
    console.print()
    console.print("text identical: ", end="")
    console.print(_yes_no(card.identical))
    for way in card.ways:
        for found in way.differences:
            console.print(
                f"  {LABELS.get(way.name, way.name)}, prompt {found.prompt!r}:"
                f" first difference at token {found.position + 1}: {found.explanation}"
            )
    if not card.identical and not card.invariant:
        console.print("  invariant mode is off: rounding may decide between two nearly equal tokens")
    console.print()
