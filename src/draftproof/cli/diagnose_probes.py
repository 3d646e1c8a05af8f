"""The probing half of ``diagnose``: its flags, what it announces, and how it is run."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from draftproof.cli.flags import flag_name, given
from draftproof.cli.terminal import note, out_console, print_trimmed
from draftproof.errors import UsageError

if TYPE_CHECKING:
    from draftproof.proof.case import Case
    from draftproof.proof.runtime.probe_plan import Plan

MAX_REQUESTS, MAX_CONCURRENCY, RAW = 40, 4, Path("draftproof-probes.jsonl")


def _option(name: str, metavar: str | None, help: str) -> Any:
    return typer.Option(name, metavar=metavar, help=help, show_default=False, rich_help_panel="Live probes")


@dataclass(frozen=True)
class ProbeFlags:
    """A running server, and how far to go with it."""

    endpoint: Annotated[str | None, _option("--endpoint", "URL", "Send a few requests to this server.")] = None
    plain_endpoint: Annotated[
        str | None, _option("--plain-endpoint", "URL", "The same model without a drafter: same text, and how fast?")
    ] = None
    model: Annotated[
        str | None, _option("--model", "NAME", "Model to ask for. [default: the first one the server lists]")
    ] = None
    max_requests: Annotated[int | None, _option("--max-requests", "N", f"At most. [default: {MAX_REQUESTS}]")] = None
    max_concurrency: Annotated[
        int | None, _option("--max-concurrency", "N", f"Requests at a time, at most. [default: {MAX_CONCURRENCY}]")
    ] = None
    timeout: Annotated[float | None, _option("--timeout", "S", "Longest wait for an answer. [default: 120]")] = None
    raw: Annotated[
        Path | None, _option("--raw", "FILE", f"Every request and answer as JSON Lines. [default: {RAW}]")
    ] = None
    dry_run: Annotated[bool, _option("--dry-run", None, "List the requests and send none.")] = False


def checked(probes: ProbeFlags) -> None:
    """Flags that need an endpoint have one; numbers lie in their range."""
    if probes.endpoint is None:
        for name in (name for name, value in given(probes).items() if value is not False):
            raise UsageError(f"{flag_name(name)} has no effect without --endpoint URL")
    for name, least in (("max_requests", 1), ("max_concurrency", 1), ("timeout", 1)):
        value = getattr(probes, name)
        if value is not None and value < least:
            raise UsageError(f"{flag_name(name)} {value:g} is out of range: it must be at least {least}")


def plan_of(probes: ProbeFlags, case: Case) -> Plan:
    from draftproof.proof.layouts import layout_of
    from draftproof.proof.runtime.probe_plan import make_plan

    window = layout_of(case).window
    return make_plan(
        max_requests=probes.max_requests or MAX_REQUESTS,
        max_concurrency=probes.max_concurrency or MAX_CONCURRENCY,
        window=None if window is None else int(window.value),
        plain=probes.plain_endpoint is not None,
    )


def list_plan(plan: Plan, json_output: bool) -> None:
    """What would be sent: ``--dry-run``."""
    if json_output:
        groups = [
            {
                "name": group.name,
                "why": group.why,
                "streams": group.streams,
                "against": group.against,
                "requests": [ask.body("MODEL") for ask in group.asks],
            }
            for group in plan.groups
        ]
        document = {"schema_version": "draftproof.probes/1", "groups": groups, "left_out": list(plan.left_out)}
        print(json.dumps(document, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("group", "requests", "at a time", "why"):
        table.add_column(column)
    for group in plan.groups:
        table.add_row(group.name, str(len(group.asks)), str(group.streams), group.why)
    print_trimmed(out_console(), table)
    left = f"; no room for {', '.join(plan.left_out)}" if plan.left_out else ""
    note(f"{plan.requests} requests, up to {max(g.asks[0].max_tokens for g in plan.groups)} tokens each{left}")


def probe(probes: ProbeFlags, plan: Plan, case: Case, key: str | None) -> tuple[Case, list[Case], tuple[str, ...]]:
    """(the case with what was measured, comparisons to judge beside it, notes)."""
    from draftproof.proof.runtime.endpoint import Endpoint
    from draftproof.proof.runtime.evidence import add
    from draftproof.proof.runtime.probing import probed, run_plan

    assert probes.endpoint is not None
    timeout = probes.timeout or 120.0
    server = Endpoint(probes.endpoint, key=key, model=probes.model, timeout=timeout)
    plain = Endpoint(probes.plain_endpoint, key=key, timeout=timeout) if probes.plain_endpoint else None
    raw = probes.raw or RAW
    model = server.model
    plan = plan.within(server.max_model_len)
    note(f"{plan.requests} requests to {server.name} (model {model}); raw data in {raw}")
    try:
        done = run_plan(plan, server, plain, raw, note)
    finally:
        for one in (server, plain):
            if one is not None:
                one.close()
    found = probed(done)
    origins = {"metrics": f"probe of {server.name} ({raw})"}
    main = case
    if not case.observations:
        first = replace(found.observations[0], label="probe: cold")
        main = add(replace(case, workload={**case.workload, "temperature": 0}), [first], origins)
    pairs = [
        replace(pair, origins={**case.origins, "observations.0": str(raw), "observations.1": str(raw)})
        for pair in found.cases(case)
    ]
    left = [f"no room for {', '.join(plan.left_out)}: raise --max-requests"] if plan.left_out else []
    if plan.too_long:
        left.append(f"not probed, the server's context of {server.max_model_len} is short: {', '.join(plan.too_long)}")
    return main, pairs, (*found.notes, *left)
