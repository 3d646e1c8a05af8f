"""The demo's card for people and its JSON line for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from draftproof import __version__
from draftproof.bench.tables import label
from draftproof.cli.demo_run import PLAIN, WayReport
from draftproof.cli.generate_view import tau_text
from draftproof.cli.terminal import print_trimmed, rounded

SCHEMA = "draftproof.demo/1"
_BAR = "█"
_EMPTY = "·"


@dataclasses.dataclass(frozen=True)
class Card:
    """Everything the card and the JSON say."""

    facts: dict[str, Any]  # engine.describe() of a drafting way
    prompts: int
    max_tokens: int
    ways: Sequence[WayReport]
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def identical(self) -> bool:
        return all(way.identical for way in self.ways)

    @property
    def failed(self) -> bool:
        """In invariant mode any difference is a failure, outside of it one that rounding cannot explain."""
        if self.invariant:
            return not self.identical
        return any(not found.rounding for way in self.ways for found in way.differences)

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
        "provenance": card.provenance,
    }
    return json.dumps(rounded(document), ensure_ascii=False)


def print_card(card: Card, console: Console) -> None:
    print_trimmed(console, *card_parts(card, console.width))


def card_parts(card: Card, width: int) -> Iterator[RenderableType]:
    """The card from top to bottom."""
    yield from _header(card)
    yield _speed_table(card)
    drafting = [way for way in card.ways if way.numbers["acceptance"]]
    if drafting:
        yield "\nrounds that accepted at least k drafted tokens"
        yield _acceptance_table(card, drafting, width)
    yield "\ntime per round, in milliseconds"
    yield _time_table(card)
    yield from _verdict(card)


def drafter_remark(drafter: object) -> str | None:
    """What must be said about a drafter that was not trained for speed."""
    name = str(drafter or "")
    if name == "random" or name.startswith("random:"):
        return "random weights: this run shows that the text stays the same, not how fast drafting can be"
    if "standin" in Path(name).name.lower().replace("-", "").replace("_", ""):
        return "a stand-in, trained briefly for development: a properly trained drafter accepts far more"
    return None


def _header(card: Card) -> Iterator[RenderableType]:
    facts = card.facts
    plural = "" if card.prompts == 1 else "s"
    size = f" · {card.prompts} prompt{plural}, up to {card.max_tokens} tokens each, greedy\n"
    yield Text.assemble(("draftproof demo", "bold"), size)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("target", str(facts.get("target")))
    table.add_row("drafter", str(facts.get("drafter")))
    remark = drafter_remark(facts.get("drafter"))
    if remark:
        table.add_row("", Text(remark, style="yellow"))
    table.add_row("machine", machine_line(facts))
    yield table
    yield ""


def machine_line(facts: dict[str, Any]) -> str:
    parts = [str(facts[key]) for key in ("device", "dtype") if key in facts]
    if "threads" in facts:
        parts.append(f"{facts['threads']} threads")
    parts.append(f"native kernels {_state(facts.get('native'))}")
    parts.append(f"invariant mode {_state(facts.get('invariant'))}")
    return " · ".join(parts)


def _label(card: Card, way: WayReport) -> str:
    return "n-gram chain" if card.facts.get("drafter") == "ngram" and way.name == "chain" else label(way.name)


def _state(value: object) -> str:
    if isinstance(value, str):
        return value
    return "on" if value else "off"


def _speed_table(card: Card) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("", "tok/s", "speed-up", "τ (95 %)", "same"):
        table.add_column(title, justify="left" if title in ("", "same") else "right", no_wrap=True)
    for way in card.ways:
        found = way.numbers["acceptance"]
        tau = tau_text(found) if found else "1.00"
        same = "–" if way.name == PLAIN else _yes_no(way.identical)
        table.add_row(
            _label(card, way),
            _speed(way.numbers["tokens_per_s"]),
            f"{way.speedup:.2f}×",
            tau,
            same,
        )
    return table


def _speed(tokens_per_s: float) -> str:
    return f"{tokens_per_s:.1f}" if tokens_per_s < 1000 else f"{tokens_per_s:.0f}"


def _yes_no(good: bool) -> Text:
    return Text("yes", style="green") if good else Text("no", style="bold red")


def _acceptance_table(card: Card, ways: Sequence[WayReport], width: int) -> Table:
    """Bars side by side; a narrow terminal gets short bars, a wide one no longer than 24."""
    curves = [way.numbers["acceptance"]["per_position"] for way in ways]
    length = max(6, min(24, (width - 4) // len(ways) - 8))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("k", justify="right", no_wrap=True)
    for way in ways:
        table.add_column(_label(card, way), no_wrap=True)
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
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("", "draft", "verify", "host", "rounds"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    for way in card.ways:
        parts = way.numbers["ms_per_round"]
        times = (f"{parts[part]:.1f}" for part in ("draft", "verify", "host"))
        table.add_row(_label(card, way), *times, str(way.numbers["rounds"]))
    return table


def _verdict(card: Card) -> Iterator[RenderableType]:
    yield ""
    yield Text.assemble("text identical: ", _yes_no(card.identical))
    for way in card.ways:
        for found in way.differences:
            yield (
                f"  {_label(card, way)}, prompt {found.prompt!r}: first difference at token"
                f" {found.position + 1}: {found.explanation}"
            )
    if not card.identical and not card.failed:
        yield "  invariant mode is off, and rounding explains every difference"
    yield ""
