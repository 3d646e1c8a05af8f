"""The server against its own OpenAPI document: whatever schemathesis makes of it, no 5xx."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from .world import Served, served, tiny_engine

schemathesis = pytest.importorskip("schemathesis")
EXAMPLES = 40  # per operation
GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
    "/v1/completions": {"prompt": "hi", "max_tokens": 5},
}


def short(case: Any) -> None:
    """Answers as long as the context would only take time."""
    if not isinstance(case.body, dict):
        return
    for name in ("max_tokens", "max_completion_tokens"):
        if isinstance(case.body.get(name), int) and case.body[name] > 20:
            case.body[name] = 20
    if "messages" in case.body and not {"max_tokens", "max_completion_tokens"} & set(case.body):
        case.body["max_tokens"] = 5


def attack(server: Served, operation: Any, statuses: list[int]) -> None:
    @given(case=operation.as_strategy())
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def one(case: Any) -> None:
        short(case)
        response = case.call(timeout=60)
        statuses.append(response.status_code)
        assert response.status_code < 500, response.text
        if response.status_code >= 400:
            assert set(response.json()["error"]) == {"message", "type", "param", "code"}, response.text
        if operation.path in GOOD and isinstance(case.body, dict) and case.body:
            name = sorted(case.body)[len(str(case.body)) % len(case.body)]  # alone it is often right
            status, _, told = server.post(operation.path, GOOD[operation.path] | {name: case.body[name]})
            assert status < 500, told
            statuses.append(status)

    one()


def test_no_defect() -> None:
    with served(tiny_engine("chain"), request_timeout_s=20.0) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
        statuses: dict[str, list[int]] = {}
        for found in schema.get_all_operations():
            operation = found.ok()
            attack(server, operation, statuses.setdefault(f"{operation.method.upper()} {operation.path}", []))
        assert len(statuses) >= 11
        for path in ("POST /v1/chat/completions", "POST /v1/completions"):
            assert len(statuses[path]) >= EXAMPLES and 200 in statuses[path], statuses[path]
        assert server.chat()["choices"]


def test_the_document_tells_what_is_taken() -> None:
    from draftproof.server.schema_chat import ChatBody

    with served(tiny_engine(None)) as server:
        _, _, document = server.get("/openapi.json")
    known = document["components"]["schemas"]["ChatBody"]["properties"]
    assert set(known) == set(ChatBody.model_fields)
    assert {"/v1/chat/completions", "/v1/completions", "/v1/models", "/tokenize", "/metrics"} <= set(document["paths"])
