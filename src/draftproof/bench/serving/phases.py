"""The phases of the benchmark, each with its own time and provenance, gathered in one result document."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from draftproof.bench.provenance import load_average, provenance
from draftproof.bench.results import read_result, write_result
from draftproof.bench.serving.attacks import hostile, schemathesis
from draftproof.bench.serving.equality import equality
from draftproof.bench.serving.load import first_token, one_stream, second_turn, throughput
from draftproof.bench.serving.plan import Bench, Plan, Progress
from draftproof.bench.serving.soak import faults, kill, small_pool, soak
from draftproof.bench.serving.structured import schemas, structured
from draftproof.errors import DraftproofError, UsageError

SCHEMA = "draftproof.serve-bench/2"
# In the order in which they run. The first four measure time and want an idle machine.
PHASES: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "throughput": throughput,
    "one_stream": one_stream,
    "first_token": first_token,
    "soak": soak,
    "second_turn": second_turn,
    "structured": structured,
    "schemas": schemas,
    "equality": equality,
    "hostile": hostile,
    "schemathesis": schemathesis,
    "faults": faults,
    "small_pool": small_pool,
    "kill": kill,
}
TIMED = ("throughput", "one_stream", "first_token", "soak")


def chosen(only: str | None) -> list[str]:
    """Names from a list with commas; ``timed`` and ``untimed`` stand for the two groups."""
    groups = {"timed": list(TIMED), "untimed": [name for name in PHASES if name not in TIMED]}
    wanted = [name for word in (only or ",".join(PHASES)).split(",") for name in groups.get(word, [word])]
    for name in wanted:
        if name not in PHASES:
            raise UsageError(f"phase {name!r} is unknown: choose from {', '.join([*PHASES, *groups])}")
    return [name for name in PHASES if name in wanted]


def run(plan: Plan, names: Sequence[str], out: Path, command: str, progress: Progress) -> list[str]:
    """Run these phases. Each is written into ``out`` as soon as it has ended, beside those that are there already,
    so that nothing measured is lost and a run can be taken up again. Returns the names of those that failed."""
    failed = []
    with plan.log.open("ab") as log, Bench(plan, log, progress) as bench:
        for name in names:
            began, before = perf_counter(), load_average()
            try:
                result = PHASES[name](bench)
            except (DraftproofError, AssertionError, OSError) as error:
                failed.append(name)
                bench.close()  # the next one gets servers of its own
                log.write(traceback.format_exc().encode())
                progress(f"{name} failed: {str(error)[:500]}")
                continue
            origin = provenance() | {"command": command}
            origin |= {"seconds": perf_counter() - began, "load_average": {"before": before, "after": load_average()}}
            _add(out, name, {"result": result, "settings": _settings(bench), "provenance": origin})
    return failed


def _settings(bench: Bench) -> dict[str, Any]:
    plan = bench.plan
    return {
        "serve": [*plan.serve],
        "drafter": [*plan.drafter],
        "questions": len(plan.questions),
        "tokens": plan.tokens,
        "requests": plan.requests,
    }


def _add(out: Path, name: str, phase: dict[str, Any]) -> None:
    document: dict[str, Any] = read_result(out) if out.exists() else {"schema_version": SCHEMA, "phases": {}}
    if document["schema_version"] != SCHEMA:
        raise UsageError(f"{out}: has schema {document['schema_version']}, not {SCHEMA}; choose another --out")
    phases = document["phases"] | {name: phase}
    write_result(out, document | {"phases": {key: phases[key] for key in PHASES if key in phases}})
