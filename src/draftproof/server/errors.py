"""Errors as OpenAI's clients expect them: ``{"error": {message, type, param, code}}`` and a fitting status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.responses import JSONResponse

_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
    504: "timeout_error",
}


class ApiError(Exception):
    """An answer other than 200. ``param``: the parameter at fault; ``retry_after``: seconds."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}

    def body(self) -> dict[str, Any]:
        return {
            "error": {
                "message": self.message,
                "type": _TYPES.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self, headers: Mapping[str, str] | None = None) -> JSONResponse:
        return JSONResponse(self.body(), self.status, headers={**self.headers, **(headers or {})})


def from_validation(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """What is wrong with a body, by the first thing that is; a parameter we do not know is refused by its name."""
    error = errors[0]
    where = [str(part) for part in error.get("loc", ()) if part != "body"]
    param = ".".join(where) or None
    kind = str(error.get("type", ""))
    if kind == "extra_forbidden":
        return ApiError(400, f"parameter {param!r} is not supported by this server", param=param, code="unsupported")
    if kind in ("json_invalid", "json_type"):
        return ApiError(400, "the body is not valid JSON", code="invalid_json")
    message = str(error.get("msg", "invalid")).removeprefix("Value error, ")
    if kind == "missing":
        return ApiError(400, f"parameter {param!r} is required", param=param, code="missing")
    return ApiError(400, f"{param}: {message}" if param else message, param=param, code="invalid_value")
