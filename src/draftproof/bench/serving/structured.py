"""Structured output: is it always valid, and what does a grammar do to τ."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any

from draftproof.bench.acceptance import wilson
from draftproof.bench.serving.client import Body, Got, wave
from draftproof.bench.serving.load import tau
from draftproof.bench.serving.plan import DRAFTER, Bench
from draftproof.bench.serving.schemas import random_schema

_CLIENTS = 4
_MOST_TOKENS = 900
_JSON = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "maxLength": 200},
        "steps": {"type": "array", "items": {"type": "string", "maxLength": 60}, "maxItems": 4},
        "sure": {"type": "boolean"},
    },
    "required": ["answer", "steps", "sure"],
    "additionalProperties": False,
}


def structured(bench: Bench) -> dict[str, Any]:
    """The same questions free and under a schema, drafts of full length: τ of both depends on no clock."""
    url = bench.server(DRAFTER, "--length-policy", "fixed").url
    bodies = bench.plan.bodies(bench.plan.requests)
    told: dict[str, Any] = {"requests": len(bodies)}
    for way, extra in (("free", {}), ("schema", {"response_format": schema_format(_JSON), "max_tokens": 300})):
        answers, _ = asyncio.run(wave(url, [body | extra for body in bodies], _CLIENTS, details=True))
        told[way] = tau(answers) | {"tokens": sum(a.tokens for a in answers)}
        if extra:
            told[way] |= judged(answers, [_JSON] * len(answers))
    bench.progress(f"τ {told['free']['tau'] or 1:.2f} free, {told['schema']['tau'] or 1:.2f} under a schema")
    return told


def schemas(bench: Bench) -> dict[str, Any]:
    """Generated schemas, every other one sampled at temperature 1; a validator of its own judges the answers."""
    url = bench.server(DRAFTER).url
    made = [random_schema(random.Random(seed)) for seed in range(bench.plan.schemas)]
    bodies: list[Body] = [
        body | {"response_format": schema_format(schema), "temperature": float(i % 2), "seed": i}
        for i, (schema, body) in enumerate(zip(made, bench.plan.bodies(len(made), _MOST_TOKENS), strict=True))
    ]
    answers, seconds = asyncio.run(wave(url, bodies, _CLIENTS, details=True))
    told = judged(answers, made) | tau(answers) | {"tokens": sum(a.tokens for a in answers), "seconds": seconds}
    bench.progress(f"{told['valid']} of {told['asked']} answers to generated schemas are valid")
    return told


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def judged(answers: Sequence[Got], made: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How many are valid; ``unfinished``: cut off at the limit or failed, which counts as not valid."""
    valid = sum(_valid(got, schema) for got, schema in zip(answers, made, strict=True))
    return {
        "asked": len(answers),
        "valid": valid,
        "valid_ci95": wilson(valid, len(answers)),
        "unfinished": sum(got.finish != "stop" for got in answers),
        "errors": sorted({got.error for got in answers if got.error}),
    }


def _valid(got: Got, schema: dict[str, Any]) -> bool:
    import jsonschema_rs  # of the dev extra, by schemathesis; only this phase needs it

    try:
        return got.finish == "stop" and bool(jsonschema_rs.is_valid(schema, json.loads(got.text)))
    except ValueError:
        return False
