"""The benchmark of the server: throughput, exactness under load, faults, drain. Into results/serve.json.

make bench-serve           10 minutes of 64 clients; about an hour in all on two cores
make bench-serve SHORT=1   the same steps in a few minutes, to see that they run
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from draftproof.bench.provenance import load_average, provenance
from draftproof.bench.results import to_text, write_result
from draftproof.bench.serving.plan import Plan, run
from draftproof.bench.workloads import load_workload
from draftproof.errors import DraftproofError
from draftproof.runtime import allow_many_connections


def main(
    model: Annotated[str, typer.Option("--model", "-m")] = "bundled:smollm2",
    drafter: Annotated[str, typer.Option("--drafter", "-d")] = "random",
    prompts: Annotated[list[str] | None, typer.Option("--prompts")] = None,
    dtype: Annotated[str, typer.Option("--dtype")] = "bfloat16",
    clients: Annotated[int, typer.Option("--clients", help="Of the long run.")] = 64,
    seconds: Annotated[float, typer.Option("--seconds", help="Of the long run.")] = 600.0,
    idle: Annotated[int, typer.Option("--idle", help="Idle connections beside it.")] = 10_000,
    tokens: Annotated[int, typer.Option("--tokens", help="Of an answer.")] = 64,
    streams: Annotated[list[int] | None, typer.Option("--streams")] = None,
    repeats: Annotated[int, typer.Option("--repeats")] = 3,
    requests: Annotated[int, typer.Option("--requests", help="Of a wave.")] = 64,
    out: Annotated[Path, typer.Option("--out")] = Path("results/serve.json"),
    log: Annotated[Path, typer.Option("--log", help="The servers' own words.")] = Path("bench-serve.log"),
) -> None:
    allow_many_connections()
    before = load_average()
    try:
        workloads = [load_workload(source, limit=64) for source in prompts or ["demo"]]
        plan = Plan(
            serve=["-m", model, "--dtype", dtype, "--max-num-seqs", "64", "--kv-cache-gb", "2", "-q"],
            drafter=["-d", drafter],
            questions=[p.messages[-1]["content"] for w in workloads for p in w.prompts],
            concurrency=streams or (1, 2, 4, 8, 16, 32, 64),
            tokens=tokens,
            requests=requests,
            repeats=repeats,
            soak_s=seconds,
            soak_clients=clients,
            idle_connections=idle,
            log=log,
        )
        document = run(plan, lambda line: print(line, file=sys.stderr, flush=True))
        document |= {"provenance": provenance(), "load_average": {"before": before, "after": load_average()}}
        write_result(out, document)
    except DraftproofError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    print(to_text(document))


if __name__ == "__main__":
    typer.run(main)
