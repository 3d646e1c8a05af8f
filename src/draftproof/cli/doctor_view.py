"""How the doctor's findings look: a card for one install, a table before the cards for several, progress meanwhile."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.progress import Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from draftproof.cli.terminal import err_console, note, out_console, print_trimmed, printable
from draftproof.proof.case import Case
from draftproof.proof.findings import Finding
from draftproof.proof.install.cases import install_of
from draftproof.proof.install.closing import closing, exit_code, extensions
from draftproof.proof.install.hosts import Host
from draftproof.proof.install.probe.extensions import DRIVERS
from draftproof.proof.install.rows import short, together

_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_SIGNS = {
    "good": ("✓", "green"),
    "bad": ("✗", "red"),
    "cost": ("○", "yellow"),
    "neutral": ("·", ""),
    "unknown": ("?", "yellow"),
}
_VERDICT = {0: ("whole", "green"), 1: ("faults", "bold red"), 3: ("could not tell", "yellow")}
_WIDE = 90  # columns from which the facts stand in columns
Judged = Sequence[tuple[Case, tuple[Finding, ...]]]


class Watcher:
    """Shows where each host is, on a terminal's stderr; elsewhere one line per host when it begins."""

    def __init__(self, hosts: Sequence[Host], *, quiet: bool) -> None:
        console = err_console()
        self.bar = Progress(TextColumn("{task.description}"), console=console, transient=True)
        self.shown = console.is_terminal and not quiet
        self._tasks: dict[str, TaskID] = {}
        self._lock = threading.Lock()
        if not self.shown:
            note(f"looking at {', '.join(host.label for host in hosts)}", quiet=quiet)

    def __call__(self, host: Host, values: dict[str, Any]) -> None:
        if not self.shown:
            return
        text = f"{host.label}: {values.get('engine', '')} {values.get('level', '')}"
        if values.get("files"):
            text += f" {values['done']}/{values['files']} files, {_size(values['bytes'])}"
        with self._lock:
            if host.label not in self._tasks:
                self._tasks[host.label] = self.bar.add_task("")
            self.bar.update(self._tasks[host.label], description=printable(text))

    def __enter__(self) -> Watcher:
        if self.shown:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shown:
            self.bar.stop()


def show(judged: Judged) -> None:
    console = out_console()
    if len(judged) > 1:
        print_trimmed(console, _overview(judged))
    for case, findings in judged:
        if len(judged) > 1:
            console.print()
        for part in _card(case, findings, console.width):
            print_trimmed(console, part)


def _overview(judged: Judged) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("host", "engine", "install", "DFlash"):
        table.add_column(column, overflow="fold")
    for case, findings in judged:
        install = install_of(case) or {}
        word, style = _VERDICT[exit_code(findings)]
        facts = install.get("facts") or {}
        bad = [one["asks"] for one in facts.values() if one["state"] == "bad"]
        told = "" if not facts else ", ".join(bad[:2]) + ", …" * (len(bad) > 2) if bad else "as it should be"
        engine = f"{case.engine.name or '–'} {case.engine.version or ''}".strip()
        table.add_row(printable(str(install.get("host"))), printable(engine), Text(word, style), told)
    return table


def _card(case: Case, findings: tuple[Finding, ...], width: int) -> list[Any]:
    install = install_of(case) or {}
    title = f"{case.engine.name or 'no engine'} {case.engine.version or ''}".strip()
    parts: list[Any] = [Text(f"{printable(title)} · {printable(str(install.get('host')))}", "bold")]
    if install.get("distributions") is not None:
        parts.append(_levels(case, install))
        for table in (*_facts(install, width), *_drafter(install)):
            parts += [Text(""), table]
    answer = closing(case, findings)
    for finding in findings:
        parts += [Text(""), _finding(finding, width, told=answer)]
    return [*parts, Text(""), _wrapped(answer, width, "bold")]


