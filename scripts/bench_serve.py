"""The benchmark of the server: throughput, exactness under load, faults, hostile requests. Into results/serve.json.

make bench-serve                            every phase; 64 clients for 10 minutes among them
make bench-serve SHORT=1                    the same phases in a few minutes, to see that they run
make bench-serve ONLY=throughput,soak       only these, beside what the file holds of others
make bench-serve ONLY=timed                 those that want an idle machine; ONLY=untimed: the others
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from draftproof.bench.provenance import short_path
from draftproof.bench.serving.phases import chosen, run
from draftproof.bench.serving.plan import Plan
from draftproof.bench.workloads import load_workload
from draftproof.errors import DraftproofError
from draftproof.runtime import allow_many_connections

_SHORT = {
    "concurrency": (1, 4), "tokens": 24, "requests": 8, "repeats": 1, "soak_s": 20.0, "soak_clients": 8,
    "fault_s": 8.0, "fault_clients": 4, "idle_connections": 500, "schemas": 8, "examples": 3,
}  # fmt: skip


def main(
    model: Annotated[str, typer.Option("--model", "-m")] = "bundled:smollm2",
    drafter: Annotated[str, typer.Option("--drafter", "-d")] = "random",
    prompts: Annotated[list[str] | None, typer.Option("--prompts")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Questions of each file.")] = 64,
    dtype: Annotated[str, typer.Option("--dtype")] = "bfloat16",
    threads: Annotated[int | None, typer.Option("--threads", help="Of each server.")] = None,
    only: Annotated[
        str | None, typer.Option("--only", help="Phases with commas between, or timed, or untimed.")
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="Everything small: to see that it runs.")] = False,
    soak_s: Annotated[float, typer.Option("--soak-s", help="Length of the long run.")] = 600.0,
    tokens: Annotated[int, typer.Option("--tokens", help="Of an answer.")] = 64,
    repeats: Annotated[int, typer.Option("--repeats", help="Of what is timed.")] = 5,
    streams: Annotated[list[int] | None, typer.Option("--streams")] = None,
    out: Annotated[Path, typer.Option("--out")] = Path("results/serve.json"),
    log: Annotated[Path, typer.Option("--log", help="The servers' own words.")] = Path("bench-serve.log"),
) -> None:
    allow_many_connections()
    command = shlex.join(["python", "scripts/bench_serve.py", *(short_path(word) for word in sys.argv[1:])])
    try:
        names = chosen(only)
        workloads = [load_workload(source, limit=limit) for source in prompts or ["demo"]]
        given_threads = [] if threads is None else ["--threads", str(threads)]
        plan = Plan(
            serve=["-m", model, "--dtype", dtype, "--max-num-seqs", "64", "--kv-cache-gb", "2", "-q", *given_threads],
            drafter=["-d", drafter],
            questions=[p.messages[-1]["content"] for w in workloads for p in w.prompts],
            concurrency=streams or (1, 2, 4, 8, 16, 32, 64),
            tokens=tokens,
            requests=24,
            repeats=repeats,
            soak_s=soak_s,
            soak_clients=64,
            fault_s=60.0,
            fault_clients=8,
            idle_connections=10_000,
            schemas=200,
            examples=30,
            log=log,
        )
        failed = run(replace(plan, **_SHORT) if short else plan, names, out, command, _say)  # type: ignore[arg-type]
    except DraftproofError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    if failed:
        print(f"error: failed: {', '.join(failed)}; the rest is in {out}, the servers' words in {log}", file=sys.stderr)
        raise SystemExit(1)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    typer.run(main)
