"""The server against its own OpenAPI document: whatever schemathesis makes of it, no 5xx."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.bench.serving.fuzz import fuzz

from .world import served, tiny_engine

pytest.importorskip("schemathesis")
EXAMPLES = 40  # per operation


def test_no_defect() -> None:
    with served(tiny_engine("chain"), request_timeout_s=20.0) as server:

        def post(path: str, body: Any) -> tuple[int, Any]:
            return server.post(path, body)[::2]

        statuses = fuzz(server.url, post, EXAMPLES)
        assert len(statuses) >= 11
        for path in ("POST /v1/chat/completions", "POST /v1/completions"):
            assert len(statuses[path]) >= EXAMPLES and 200 in statuses[path], statuses[path]
        assert server.chat()["choices"]


def test_a_defect_would_be_found() -> None:
    with served(tiny_engine(None)) as server:

        def broken(*arguments: Any, **options: Any) -> Any:
            raise ZeroDivisionError("on purpose")

        server.service.prompts.text = broken  # type: ignore[method-assign]
        with pytest.raises(AssertionError, match="internal error: ZeroDivisionError"):
            fuzz(server.url, lambda path, body: server.post(path, body)[::2], EXAMPLES)


def test_the_document_tells_what_is_taken() -> None:
    from draftproof.server.schema_chat import ChatBody

    with served(tiny_engine(None)) as server:
        _, _, document = server.get("/openapi.json")
    known = document["components"]["schemas"]["ChatBody"]["properties"]
    assert set(known) == set(ChatBody.model_fields)
    assert {"/v1/chat/completions", "/v1/completions", "/v1/models", "/tokenize", "/metrics"} <= set(document["paths"])
