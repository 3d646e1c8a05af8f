"""The FastAPI application: routes, and errors in OpenAI's shape."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from draftproof import __version__
from draftproof.engine.engine import Engine
from draftproof.server.completing import chat, complete
from draftproof.server.errors import ApiError, from_validation
from draftproof.server.guard import Guard
from draftproof.server.options import ServerOptions
from draftproof.server.schema_chat import ChatBody
from draftproof.server.schema_completion import CompletionBody, DetokenizeBody, TokenizeBody
from draftproof.server.service import Service

_PAGE = {"/": ("index.html", "text/html"), "/app.js": ("app.js", "text/javascript"),
         "/chart.js": ("chart.js", "text/javascript"), "/style.css": ("style.css", "text/css")}  # fmt: skip
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    error: ErrorDetail


_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody} for status in (400, 401, 403, 404, 405, 408, 413, 415, 429, 500, 503, 504)
}


def make_app(engine: Engine, options: ServerOptions) -> FastAPI:
    """The application around an engine; its thread runs while the application does."""
    service = Service(engine, options)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.runner.start()
        yield
        service.runner.stop()
        service.prompts.close()

    app = FastAPI(
        title="draftproof", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, responses=_ERRORS
    )
    app.state.service = service
    _add_errors(app)
    _add_completions(app, service)
    _add_models_and_tokens(app, service)
    _add_state(app, service)
    _add_page(app)
    app.add_middleware(Guard, options=options, responded=service.metrics.responded, draining=lambda: service.draining)
    return app


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def api_error(request: Request, error: ApiError) -> Response:
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def validation(request: Request, error: RequestValidationError) -> Response:
        return from_validation(error.errors()).response()

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        told = {404: f"there is no {request.url.path}", 405: f"{request.method} is not possible here"}
        return ApiError(error.status_code, told.get(error.status_code, str(error.detail))).response(error.headers)

    @app.exception_handler(Exception)
    async def defect(request: Request, error: Exception) -> Response:
        return ApiError(500, f"internal error: {type(error).__name__}", code="internal").response()


def _add_completions(app: FastAPI, service: Service) -> None:
    @app.post("/v1/chat/completions", response_model=None)
    async def chat_completions(body: ChatBody, request: Request) -> Response:
        return await chat(service, body, request)

    @app.post("/v1/completions", response_model=None)
    async def completions(body: CompletionBody, request: Request) -> Response:
        return await complete(service, body, request)


def _add_models_and_tokens(app: FastAPI, service: Service) -> None:
    engine = service.engine
    model = {
        "id": service.name,
        "object": "model",
        "created": 0,
        "owned_by": "draftproof",
        "max_model_len": engine.max_model_len,
    }

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [model]}

    @app.get("/v1/models/{name:path}")
    async def one_model(name: str) -> dict[str, Any]:
        service.check_model(name)
        return model

    @app.post("/tokenize")
    async def tokenize(body: TokenizeBody) -> dict[str, Any]:
        service.check_model(body.model)
        if body.messages is not None:
            ids = (await service.prompts.work(service.prompts.messages, body.messages)).token_ids
        else:
            ids = await service.prompts.work(service.prompts.text, body.prompt or "", body.add_special_tokens)
        return {"count": len(ids), "max_model_len": engine.max_model_len, "tokens": ids}

    @app.post("/detokenize")
    async def detokenize(body: DetokenizeBody) -> dict[str, Any]:
        service.check_model(body.model)
        size = engine.target.info.vocab_size
        wrong = next((t for t in body.tokens if t >= size), None)
        if wrong is not None:
            raise ApiError(400, f"tokens: {wrong} is outside the vocabulary of {size}", param="tokens")
        return {"prompt": await service.prompts.work(engine.tokenizer.decode, body.tokens)}


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/health")
    async def health() -> Response:
        """Live: the process answers and its engine's thread runs."""
        alive = service.runner.alive
        return JSONResponse({"status": "ok" if alive else service.runner.failure}, 200 if alive else 503)

    @app.get("/ready")
    async def ready() -> Response:
        """Takes new requests."""
        status = "ready" if service.ready else "draining" if service.runner.alive else "failed"
        return JSONResponse({"status": status}, 200 if service.ready else 503)

    @app.get("/version")
    async def version() -> dict[str, str]:
        return {"version": __version__}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/live")
    async def live() -> dict[str, Any]:
        """What the page shows."""
        described = service.engine.describe()
        engine = {name: described[name] for name in ("target", "drafter", "method", "dtype", "device", "backend")}
        return {"model": service.name, "engine": engine, **service.live.snapshot()}


def _add_page(app: FastAPI) -> None:
    files = resources.files("draftproof.server") / "page"
    for path, (name, kind) in _PAGE.items():
        text = (files / name).read_text(encoding="utf-8")
        app.add_api_route(path, _sender(text, kind), methods=["GET"], include_in_schema=False)


def _sender(text: str, kind: str) -> Any:
    async def send() -> Response:
        return Response(text, media_type=kind, headers=_PAGE_HEADERS)

    return send
