"""How a diagnosis looks in a terminal: the verdict, the causes with their evidence, what to do and to measure next."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from draftproof.cli.terminal import out_console, print_trimmed, printable
from draftproof.proof.diagnosis import Expected, Report
from draftproof.proof.findings import Finding, Page
from draftproof.proof.likeness import Match
from draftproof.proof.meanings import Figure
from draftproof.proof.verdict import Cause

_STYLE = {
    "faulty": "bold red",
    "suspicious": "bold yellow",
    "inconclusive": "bold cyan",
    "healthy": "bold green",
    "error": "red",
    "warning": "yellow",
    "info": "cyan",
}
_MOST_CAUSES, _MOST_EVIDENCE, _MOST_QUESTIONS = 6, 3, 4


def print_card(report: Report) -> None:
    verdict = report.verdict
    head = Text.assemble((verdict.kind.upper(), _STYLE[verdict.kind]), f"  confidence {verdict.confidence:.0%}")
    parts: list[RenderableType] = [head, *_measured(report)]
    if verdict.causes:
        parts.append(_heading("Causes, the likeliest first"))
        parts += [_cause(cause) for cause in verdict.causes[:_MOST_CAUSES]]
        if len(verdict.causes) > _MOST_CAUSES:
            parts.append(Text(f"  … and {len(verdict.causes) - _MOST_CAUSES} more candidates (--json)"))
    if verdict.others:
        parts.append(_heading("What is seen" if verdict.causes else "Findings"))
        parts += [_remark(finding) for finding in verdict.others]
    if report.resembles:
        parts += [_heading("Resembles, by the laboratory's fingerprints"), *(_match(m) for m in report.resembles[:3])]
    if report.expected:
        parts += [_heading("Published for this drafter"), *(_expected(one) for one in report.expected)]
    if report.break_even is not None:
        parts += [_heading("Worth it?"), _line(_worth(report))]
    if verdict.next_probe:
        parts += [_heading("Measure next"), _line(verdict.next_probe)]
    if verdict.questions:
        parts.append(_heading("Unknown"))
        parts += [_line(f"{q.fact}: {q.how}") for q in verdict.questions[:_MOST_QUESTIONS]]
    if report.notes:
        parts += [_heading("Notes"), *(_line(note) for note in report.notes)]
    print_trimmed(out_console(), Group(*parts))


def print_page(page: Page) -> None:
    """The page of a code, as ``--explain`` shows it."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, text in (
        ("means", page.meaning),
        ("severity", page.severity),
        ("proved by", page.derived),
        ("remedy", page.remedy),
        ("next probe", page.probe),
        ("seen in", ", ".join(page.sources)),
    ):
        table.add_row(name, text)
    print_trimmed(out_console(), Text(f"{page.code}  ({page.area})", style="bold"), table)


def _match(match: Match) -> RenderableType:
    code = f" ({match.code})" if match.code else ""
    share = f", in about {match.share:.0%} of the rounds" if match.share < 1 else ""
    alike = f"; counts do not tell it from {', '.join(match.alike[:4])}" if match.alike else ""
    return _line(f"{match.probability:.0%}  {match.name}{code}{share}{alike}")


def _heading(text: str) -> RenderableType:
    return Padding(Text(text, style="bold"), (1, 0, 0, 0))


def _line(text: str, indent: int = 2) -> RenderableType:
    return Padding(Text(printable(text)), (0, 0, 0, indent))


def _measured(report: Report) -> list[RenderableType]:
    shown = [_figure(name, report.figures[name]) for name in ("length", "rate") if name in report.figures]
    line = report.acceptance.line
    if "length" in report.figures and line is not None:
        shown.append(f"healthy from {line:.2f}")
    curve = " ".join(f"{rate:.2f}" for rate in report.acceptance.curve)
    return [_line(", ".join(shown), 0)] * bool(shown) + [_line(f"accepted up to position 1, 2, …: {curve}", 0)] * bool(
        curve
    )


def _figure(name: str, figure: Figure) -> str:
    form = "{:.2f}" if name == "length" else "{:.1%}"
    words = {"length": "tokens per draft", "rate": "of the drafted tokens"}[name]
    interval = f" ({form.format(figure.ci95[0])}–{form.format(figure.ci95[1])})" if figure.ci95 is not None else ""
    of = f" from {figure.of:,.0f} drafts" if name == "length" and figure.of else ""
    return f"{form.format(figure.value)}{interval} {words}{of}"


def _cause(cause: Cause) -> RenderableType:
    finding = cause.finding
    sure = f"{cause.probability:.0%}" if finding.counts else "candidate"
    head = Text.assemble("  ", (finding.code, _STYLE[finding.severity]), f"  {finding.severity}, {sure}")
    lines: list[RenderableType] = [head, _line(finding.says, 4)]
    for evidence in finding.evidence[:_MOST_EVIDENCE]:
        lines.append(_line(f"· {evidence.where}: {evidence.what}", 4))
    lines.append(_line(f"→ {finding.remedy}", 4))
    if cause.command and cause.command not in finding.remedy:
        lines.append(Padding(Text(printable(cause.command), style="bold"), (0, 0, 0, 6)))
    return Group(*lines)


def _remark(finding: Finding) -> RenderableType:
    note = "" if finding.counts else " (candidate)"
    text = Text.assemble((finding.code, _STYLE[finding.severity]), f"{note}  {printable(finding.says)}")
    return Padding(text, (0, 0, 0, 2))


def _expected(one: Expected) -> RenderableType:
    row = one.row
    span = f" ({row.low:.2f}–{row.high:.2f})" if row.low is not None and row.high is not None else ""
    where = ", ".join(
        str(part)
        for part in (
            row.dataset,
            None if row.temperature is None else f"T={row.temperature:g}",
            None if row.thinking is None else f"thinking {'on' if row.thinking else 'off'}",
            None if row.k is None else f"k={row.k}",
            row.engine,
        )
        if part is not None
    )
    here = "" if one.ratio is None else f"; accepted here: {one.ratio:.0%} of that"
    unlike = f" [unlike or unknown here: {', '.join(one.unlike)}]" if one.unlike else ""
    return _line(f"{row.length:.2f}{span}  {where} ({row.source}){here}{unlike}")


def _worth(report: Report) -> str:
    even = report.break_even
    assert even is not None
    words = {
        "acceptance": "Acceptance is the problem, not the price of a step.",
        "cost": "The price of a step is the problem, not acceptance.",
        "both": "Both acceptance and the price of a step are against it.",
        "neither": "",
        "unknown": "",
    }[even.problem]
    parts = [words, even.advice]
    if even.length is not None and even.cost is not None:
        parts.insert(0, f"A step brings {even.length:.2f} tokens and takes {even.cost:.2f} plain steps.")
    return " ".join(part for part in parts if part)
