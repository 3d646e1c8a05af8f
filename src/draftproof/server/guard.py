"""What every request passes first: key, origin, content type, size and patience for its body. Plain ASGI, so that
streams and disconnects go through untouched."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from draftproof.server.errors import ApiError
from draftproof.server.options import ServerOptions

# Anybody may look at these: they tell what runs and how well, nothing of what is said.
OPEN = {"/health", "/ready", "/metrics", "/version", "/", "/app.js", "/chart.js", "/style.css"}
_METHODS_WITH_BODY = {"POST", "PUT", "PATCH"}
_PATIENCE_S = 0.5  # between two looks at whether the server is going down


class Guard:
    """``responded(route, status)`` is told every response's status. ``draining()``: nothing new is taken any more."""

    def __init__(
        self,
        app: ASGIApp,
        options: ServerOptions,
        responded: Callable[[str, int], None],
        draining: Callable[[], bool],
    ) -> None:
        self._app, self._options, self._responded, self._draining = app, options, responded, draining
        self._key = _digest(options.api_key) if options.api_key else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told: dict[str, Any] = {}

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                told["status"] = message["status"]
            await send(message)

        try:
            self._check(scope)
            body = await self._body(scope, receive) if scope["method"] in _METHODS_WITH_BODY else None
        except ApiError as error:
            closing = {"Connection": "close"} if error.status in (408, 413, 503) else {}
            await error.response(closing)(scope, receive, watched)
        except _Gone:
            return
        else:
            await self._app(scope, receive if body is None else _once(body, receive), watched)
        finally:
            route = scope.get("route")
            self._responded(getattr(route, "path", "other"), told.get("status", 499))

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self._key is not None and scope["path"] not in OPEN:
            scheme, _, key = headers.get("authorization", "").partition(" ")
            right = hmac.compare_digest(_digest(key.strip()), self._key)
            if scheme.lower() != "bearer" or not right:
                raise ApiError(401, "a valid API key is needed: Authorization: Bearer …", code="invalid_api_key")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != headers.get("host"):
            raise ApiError(403, "requests from pages of other origins are refused", code="cross_origin")
        if scope["method"] in _METHODS_WITH_BODY:
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise ApiError(415, "the body must be JSON: Content-Type: application/json", code="content_type")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, as long as it is neither too large nor too slow."""
        most = self._options.max_body_bytes
        length = Headers(scope=scope).get("content-length", "0")
        if length.isascii() and length.isdigit() and len(length) < 20 and int(length) > most:
            raise _too_large(most)
        parts: list[bytes] = []
        size = 0
        deadline = asyncio.get_running_loop().time() + self._options.body_timeout_s
        while True:
            message = await self._next(receive, deadline)
            if message["type"] == "http.disconnect":
                raise _Gone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise _too_large(most)
            if not message.get("more_body"):
                return b"".join(parts)

    async def _next(self, receive: Receive, deadline: float) -> Message:
        """The next part of a body. Whoever is slow with it must not hold up a drain."""
        now = asyncio.get_running_loop().time
        while True:
            try:
                async with asyncio.timeout_at(min(deadline, now() + _PATIENCE_S)):
                    return await receive()
            except TimeoutError:
                if self._draining():
                    raise ApiError(503, "the server is shutting down", code="draining", retry_after=5) from None
                if now() >= deadline:
                    seconds = self._options.body_timeout_s
                    raise ApiError(408, f"the body did not arrive within {seconds:g} s") from None


class _Gone(Exception):
    """The client left in the middle of its body."""


def _once(body: bytes, receive: Receive) -> Receive:
    """The body that has been read already, then whatever comes after it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"the body is larger than {most} bytes", code="body_too_large")


def _digest(key: str) -> bytes:
    """Digests have one length, so comparing them tells nothing of the key's."""
    return hashlib.sha256(key.encode("utf-8", errors="surrogateescape")).digest()
