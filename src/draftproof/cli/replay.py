"""``draftproof replay``: walk a capture through the reference engine to the first place where it is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.cli.flags import with_flags
from draftproof.cli.options import TARGET_HELP, CommonFlags, JsonFlag
from draftproof.cli.terminal import note, rounded
from draftproof.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNAVAILABLE, UsageError
from draftproof.runtime import configure_threads

CODES = {"healthy": EXIT_OK, "faulty": EXIT_FINDINGS, "inconclusive": EXIT_UNAVAILABLE}


@with_flags
def replay(
    capture: Annotated[Path, typer.Argument(metavar="CAPTURE", help="The folder that draftproof capture printed.")],
    common: CommonFlags,
    drafter: Annotated[
        str | None, typer.Option("--drafter", "-d", metavar="DRAFTER", help="Its folder or hub id.", show_default=False)
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", "-t", metavar="TARGET", help=TARGET_HELP, show_default=False)
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="B", help="Compare with this capture instead of recomputing taps."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also save the JSON here.")] = None,
    threads: Annotated[int | None, typer.Option("--threads", metavar="N", help="CPU threads.")] = None,
    json_output: JsonFlag = False,
) -> None:
    """Where does the engine leave the truth? Weights, configuration, taps, inputs, drafts; and which fault explains it.

    Exit code 0: healthy; 1: a fault; 2: an unusable capture or pair; 3: could not tell.
    """
    if (drafter is None) != (target is None):
        raise UsageError("--drafter and --target go together")
    if drafter is None and against is None:
        raise UsageError("give --drafter and --target, or --against another capture")
    note(configure_threads(threads), quiet=common.quiet)
    document: dict[str, Any]
    if drafter is None or target is None:
        document, code = _compared(capture, against)
    else:
        document, code = _replayed(capture, drafter, target, against, quiet=common.quiet)
    if out is not None:
        from draftproof.bench.provenance import provenance
        from draftproof.bench.results import write_result

        write_result(out, {**rounded(document), "provenance": provenance()})
    if json_output:
        print(json.dumps(rounded(document), ensure_ascii=False))
    else:
        from draftproof.cli.replay_view import print_replay

        print_replay(document)
    raise typer.Exit(code)


def _replayed(
    capture: Path, drafter: str, target: str, against: Path | None, *, quiet: bool
) -> tuple[dict[str, Any], int]:
    from draftproof.proof.capture.replay import against as comparing
    from draftproof.proof.capture.replay.chain import replay as walk

    other = None if against is None else comparing.against(capture, against)
    result = walk(capture, drafter, target, recompute=against is None, report=lambda line: note(line, quiet=quiet))
    document = result.to_dict()
    if other is not None:
        document["against"] = [stage.to_dict() for stage in other]
    return document, CODES[result.proven.kind]


def _compared(capture: Path, against: Path | None) -> tuple[dict[str, Any], int]:
    from draftproof.proof.capture.manifest import read_manifest
    from draftproof.proof.capture.replay.against import against as compare
    from draftproof.proof.capture.verdict import SCHEMA

    assert against is not None
    stages = compare(capture, against)
    parted = next((stage for stage in stages if stage.status == "wrong"), None)
    document = {
        "schema_version": SCHEMA,
        "capture": str(capture),
        "engine": read_manifest(capture).engine,
        "verdict": "different" if parted is not None else "same",
        "says": parted.says if parted is not None else "The two engines do the same.",
        "first_wrong": parted.name if parted is not None else None,
        "against": [stage.to_dict() for stage in stages],
    }
    return document, EXIT_OK if parted is None else EXIT_FINDINGS
