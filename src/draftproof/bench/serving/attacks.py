"""Hostile and generated requests to a server that is otherwise at rest, and whether it is unharmed after them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import httpx2

from draftproof.bench.serving.client import client, metric, verdict, wave
from draftproof.bench.serving.fuzz import fuzz
from draftproof.bench.serving.hostile import fault_of, hostile_requests
from draftproof.bench.serving.plan import DRAFTER, Bench

_JSON = {"Content-Type": "application/json"}


def hostile(bench: Bench) -> dict[str, Any]:
    """Each must be refused with 4xx in OpenAI's shape; then the server answers as before and holds nothing."""
    server = bench.server(DRAFTER)
    told = asyncio.run(_send_all(server.url, int(server.engine["max_model_len"]))) | unharmed(bench)
    bench.progress(f"{told['requests']} hostile requests, {len(told['not_refused'])} not refused as they should be")
    return told


async def _send_all(url: str, most: int) -> dict[str, Any]:
    statuses: Counter[str] = Counter()
    wrong: list[dict[str, Any]] = []
    async with client(url) as session:
        for path, name, body in hostile_requests(most):
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            response = await session.post(path, content=raw, headers=_JSON)
            statuses[str(response.status_code)] += 1
            if fault := fault_of(response.status_code, _json(response)):
                wrong.append({"endpoint": path, "parameter": name, "body": str(body)[:100], "fault": fault})
    return {"requests": statuses.total(), "statuses": dict(sorted(statuses.items())), "not_refused": wrong}


def _json(response: httpx2.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return response.text


def unharmed(bench: Bench) -> dict[str, Any]:
    """Does it still answer its references, and is nothing left running?"""
    url = bench.server(DRAFTER).url
    count = min(4, len(bench.references))
    answers, _ = asyncio.run(wave(url, bench.plan.bodies(count), 2))
    right = sum(not verdict(a, r) for a, r in zip(answers, bench.references, strict=False))
    left = sum(asyncio.run(metric(url, name)) for name in ("num_requests_running", "num_requests_waiting"))
    return {"references_after": f"{right} of {count}", "requests_left": int(left)}


def schemathesis(bench: Bench) -> dict[str, Any]:
    """Statuses by operation. A 5xx ends the phase with the request that did it."""
    url = bench.server(DRAFTER, "--request-timeout-s", "100").url
    with httpx2.Client(base_url=url, timeout=120) as session:

        def post(path: str, body: Any) -> tuple[int, Any]:
            response = session.post(path, content=json.dumps(body).encode(), headers=_JSON)
            return response.status_code, _json(response)

        statuses = fuzz(url, post, bench.plan.examples)
    counts = Counter(str(status) for each in statuses.values() for status in each)
    told = {
        "operations": len(statuses),
        "examples": bench.plan.examples,
        "requests": counts.total(),
        "statuses": dict(sorted(counts.items())),
        "server_errors": sum(n for status, n in counts.items() if int(status) >= 500),
    } | unharmed(bench)
    bench.progress(f"{told['requests']} generated requests to {told['operations']} operations, no 5xx")
    return told
