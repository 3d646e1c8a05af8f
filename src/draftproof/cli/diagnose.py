"""``draftproof diagnose``: from files, logs, counters and probes to the cause of low acceptance or low speed."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftproof.cli.diagnose_probes import ProbeFlags, checked, list_plan, plan_of, probe
from draftproof.cli.flags import flag_name, given, with_flags
from draftproof.cli.options import JsonFlag
from draftproof.cli.terminal import note, rounded
from draftproof.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNAVAILABLE, UsageError

if TYPE_CHECKING:
    from draftproof.proof.diagnosis import Report

CODES = {"healthy": EXIT_OK, "suspicious": EXIT_FINDINGS, "faulty": EXIT_FINDINGS, "inconclusive": EXIT_UNAVAILABLE}


def _option(panel: str, name: str, metavar: str | None, help: str, *more: str) -> Any:
    return typer.Option(name, *more, metavar=metavar, help=help, show_default=False, rich_help_panel=panel)


_evidence = partial(_option, "Evidence")
_output = partial(_option, "Output")


@dataclass(frozen=True)
class EvidenceFlags:
    """What there is to judge, in any combination."""

    case: Annotated[Path | None, _evidence("--case", "FILE", "Facts in the format draftproof.case/1.")] = None
    drafter: Annotated[str | None, _evidence("--drafter", "DRAFTER", "The drafter's folder or hub id.", "-d")] = None
    target: Annotated[str | None, _evidence("--target", "TARGET", "The target's folder or hub id.", "-t")] = None
    engine: Annotated[
        str | None, _evidence("--engine", "NAME==VERSION|FILE", "vllm==0.25.1, or what doctor --save or --json wrote.")
    ] = None
    launch: Annotated[
        str | None, _evidence("--launch", "LINE", "The command line that starts the server, in quotes.")
    ] = None
    log: Annotated[
        list[str] | None,
        _evidence("--log", "FILE|-", "Log of vLLM, SGLang or llama.cpp, also .gz; repeat it for rotated files."),
    ] = None
    metrics: Annotated[
        list[str] | None, _evidence("--metrics", "FILE|URL", "Prometheus text; given twice: what lies between.")
    ] = None
    interval: Annotated[float | None, _evidence("--interval", "S", "Scrape a metrics URL twice, S seconds apart.")] = (
        None
    )
    api_key_env: Annotated[
        str | None, _evidence("--api-key-env", "VAR", "Environment variable that holds the server's key.")
    ] = None
    capture: Annotated[
        Path | None,
        _evidence("--capture", "DIR", "What draftproof capture recorded; replayed with --drafter and --target."),
    ] = None
    fingerprints: Annotated[
        Path | None, _evidence("--fingerprints", "FILE", "What faults do to this pair, as draftproof lab saved it.")
    ] = None
    condition: Annotated[
        str | None,
        _evidence("--condition", "NAME", "Of the counts: short, long, cached, batch, sampled. [default: short]"),
    ] = None
    workload: Annotated[
        list[str] | None,
        _evidence("--workload", "NAME=VALUE", "dataset=gsm8k temperature=0 thinking=off context=8000 … Repeatable."),
    ] = None


@dataclass(frozen=True)
class ReportFlags:
    """What to do with the answer."""

    explain: Annotated[str | None, _output("--explain", "CODE", "Print the page of a code and nothing else.")] = None
    plot: Annotated[Path | None, _output("--plot", "FILE", "Draw the per-position curve (.png, .svg or .html).")] = None
    save: Annotated[Path | None, _output("--save", "FILE", "Save all facts as a case, to be judged elsewhere.")] = None


@with_flags
def diagnose(evidence: EvidenceFlags, probes: ProbeFlags, output: ReportFlags, json_output: JsonFlag = False) -> None:
    """Which cause explains what is seen, by what evidence, what to change and what to measure next.

    Exit code 0: healthy; 1: faulty or suspicious; 2: usage or unreadable input; 3: could not tell.
    """
    if output.explain is not None:
        _alone(evidence, probes, output)
        _explain(output.explain, json_output)
        return
    from draftproof.proof.case import Case
    from draftproof.proof.diagnosis import report
    from draftproof.proof.fingerprints import read_fingerprints
    from draftproof.proof.gathering import Sources, gather

    if evidence.interval is not None and not evidence.metrics:
        raise UsageError("--interval has no effect without --metrics URL")
    if evidence.condition is not None and evidence.fingerprints is None:
        raise UsageError("--condition has no effect without --fingerprints FILE")
    once = ("case", "drafter", "target", "engine", "launch", "capture")
    given_once: dict[str, Any] = {name: getattr(evidence, name) for name in once}
    several: dict[str, Any] = {name: tuple(getattr(evidence, name) or ()) for name in ("log", "metrics", "workload")}
    sources = Sources(**given_once, **several)
    checked(probes)
    key = _key(evidence, probes)
    if probes.endpoint is None or not sources.empty:
        found, notes = gather(sources, interval=evidence.interval or 0.0, key=key)
    else:
        found, notes = Case(), ()
    pairs: list[Case] = []
    if probes.endpoint is not None:
        plan = plan_of(probes, found)
        if probes.dry_run:
            list_plan(plan, json_output)
            return
        found, pairs, more = probe(probes, plan, found, key)
        notes = (*notes, *more)
    prints = None if evidence.fingerprints is None else read_fingerprints(evidence.fingerprints)
    result = report(found, notes, pairs, prints, evidence.condition or "short")
    if output.save is not None:
        _write(output.save, json.dumps(found.to_dict(), indent=1, ensure_ascii=False) + "\n")
        note(f"saved {output.save}")
    if output.plot is not None:
        from draftproof.proof.plots import save_plot

        save_plot(result, output.plot)
        note(f"drew {output.plot}")
    _show(result, json_output)
    raise typer.Exit(CODES[result.verdict.kind])


def _show(result: Report, json_output: bool) -> None:
    if json_output:
        print(json.dumps(rounded(result.to_dict()), ensure_ascii=False))
        return
    from draftproof.cli.diagnose_view import print_card

    print_card(result)


def _alone(evidence: EvidenceFlags, probes: ProbeFlags, output: ReportFlags) -> None:
    others = {**given(evidence), **given(probes), **given(output)}
    for name in (name for name, value in others.items() if name != "explain" and value is not False):
        raise UsageError(f"{flag_name(name)} has no effect with --explain")


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


def _key(evidence: EvidenceFlags, probes: ProbeFlags) -> str | None:
    variable = evidence.api_key_env
    if variable is None:
        return None
    urls = [*(evidence.metrics or ()), probes.endpoint or ""]
    if not any(name.startswith(("http://", "https://")) for name in urls):
        raise UsageError("--api-key-env has no effect without a URL to send the key to")
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
