"""The engine in a thread of its own, and its events as asynchronous streams.

One thread steps the engine while there is work and sleeps while there is none. Requests come from the event loop's
thread and events go back to it once per step.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from draftproof.engine.constraint import ConstraintMaker
from draftproof.engine.engine import Engine
from draftproof.engine.types import Event, RequestFinished, SamplingParams

logger = logging.getLogger("draftproof.server")
Listener = Callable[[Sequence[Event], float], None]


Mailbox = Any  # an asyncio.Queue that takes (stream, events)


@dataclass(eq=False)
class Stream:
    """One request's events on their way to ``mailbox``. ``open``: indices of the answers still to end."""

    request_id: str
    mailbox: Mailbox
    open: set[int]

    def take(self, events: Sequence[Event]) -> None:
        """These events have been read."""
        self.open -= {e.index for e in events if isinstance(e, RequestFinished)}


class EngineRunner:
    """``listener`` is told each step's events and seconds, in the engine's thread."""

    def __init__(self, engine: Engine, listener: Listener = lambda events, seconds: None) -> None:
        self.engine = engine
        self._listener = listener
        self._streams: dict[str, Stream] = {}  # changed by the event loop's thread only
        self._ids = itertools.count()
        self._wake = threading.Event()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.failure: str = ""

    # -- from the event loop's thread ---------------------------------------------------------------------

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Abort what still lives and end the thread."""
        for request_id in list(self._streams):
            self.engine.abort(request_id)
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout=30)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self.failure

    @property
    def answers(self) -> int:
        """Answers that wait or run."""
        return sum(len(stream.open) for stream in self._streams.values())

    def submit(
        self,
        prompt: list[int],
        params: SamplingParams,
        mailbox: Mailbox,
        *,
        cache_salt: str | None = None,
        constraint: ConstraintMaker | None = None,
    ) -> Stream:
        """Queue a request, whose events go to ``mailbox`` step by step. Raises what ``Engine.add_request`` raises."""
        stream = Stream(f"serve-{next(self._ids)}", mailbox, set(range(params.n)))
        self._streams[stream.request_id] = stream
        try:
            self.engine.add_request(prompt, params, stream.request_id, cache_salt=cache_salt, constraint=constraint)
        except BaseException:
            del self._streams[stream.request_id]
            raise
        self._wake.set()
        return stream

    def release(self, stream: Stream) -> None:
        """Nobody reads the stream any more: if it has not ended, its request is aborted within one round."""
        if self._streams.pop(stream.request_id, None) is not None and stream.open:
            self.engine.abort(stream.request_id)
            self._wake.set()

    def _deliver(self, batches: dict[str, list[Event]]) -> None:
        for request_id, events in batches.items():
            stream = self._streams.get(request_id)
            if stream is not None:
                stream.mailbox.put_nowait((stream, events))

    # -- the engine's thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._wake.clear()
                if self.engine.has_work:
                    self._step()
                else:
                    self._wake.wait()
        except BaseException as error:
            self.failure = f"{type(error).__name__}: {error}"
            logger.exception("the engine's thread ended")
            self._fail_all(self.failure)

    def _step(self) -> None:
        began = perf_counter()
        try:
            events = self.engine.step()
        except Exception as error:  # a defect: its requests are gone from the engine, which is clean again
            logger.exception("a step failed")
            self._fail_all(f"{type(error).__name__}: {error}", only_gone=True)
            return
        self._listener(events, perf_counter() - began)
        batches: dict[str, list[Event]] = {}
        for event in events:
            batches.setdefault(event.request_id, []).append(event)
        self._post(batches)

    def _fail_all(self, detail: str, *, only_gone: bool = False) -> None:
        batches: dict[str, list[Event]] = {}
        for request_id, stream in list(self._streams.items()):
            if not (only_gone and self.engine.core.requests_of(request_id)):
                batches[request_id] = [
                    RequestFinished(request_id, "error", "", detail, index) for index in sorted(stream.open)
                ]
        self._post(batches)

    def _post(self, batches: dict[str, list[Event]]) -> None:
        if batches and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, batches)
