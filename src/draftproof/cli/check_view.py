"""The card of ``draftproof check`` in the terminal: from 50 columns on, and plain text in files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from draftproof.cli.terminal import print_trimmed, printable
from draftproof.proof.checking import Checked
from draftproof.proof.engines.matrix import WORDS, Cell, Row, State
from draftproof.proof.findings import Finding, Page
from draftproof.proof.fit import SIGNS

_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_STATES: dict[State, str] = {
    "honoured": "green",
    "minor": "green",
    "different": "yellow",
    "refused": "red",
    "unknown": "dim",
}
_FIT = {"fits": "green", "differs": "bold red", "note": "yellow", "unknown": "dim"}


def show(console: Console, found: Checked, *, candidates: bool) -> None:
    print_trimmed(console, Text(printable(found.card.title), style="bold"), _card(found))
    if found.fit:
        print_trimmed(
            console, Text(f"\nfit to {printable(found.case.target.name or 'the target')}", style="bold"), _fit(found)
        )
    if found.matrix:
        _matrix(console, found.matrix, found.judged.codes)
    _findings(console, found, candidates)
    if found.corrected is not None:
        # Not through a table: this is for copying, so no line of it is wrapped.
        print_trimmed(console, Text("\nthe launch line, corrected", style="bold"))
        console.file.write(printable(found.corrected) + "\n")
    answer = " ".join(one for one in (_last_line(found), _where_it_runs(found.matrix)) if one)
    print_trimmed(console, Text(""), Text(printable(answer), style="bold"))


def _card(found: Checked) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in found.card.rows:
        table.add_row(label, printable(text))
    return table


def _fit(found: Checked) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("", "drafter", "target", ""):
        table.add_column(name, overflow="fold")
    for row in found.fit:
        verdict = Text(SIGNS[row.state], style=_FIT[row.state])
        if row.remark:
            verdict.append(f": {row.remark}", style="default")
        table.add_row(Text(row.what, style="dim"), printable(row.drafter), printable(row.target), verdict)
    return table


def _matrix(console: Console, rows: Iterable[Row], codes: frozenset[str]) -> None:
    """One table per engine; what differs is told in full once, unless a finding below tells it anyway."""
    by_engine: dict[str, list[Row]] = {}
    for row in rows:
        by_engine.setdefault(row.title, []).append(row)
    for title, listed in by_engine.items():
        print_trimmed(console, Text(f"\nhow {title} would run it", style="bold"), _releases(listed))
        told = codes if len(listed) == 1 else frozenset()
        for cell in _once(listed):
            if cell.code in told:
                continue
            line = Text(f"{cell.respect}: ", style=_STATES[cell.state])
            line.append(printable(cell.says), style="default")
            if cell.remedy:
                line.append(f" → {printable(cell.remedy)}", style="default")
            print_trimmed(console, Padding(line, (0, 0, 0, 2)))


def _releases(rows: Iterable[Row]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        respects = list(dict.fromkeys(c.respect if c.sure else f"{c.respect}?" for c in row.cells))
        what = ", ".join(respects) + (f" ({row.note})" if row.note else "")
        table.add_row(
            row.versions, Text(WORDS[row.state], style=_STATES[row.state]), Text(what.strip(), style="default")
        )
    return table


def _once(rows: Iterable[Row]) -> Iterator[Cell]:
    seen: set[str] = set()
    for row in rows:
        for cell in row.cells:
            if cell.fact not in seen:
                seen.add(cell.fact)
                yield cell


def _findings(console: Console, found: Checked, candidates: bool) -> None:
    listed = [f for f in found.judged.findings if f.counts or candidates]
    if listed:
        print_trimmed(console, Text("\nfindings", style="bold"))
    for finding in listed:
        print_trimmed(console, *_finding(finding))
    hidden = len(found.judged.findings) - len(listed)
    if hidden:
        plural = "candidate is" if hidden == 1 else "candidates are"
        print_trimmed(console, Text(f"{hidden} {plural} not shown; --candidates lists them", style="dim"))


def _finding(finding: Finding) -> Iterator[Text | Padding]:
    head = Text(f"{finding.severity:8}", style=_STYLES[finding.severity] if finding.counts else "dim")
    head.append(finding.code, style="bold")
    head.append("" if finding.level == "high" else f" ({finding.level} confidence)", style="dim")
    yield head
    yield Padding(Text(printable(finding.says)), (0, 0, 0, 2))
    for label, text in (("remedy", finding.remedy), ("probe", finding.probe)):
        if text:
            line = Text(f"{label:6}  ", style="dim")
            line.append(printable(text), style="default")
            yield Padding(line, (0, 0, 0, 2))
    for one in finding.evidence:
        line = Text("seen    ", style="dim")
        line.append(printable(f"{one.where}" if one.what in one.where else f"{one.what} — {one.where}"), style="dim")
        yield Padding(line, (0, 0, 0, 2))


def show_page(console: Console, page: Page) -> None:
    """What a code means, and what to do about it."""
    print_trimmed(console, Text(f"{page.code}  {page.severity}", style="bold"), Padding(page.meaning, (0, 0, 0, 2)))
    parts = [("derived from", page.derived), ("remedy", page.remedy), ("next probe", page.probe)]
    parts += [("sources", ", ".join(page.sources))] if page.sources else []
    for label, text in parts:
        line = Text(f"{label}  ", style="dim")
        line.append(text, style="default")
        print_trimmed(console, Padding(line, (0, 0, 0, 2)))


def _last_line(found: Checked) -> str:
    """The answer in one sentence."""
    if found.faults or found.risks:
        parts = [
            f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((found.faults, "fault"), (found.risks, "risk")) if n
        ]
        return f"{' and '.join(parts)} found."
    if found.cannot_tell:
        return f"Nothing found, but: {'; '.join(found.cannot_tell)}."
    looked = ["the files"]
    looked += ["the fit to the target"] if found.fit else []
    looked += [f"{found.case.engine.name} {found.case.engine.version}"] if found.case.engine.version else []
    looked += ["the launch line"] if found.case.engine.launch else []
    return f"Nothing found in {', '.join(looked)}."


def _where_it_runs(rows: Iterable[Row]) -> str:
    """The matrix in one sentence, where it is longer than one row: which releases do what the files mean."""
    listed = list(rows)
    titles = list(dict.fromkeys(row.title for row in listed))
    right = {t: _ranges(r for r in listed if r.title == t and r.state == "honoured") for t in titles}
    costly = {t: _span([r for r in listed if r.title == t and r.state == "minor"]) for t in titles}
    if len(listed) < 2:
        return ""
    said = [
        " ".join(filter(None, (t, right[t], costly[t] and f"(at a cost {costly[t]})")))
        for t in titles
        if right[t] or costly[t]
    ]
    none = [t for t in titles if not right[t] and not costly[t]]
    parts = [f"as the files mean in {', '.join(said)}"] if said else []
    parts += [f"in no release read of {', '.join(none)}"] if none else []
    return f"It runs {'; '.join(parts)}."


def _ranges(rows: Iterable[Row]) -> str:
    return ", ".join(row.versions for row in rows)


def _span(rows: list[Row]) -> str:
    """Releases next to each other that differ in what it costs are one range here."""
    return replace(rows[0], last=rows[-1].last).versions if rows else ""
