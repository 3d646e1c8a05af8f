"""The server against its own OpenAPI document, by schemathesis: whatever that makes of it, no 5xx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from draftproof.bench.serving.client import CHAT
from draftproof.bench.serving.hostile import GOOD
from draftproof.errors import UnavailableError

# path, body → status and what was told
Post = Callable[[str, Any], tuple[int, Any]]


def fuzz(url: str, post: Post, examples: int) -> dict[str, list[int]]:
    """Every operation with so many generated requests; the statuses by operation. A generated body is mostly wrong in
    many ways at once, so one of its parameters is also sent in a right body. ``AssertionError`` at a 5xx or at an error
    that is not in OpenAI's shape."""
    try:
        import schemathesis
        from hypothesis import HealthCheck, given, settings
    except ModuleNotFoundError as error:
        raise UnavailableError(f"fuzzing needs {error.name}: pip install 'draftproof[dev]'") from None
    statuses: dict[str, list[int]] = {}
    for found in schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]
        taken = statuses.setdefault(f"{operation.method.upper()} {operation.path}", [])

        @given(case=operation.as_strategy())
        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            report_multiple_bugs=False,  # several would come as a group, which no caller asks for
            suppress_health_check=list(HealthCheck),
        )
        def one(case: Any) -> None:
            taken.extend(_attack(case, operation.path, post))  # noqa: B023 - runs at once

        one()
    return statuses


def _attack(case: Any, path: str, post: Post) -> list[int]:
    _shorten(case)
    response = case.call(timeout=120)
    statuses = [response.status_code]
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}, response.text
    if path in GOOD and isinstance(case.body, dict) and case.body:
        name = sorted(case.body)[len(str(case.body)) % len(case.body)]  # alone it is often right
        status, told = post(path, GOOD[path] | {name: case.body[name]})
        assert status < 500, told
        statuses.append(status)
    return statuses


def _shorten(case: Any) -> None:
    """Answers as long as the context would only take time."""
    if not isinstance(case.body, dict):
        return
    for name in ("max_tokens", "max_completion_tokens"):
        if isinstance(case.body.get(name), int) and case.body[name] > 20:
            case.body[name] = 20
    if case.operation.path == CHAT and not {"max_tokens", "max_completion_tokens"} & set(case.body):
        case.body["max_tokens"] = 5
