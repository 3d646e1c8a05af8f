"""``draftproof lab``: a pair healthy and with each known fault switched on; the counts become its fingerprints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from draftproof.cli.flags import with_flags
from draftproof.cli.options import TARGET_HELP, CommonFlags, Dtype, JsonFlag
from draftproof.cli.terminal import note, out_console, print_trimmed, rounded
from draftproof.errors import UsageError
from draftproof.runtime import configure_threads

SCHEMA = "draftproof.lab/1"


@with_flags
def lab(
    drafter: Annotated[str, typer.Argument(metavar="DRAFTER", help="Its folder or hub id.")],
    target: Annotated[str, typer.Option("--target", "-m", "--model", metavar="TARGET", help=TARGET_HELP)],
    common: CommonFlags,
    prompts: Annotated[
        list[str] | None,
        typer.Option("--prompts", metavar="FILE", help="JSON Lines; repeatable. [default: demo]", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="Most prompts taken.")] = 12,
    faults: Annotated[
        str, typer.Option("--faults", metavar="all|NAME,…", help="Which faults, by name or by finding code.")
    ] = "all",
    conditions: Annotated[
        str | None,
        typer.Option("--conditions", metavar="NAME,…", help="short, long, cached, sampled, batch. [default: first 4]"),
    ] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", metavar="N", help="Per answer.")] = 64,
    seed: Annotated[int, typer.Option("--seed", help="Chooses prompts, and draws of sampled answers.")] = 0,
    dtype: Annotated[Dtype, typer.Option("--dtype", help="Number format.")] = "auto",
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 …")] = "auto",
    threads: Annotated[int | None, typer.Option("--threads", metavar="N", help="CPU threads.")] = None,
    fingerprints: Annotated[
        Path | None, typer.Option("--fingerprints", metavar="FILE", help="Save them here, for diagnose.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Save the curves here.")] = None,
    counts: Annotated[
        Path | None, typer.Option("--counts", metavar="FILE", help="Collect counts here; go on from what is there.")
    ] = None,
    json_output: JsonFlag = False,
) -> None:
    """What each known fault would do to this pair: τ and acceptance per position, condition by condition."""
    note(configure_threads(threads), quiet=common.quiet)
    from draftproof.bench.provenance import provenance
    from draftproof.bench.results import write_result
    from draftproof.bench.workloads import load_workload
    from draftproof.proof.lab import report
    from draftproof.proof.lab.pool import choose, collect, key_of
    from draftproof.proof.lab.runs import CONDITIONS, USUAL, Laboratory
    from draftproof.proof.lab.summing import fingerprints as summed

    wanted, chosen = _conditions(conditions, CONDITIONS, USUAL), _faults(faults)
    names = prompts or ["demo"]
    chosen_prompts = choose(names, limit, seed)
    place = Laboratory(target, drafter, dtype, device, max_tokens, seed)
    pool = collect(place, chosen_prompts, chosen, wanted, counts, lambda line: note(line, quiet=common.quiet))
    pair = _pair(target, drafter, place) | {"workload": [load_workload(n, limit=None).describe() for n in names]}
    made = provenance(seed)
    document = rounded({"schema_version": SCHEMA, "pair": pair, "faults": report.rows(pool), "provenance": made})
    if out is not None:
        write_result(out, document)
    if fingerprints is not None:
        used = {"prompts": [key_of(p) for p in chosen_prompts], "max_tokens": max_tokens, "seed": seed}
        write_result(fingerprints, summed(pool, wanted, pair | used, made).to_dict())
    if json_output:
        print(json.dumps(document))
        return
    print_trimmed(out_console(), _table(document["faults"], wanted))


def _pair(target: str, drafter: str, place: Any) -> dict[str, Any]:
    from draftproof.bench.provenance import short_path

    names = {"target": short_path(target), "drafter": short_path(drafter)}
    return names | {"weights_sha256": place.weights_sha256, "long_tokens": place.long_tokens}


def _conditions(text: str | None, known: tuple[str, ...], usual: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return usual
    names = tuple(filter(None, text.split(",")))
    unknown = [n for n in names if n not in known]
    if unknown or not names:
        raise UsageError(
            f"--conditions {text}: {unknown[0] if unknown else 'nothing'} is none; known: {', '.join(known)}"
        )
    return names


def _faults(text: str) -> list[Any]:
    from draftproof.proof.lab.faults import FAULTS

    if text == "all":
        return list(FAULTS)
    chosen = []
    for word in filter(None, text.split(",")):
        found = [f for f in FAULTS if word in (f.name, f.code)]
        if not found:
            raise UsageError(f"--faults {word}: no such fault; known: {', '.join(f.name for f in FAULTS)}")
        chosen += [f for f in found if f not in chosen]
    return chosen


def _table(faults: list[dict[str, Any]], conditions: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("fault", min_width=12)
    for condition in conditions:
        table.add_column(f"τ {condition}", justify="right", no_wrap=True)
    table.add_column("left", justify="right", no_wrap=True)
    table.add_column("what it is")
    for row in faults:
        by = row["conditions"]
        left = [c["left"] for c in by.values() if c["left"] is not None]
        table.add_row(
            row["name"],
            *(f"{by[c]['tau']:.2f}" if c in by and by[c]["tau"] is not None else "" for c in conditions),
            f"{100 * min(left):.0f} %" if left else "",
            row["says"],
        )
    return table
