"""``/v1/completions`` and ``/v1/chat/completions``: from a body to a response, whole or streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from draftproof.engine.origins import OriginTracker
from draftproof.server.answers import Answer, speculation, usage
from draftproof.server.errors import ApiError
from draftproof.server.job import Ask, ClientGone, Job
from draftproof.server.parser import OutputParser
from draftproof.server.schema_chat import ChatBody
from draftproof.server.schema_common import SamplingBody
from draftproof.server.schema_completion import CompletionBody
from draftproof.server.service import Service
from draftproof.server.tools import call_grammar
from draftproof.server.writers import ChatWriter, TextWriter, Writer

_CLOSED = 499  # nobody reads it; it names the case in the metrics


async def complete(service: Service, body: CompletionBody, request: Request) -> Response:
    service.check_model(body.model)
    work = service.prompts.work
    prompts = [await work(service.prompts.text, p) if isinstance(p, str) else p for p in body.prompts]
    limit = body.max_tokens or 16  # OpenAI's default here
    for ids in prompts:
        service.check_prompt(ids, limit)
    params = service.params(body, len(prompts[0]), limit, body.logprobs)
    ask = Ask(
        prompts,
        params,
        lambda index: Answer(index, origins=_origins(service, body)),
        body.cache_salt,
        await service.constraint(body),
        service.deadline(body),
    )
    return await _respond(service, body, ask, TextWriter(service), request)


async def chat(service: Service, body: ChatBody, request: Request) -> Response:
    service.check_model(body.model)
    prompt = await service.prompts.work(service.prompts.chat, body)
    service.check_prompt(prompt.token_ids, body.limit)
    params = service.params(body, len(prompt.token_ids), body.limit, body.alternatives)
    calls = call_grammar(body)
    if prompt.thinking and (calls is not None or body.response_format is not None):
        raise ApiError(
            400,
            "response_format and forced tool calls are not possible after an open reasoning section: switch thinking "
            "off in chat_template_kwargs",
            param="response_format",
            code="unsupported",
        )
    names = [] if body.tool_choice == "none" else [tool.function.name for tool in body.tools or ()]
    thinks = service.prompts.thinks

    def make_answer(index: int) -> Answer:
        parser = OutputParser(thinks=thinks, thinking=prompt.thinking, tools=names) if thinks or names else None
        return Answer(index, parser, _origins(service, body))

    ask = Ask(
        [prompt.token_ids],
        params,
        make_answer,
        body.cache_salt,
        await service.constraint(body, calls),
        service.deadline(body),
    )
    return await _respond(service, body, ask, ChatWriter(service, thinks), request)


def _origins(service: Service, body: SamplingBody) -> OriginTracker | None:
    return OriginTracker(service.engine.tokenizer) if body.speculation else None


async def _respond(service: Service, body: SamplingBody, ask: Ask, writer: Writer, request: Request) -> Response:
    job = service.start(ask)
    if body.stream:
        with_usage = body.stream_options is not None and body.stream_options.include_usage
        events = _stream(job, writer, with_usage=with_usage, details=bool(body.speculation))
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return _ClosingStream(job, events, media_type="text/event-stream", headers=headers)
    try:
        job.watch(request)
        async for delta in job.deltas():
            writer.keep(delta)
        choices = writer.choices(job.answers)
        told = writer.envelope.whole(choices, _usage(job, writer))
        if body.speculation:
            told["speculation"] = speculation(job.answers)
        return JSONResponse(told)
    except ClientGone:
        return Response(status_code=_CLOSED)
    finally:
        job.close()


class _ClosingStream(StreamingResponse):
    """A stream whose job ends with it, even where nothing of it was ever sent."""

    def __init__(self, job: Job, content: AsyncIterator[str], **options: Any) -> None:
        super().__init__(content, **options)
        self._job = job

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._job.close()


async def _stream(job: Job, writer: Writer, *, with_usage: bool, details: bool) -> AsyncIterator[str]:
    try:
        for chunk in writer.opening(len(job.answers)):
            yield writer.event(chunk, usage=with_usage)
        async for delta in job.deltas():
            yield writer.event(writer.chunk(delta), usage=with_usage)
        if with_usage:
            last = writer.envelope.chunk([]) | {"usage": _usage(job, writer)}
            if details:
                last["speculation"] = speculation(job.answers)
            yield writer.event(last)
    except ApiError as error:
        yield writer.event(error.body())
    yield writer.DONE


def _usage(job: Job, writer: Writer) -> dict[str, Any]:
    return usage(job.answers, job.prompt_lengths, writer.reasoning_tokens(job.answers))