def _levels(case: Case, install: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    seconds = install.get("seconds") or {}
    for level, text in (
        ("provenance", _provenance(install)),
        ("integrity", _integrity(install)),
        ("import", _imported(install)),
        ("source", _counted(install, "source", "syntax trees")),
        ("behaviour", _counted(install, "behaviour", "shipped functions called")),
    ):
        key = "importability" if level == "import" else level
        took = f" ({seconds[key]:.1f} s)" if seconds.get(key, 0) >= 0.05 else ""
        if text:
            table.add_row(Text(level, "bold"), printable(text + took))
    return table


def _provenance(install: dict[str, Any]) -> str:
    said = [str(install.get("taken") or "no import would find it")]
    for one in install.get("distributions") or []:
        commit = f", commit {one['commit'][:12]}" if one["commit"] else ""
        edit = ", editable" if one["editable"] else ""
        tags = f", {one['tags'][0]}" if one["tags"] else ""
        said.append(
            f"{one['name']} {one['version']} by {one['installer'] or 'an unnamed installer'}{commit}{edit}{tags}"
        )
    copies = len(install.get("copies") or [])
    return "; ".join([*said, f"{copies} copies on the path"] if copies > 1 else said)


def _integrity(install: dict[str, Any]) -> str:
    said = []
    for one in install.get("integrity") or []:
        files = one["files"]
        rate = files["bytes"] / max(files["seconds"], 1e-9) / 1e6
        said.append(f"{files['verified']:,} of {files['listed']:,} files, {_size(files['bytes'])} at {rate:,.0f} MB/s")
    if said and (text := extensions({**install, "importability": None})):
        said.append(text)
    return "; ".join(said)


def _imported(install: dict[str, Any]) -> str:
    got = install.get("importability")
    if not got:
        return ""
    error = got.get("failed") or got.get("package")
    if error:
        return str(error)
    tried = got.get("extensions") or {}
    failed = [name for name, says in tried.items() if says]
    text = f"imports in {got['seconds']:.1f} s"
    if tried:
        text += f", {len(tried) - len(failed)} of {len(tried)} extensions load"
    if not failed:
        return text
    reason = (
        "no graphics driver here" if any(name in tried[f] for f in failed for name in DRIVERS) else tried[failed[0]]
    )
    return f"{text} (not {', '.join(failed[:3])}{', …' * (len(failed) > 3)}: {reason})"


def _counted(install: dict[str, Any], level: str, how: str) -> str:
    got = install.get(level)
    if not got:
        return ""
    if got.get("failed"):
        return str(got["failed"])
    facts = got.get("facts", {}) if level == "behaviour" else got
    answered = sum(one["value"] is not None for one in facts.values())
    return f"{answered} of {len(facts)} facts told by {how}" if facts else ""


def _facts(install: dict[str, Any], width: int) -> list[Table]:
    """A row per fact; on a narrow terminal its evidence stands below it, for columns would break every word."""
    facts = install.get("facts") or {}
    if not facts:
        return []
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(width=1)
    for ratio in (3, 3, 4) if width >= _WIDE else (1,):
        table.add_column(ratio=ratio, overflow="fold")
    for one in facts.values():
        sign, style = _SIGNS[one["state"]]
        where = one["where"] if width >= 120 else one["where"].rpartition("/")[2]
        asks, says = printable(one["asks"]), Text(printable(one["says"]), style)
        evidence = Text(printable(f"{one['level'] or one['how']} {where}".strip()), "dim")
        cells = [asks, says, evidence] if width >= _WIDE else [Text.assemble(f"{asks}: ", says, "\n", evidence)]
        table.add_row(Text(sign, style), *cells)
    return [table]


def _drafter(install: dict[str, Any]) -> list[Any]:
    chain = (install.get("behaviour") or {}).get("chain")
    if not chain or chain.get("failed"):
        return []
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", f"drafter ({chain['format']})", "file", "engine"):
        table.add_column(column, overflow="fold")
    for row in together(chain["rows"]):
        sign, style = ("✓", "green") if row["same"] else ("✗", "red")
        engine = row.get("refused") or short(row["engine"])
        if row["note"] and not row["same"]:
            engine += f" ({row['note']})"
        table.add_row(Text(sign, style), printable(row["field"]), printable(short(row["file"])), printable(engine))
    return [table]


def _finding(finding: Finding, width: int, told: str) -> Text:
    """``told``: the last line, which need not be read twice."""
    style = _STYLES[finding.severity]
    text = Text()
    text.append(f"{finding.severity} {finding.code}", style)
    if finding.says != told:
        text.append("\n")
        text.append(_wrapped(finding.says, width, "", "  "))
    if finding.severity != "info":
        text.append("\n")
        text.append(_wrapped(f"→ {finding.remedy}", width, "dim", "  "))
    return text


def _wrapped(text: str, width: int, style: str, indent: str = "") -> Text:
    lines = textwrap.wrap(printable(text), max(20, width - 1), initial_indent=indent, subsequent_indent=indent)
    return Text("\n".join(lines), style)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
