"""``draftproof diagnose``: from files, logs, counters and probes to the cause of low acceptance or low speed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftproof.cli.flags import with_flags
from draftproof.cli.options import JsonFlag
from draftproof.cli.terminal import note, rounded
from draftproof.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNAVAILABLE, UsageError

if TYPE_CHECKING:
    from draftproof.proof.report import Report

CODES = {"healthy": EXIT_OK, "suspicious": EXIT_FINDINGS, "faulty": EXIT_FINDINGS, "inconclusive": EXIT_UNAVAILABLE}


@with_flags
def diagnose(
    case: Annotated[
        Path | None, typer.Option("--case", metavar="FILE", help="Facts in the format draftproof.case/1.")
    ] = None,
    drafter: Annotated[
        str | None, typer.Option("--drafter", "-d", metavar="DRAFTER", help="Its folder or hub id.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", "-t", metavar="TARGET", help="Its folder or hub id.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="NAME==VERSION|FILE", help="vllm==0.25.1, or a report of doctor --json."),
    ] = None,
    launch: Annotated[
        str | None, typer.Option("--launch", metavar="LINE", help="The command line of the server, in quotes.")
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="FILE|-", help="Log of vLLM, SGLang or llama.cpp; repeat for rotated files."),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", metavar="FILE|URL", help="Prometheus text; twice: what was counted in between."),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option("--workload", metavar="NAME=VALUE", help="dataset=gsm8k temperature=0 thinking=false …"),
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", metavar="S", help="Seconds between two scrapes of one metrics URL; 0: one.")
    ] = 0.0,
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", metavar="VAR", help="Environment variable that holds the key.")
    ] = None,
    explain: Annotated[str | None, typer.Option("--explain", metavar="CODE", help="Print the page of a code.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the per-position curve (.png, .svg, .html).")
    ] = None,
    save: Annotated[Path | None, typer.Option("--save", metavar="FILE", help="Save the facts as a case.")] = None,
    json_output: JsonFlag = False,
) -> None:
    """Which cause explains what is seen, by what evidence, what to change and what to measure next."""
    if explain is not None:
        _explain(explain, json_output)
        return
    from draftproof.proof.gathering import Sources, gather
    from draftproof.proof.report import report

    key = _key(api_key_env)
    sources = Sources(
        case, drafter, target, engine, launch, tuple(log or ()), tuple(metrics or ()), tuple(workload or ())
    )
    found, notes = gather(sources, interval=interval, key=key)
    result = report(found, notes)
    if save is not None:
        _write(save, json.dumps(found.to_dict(), indent=1, ensure_ascii=False) + "\n")
        note(f"saved {save}")
    if plot is not None:
        from draftproof.proof.plots import save_plot

        save_plot(result, plot)
        note(f"drew {plot}")
    _show(result, json_output)
    raise typer.Exit(CODES[result.verdict.kind])


def _show(result: Report, json_output: bool) -> None:
    if json_output:
        print(json.dumps(rounded(result.to_dict()), ensure_ascii=False))
        return
    from draftproof.cli.diagnose_view import print_card

    print_card(result)


def _explain(code: str, json_output: bool) -> None:
    from draftproof.cli.diagnose_view import print_page
    from draftproof.proof.rules import PAGES

    page = PAGES.get(code.upper())
    if page is None:
        from difflib import get_close_matches

        near = get_close_matches(code.upper(), PAGES, n=3, cutoff=0.5)
        hint = f"; did you mean {', '.join(near)}?" if near else f"; codes look like {next(iter(PAGES))}"
        raise UsageError(f"--explain {code}: no such code{hint}")
    if json_output:
        print(json.dumps({"schema_version": "draftproof.page/1", **vars(page)}, ensure_ascii=False))
    else:
        print_page(page)


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise UsageError(f"--api-key-env {variable}: this environment variable is not set")
    return key


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--save {path}: cannot be written ({error.strerror})") from None
