"""``draftproof check``: is this drafter right for this target, this engine and this launch line? From files alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from draftproof.cli.flags import with_flags
from draftproof.cli.options import JsonFlag
from draftproof.cli.terminal import note, out_console
from draftproof.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNAVAILABLE, UsageError

SCHEMA = "draftproof.check/1"
MAX_LAUNCH = 1 << 20
FailOn = Literal["error", "warning"]


@dataclass(frozen=True)
class AskFlags:
    """What the drafter is held against."""

    target: Annotated[
        str | None, typer.Option("--target", "-t", metavar="TARGET", help="Does it fit this model? Same forms.")
    ] = None
    engine: Annotated[
        list[str] | None,
        typer.Option(
            "--engine",
            "-e",
            metavar="NAME[==VERSION]",
            help="vllm, sglang, llama.cpp, z-lab or draftproof; all: the whole matrix. Repeatable.",
        ),
    ] = None
    launch: Annotated[
        str | None, typer.Option("--launch", metavar="LINE", help="The command that starts the engine, in quotes.")
    ] = None
    launch_file: Annotated[
        Path | None, typer.Option("--launch-file", metavar="FILE", help="A start script with that command; - is stdin.")
    ] = None
    revision: Annotated[str | None, typer.Option("--revision", metavar="REV", help="Of a drafter on the hub.")] = None
    target_revision: Annotated[
        str | None, typer.Option("--target-revision", metavar="REV", help="Of a target on the hub.")
    ] = None


@dataclass(frozen=True)
class ReportFlags:
    """Where the answer goes, and what counts."""

    fail_on: Annotated[FailOn, typer.Option("--fail-on", help="Exit 1 from this severity on.", show_default=True)] = (
        "warning"
    )
    candidates: Annotated[bool, typer.Option("--candidates", help="Also list what is merely possible.")] = False
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Save the facts as a case, for draftproof diagnose.")
    ] = None
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit report.")] = None
    sarif: Annotated[Path | None, typer.Option("--sarif", metavar="FILE", help="Write a SARIF report.")] = None
    json_output: JsonFlag = False

    @property
    def severities(self) -> tuple[str, ...]:
        return ("error",) if self.fail_on == "error" else ("error", "warning")


@with_flags
def check(
    ask: AskFlags,
    report: ReportFlags,
    drafter: Annotated[
        str | None, typer.Argument(metavar="DRAFTER", help="A folder, a config.json, a .gguf file or a hub id.")
    ] = None,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="CODE", help="Print the page of a finding and end.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks.")] = False,
) -> None:
    """Card, fit, version matrix and launch line of a drafter; no weights are read and no model is run.

    Exit code 0: nothing found; 1: faults or risks found; 2: an input that cannot be read; 3: could not tell.
    """
    if explain is not None:
        _explain(explain, report.json_output)
        return
    if drafter is None:
        raise UsageError("check needs a DRAFTER: a folder, a config.json, a .gguf file or a hub id")
    from draftproof.proof.checking import check as run_check
    from draftproof.proof.checking import parse_engine

    found = run_check(
        drafter,
        target=ask.target,
        engines_asked=[one for text in ask.engine or [] for one in parse_engine(text)],
        launch=_line(ask.launch, ask.launch_file),
        revision=ask.revision,
        target_revision=ask.target_revision,
    )
    for text in found.notes:
        note(text, quiet=quiet)
    _write_reports(found, drafter, report)
    code = _exit_code(found, report.severities)
    if report.json_output:
        print(json.dumps(_document(found, code), allow_nan=False))
    else:
        from draftproof.cli.check_view import show

        show(out_console(), found, candidates=report.candidates)
    raise typer.Exit(code)


def _explain(code: str, json_output: bool) -> None:
    from draftproof.proof.rules import PAGES

    page = PAGES.get(code.strip().upper().replace("-", "_"))
    if page is None:
        near = get_close_matches(code.upper(), PAGES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"--explain {code!r}: no such code{hint} (docs/findings.md lists all)")
    if json_output:
        print(json.dumps(vars(page)))
        return
    from draftproof.cli.check_view import show_page

    show_page(out_console(), page)


def _line(launch: str | None, file: Path | None) -> str | None:
    if launch is not None and file is not None:
        raise UsageError("--launch and --launch-file are two ways to say the same: give one")
    if file is None:
        return launch
    if str(file) == "-":
        return typer.get_text_stream("stdin").read(MAX_LAUNCH + 1)
    from draftproof.proof.files.json_file import decoded, printable, read_bytes

    return decoded(read_bytes(file, MAX_LAUNCH), printable(file))


def _exit_code(found: Any, severities: tuple[str, ...]) -> int:
    if any(f.counts and f.severity in severities for f in found.judged.findings):
        return EXIT_FINDINGS
    return EXIT_UNAVAILABLE if found.cannot_tell else EXIT_OK


def _write_reports(found: Any, drafter: str, report: ReportFlags) -> None:
    if report.save is not None:
        _write(report.save, json.dumps(found.case.to_dict(), indent=1, allow_nan=False) + "\n")
    if report.junit is not None:
        from draftproof.proof.checking import AREAS
        from draftproof.proof.report.junit import junit as to_junit

        suite = f"draftproof check {drafter}"
        _write(report.junit, to_junit(found.judged.findings, AREAS, suite, report.severities))
    if report.sarif is not None:
        from draftproof.proof.report.sarif import sarif as to_sarif

        _write(report.sarif, json.dumps(to_sarif(found.judged.findings), indent=1) + "\n")


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: cannot be written ({error.strerror})") from None


def _document(found: Any, code: int) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA,
        "exit_code": code,
        "drafter": found.card.data,
        "fit": [row.to_dict() for row in found.fit],
        "matrix": [row.to_dict() for row in found.matrix],
        "launch": {"given": found.case.engine.launch, "corrected": found.corrected},
        "findings": [f.to_dict() for f in found.judged.findings],
        "questions": [q.to_dict() for q in found.judged.questions],
        "cannot_tell": found.cannot_tell,
        "notes": list(found.notes),
    }
