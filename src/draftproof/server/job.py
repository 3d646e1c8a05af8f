"""One HTTP request's work in the engine: one request per prompt, their deltas in the order in which they happen.

Whatever ends it — the last answer, the client, the deadline, a failure — ``close`` aborts what still runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

from starlette.requests import Request

from draftproof.engine.constraint import ConstraintMaker
from draftproof.engine.types import Event, PrefillFinished, SamplingParams
from draftproof.server.answers import Answer, Delta
from draftproof.server.errors import ApiError
from draftproof.server.metrics import Metrics
from draftproof.server.runner import EngineRunner, Stream

Interruption = Literal["deadline", "gone"]


class ClientGone(Exception):
    """Nobody is left to answer."""


@dataclass(frozen=True)
class Deadline:
    """Seconds until a request is ended, waiting included; ``asked``: the request itself set them."""

    seconds: float
    asked: bool = False

    def missed(self) -> ApiError:
        """A time the request set is its own affair, the server's limit the server's: 408 or 504."""
        return ApiError(
            408 if self.asked else 504,
            f"the request took longer than {self.seconds:g} s",
            param="timeout_s" if self.asked else None,
            code="deadline",
        )


@dataclass(frozen=True)
class Ask:
    """What to run: prompts with ``params`` each; ``make_answer`` gives the state of the i-th answer."""

    prompts: Sequence[list[int]]
    params: SamplingParams
    make_answer: Callable[[int], Answer]
    cache_salt: str | None = None
    constraint: ConstraintMaker | None = None
    deadline: Deadline = Deadline(600.0)


class Job:
    """Started at once; raises what ``EngineRunner.submit`` raises."""

    def __init__(self, runner: EngineRunner, ask: Ask, metrics: Metrics) -> None:
        self._runner, self._metrics = runner, metrics
        self._arrived = perf_counter()
        self._first_token = self._last_token = 0.0
        self._queue: asyncio.Queue[tuple[Stream, list[Event]] | Interruption] = asyncio.Queue()
        self.prompt_lengths = [len(prompt) for prompt in ask.prompts]
        self.answers = [ask.make_answer(i) for i in range(len(ask.prompts) * ask.params.n)]
        self._n = ask.params.n
        self._first: dict[str, int] = {}  # stream → index of its first answer
        self._streams: list[Stream] = []
        self._watch: asyncio.Task[None] | None = None
        self._deadline = ask.deadline
        self._timer = asyncio.get_running_loop().call_later(ask.deadline.seconds, self._queue.put_nowait, "deadline")
        self._outcome = "error"
        try:
            for prompt in ask.prompts:
                stream = runner.submit(
                    prompt, ask.params, self._queue, cache_salt=ask.cache_salt, constraint=ask.constraint
                )
                self._first[stream.request_id] = len(self._streams) * self._n
                self._streams.append(stream)
        except BaseException:
            self.close()
            raise

    def watch(self, request: Request) -> None:
        """Notice when the client goes away. Its body must have been read."""
        self._watch = asyncio.create_task(self._until_gone(request))

    async def _until_gone(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self._queue.put_nowait("gone")

    async def deltas(self) -> AsyncIterator[Delta]:
        """To the last answer's end. Raises :class:`ApiError` for a missed deadline or an answer that failed, and
        :class:`ClientGone`."""
        while any(stream.open for stream in self._streams):
            item = await self._queue.get()
            if item == "deadline":
                self._outcome = "timeout"
                raise self._deadline.missed()
            if item == "gone":
                self._outcome = "gone"
                raise ClientGone
            stream, events = item  # type: ignore[misc]
            for delta in self._split(stream, events):
                if delta.finish == "error":
                    raise ApiError(500, f"the answer failed: {delta.detail}", code="engine")
                if delta.finish == "abort":
                    raise ApiError(503, "the server is shutting down", code="draining", retry_after=5)
                if not delta.empty:
                    yield delta
        self._outcome = "done"

    def _split(self, stream: Stream, events: list[Event]) -> list[Delta]:
        now = perf_counter()
        stream.take(events)
        by_index: dict[int, list[Event]] = {}
        for event in events:
            by_index.setdefault(event.index, []).append(event)
            if isinstance(event, PrefillFinished) and not self._first_token:
                self._first_token = now
                self._metrics.first_token(now - self._arrived, max(now - self._arrived - event.seconds, 0.0))
        self._last_token = now
        first = self._first[stream.request_id]
        return [self.answers[first + index].take(each) for index, each in by_index.items()]

    def close(self) -> None:
        """From the event loop's thread; more than once does no harm."""
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
        if not self._streams:
            return
        for stream in self._streams:
            self._runner.release(stream)
        self._streams = []
        tokens = sum(len(a.token_ids) for a in self.answers)
        self._metrics.request_ended(
            self._outcome, perf_counter() - self._arrived, self._last_token - self._first_token, tokens
        )
