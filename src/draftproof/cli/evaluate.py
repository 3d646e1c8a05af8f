"""``draftproof evaluate``: what a drafter's proposals are worth on given prompts, in tokens per round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.table import Table

from draftproof.cli.flags import given, with_flags
from draftproof.cli.opening import open_engine
from draftproof.cli.options import CommonFlags, JsonFlag, LoadFlags, Model, SpeculationFlags
from draftproof.cli.params import check_loading, check_speculation
from draftproof.cli.terminal import note, out_console, print_trimmed, rounded
from draftproof.errors import UsageError

SCHEMA = "draftproof.evaluate/1"


@with_flags
def evaluate(
    model: Model,
    load: LoadFlags,
    speculation: SpeculationFlags,
    common: CommonFlags,
    prompts: Annotated[
        list[str] | None, typer.Option("--prompts", metavar="FILE", help="JSON Lines; repeatable. [default: demo]")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="Most prompts taken of each file.")] = 40,
    seed: Annotated[int, typer.Option("--seed", help="Chooses which prompts, where there are more.")] = 0,
    max_tokens: Annotated[int, typer.Option("--max-tokens", metavar="N", help="Per prompt.")] = 128,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also save the result as JSON.")] = None,
    json_output: JsonFlag = False,
) -> None:
    """τ and acceptance per position, greedy, with confidence intervals; repetition loops are left out."""
    if load.drafter is None or speculation.method == "none":
        raise UsageError("evaluate measures a drafter: give a --drafter")
    check_loading(model, load)
    check_speculation(load, speculation, greedy=True)
    # What a drafter is worth shows when it always drafts; the policy would leave out what it is bad at.
    arguments = {"target": model, "length_policy": "fixed"} | given(load) | given(speculation)
    engine = open_engine(arguments, quiet=common.quiet, debug=common.debug)
    from draftproof.bench.provenance import provenance, short_path
    from draftproof.bench.workloads import encode, load_workload
    from draftproof.train.evaluation import measure

    found: dict[str, Any] = {}
    for name in prompts or ["demo"]:
        workload = load_workload(name, limit=limit, seed=seed)
        note(f"{workload.name}: {len(workload.prompts)} prompts", quiet=common.quiet)
        ids = [(p.name, encode(cast(Any, engine), p)) for p in workload.prompts]
        result = measure(cast(Any, engine), ids, max_tokens).to_dict()
        found[workload.name] = result | {"workload": workload.describe()}
    described = engine.describe()
    described |= {name: short_path(str(described[name])) for name in ("target", "drafter")}
    document = {
        "schema_version": SCHEMA,
        "engine": described,
        "max_tokens": max_tokens,
        "workloads": found,
        "provenance": provenance(seed),
    }
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(rounded(document), indent=1) + "\n", encoding="utf-8")
    if json_output:
        print(json.dumps(rounded(document)))
        return
    print_trimmed(out_console(), _table(found))


def _table(found: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column, width in (("prompts", 12), ("τ", 4), ("95 %", 9), ("rounds", 6), ("loops", 5)):
        table.add_column(column, min_width=width)  # narrow terminals fold the rates, not these
    table.add_column("accepted at least 1, 2, …")
    for name, result in found.items():
        interval = result["tau_ci95"]
        table.add_row(
            f"{name} ({result['prompts']})",
            "–" if result["tau"] is None else f"{result['tau']:.2f}",
            "–" if interval is None else f"{interval[0]:.2f}–{interval[1]:.2f}",
            str(result["rounds"]),
            str(result["looping"]),
            " ".join(f"{rate:.2f}" for rate in result["rates"]),
        )
    return table
