"""What is measured of the server with what, and the servers and references that the phases share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from draftproof.bench.serving.client import Body, Got, wave
from draftproof.bench.serving.process import ServerProcess
from draftproof.errors import UsageError

Progress = Callable[[str], None]
PLAIN, DRAFTER = "plain", "drafter"


@dataclass(frozen=True)
class Plan:
    """``serve``: arguments of ``draftproof serve`` without the drafter; ``drafter``: those that add it. ``requests``:
    fewest of a wave; there are two for each client at least. ``fault_clients`` and ``fault_s``: the short run beside
    bad clients, as ``soak_clients`` and ``soak_s`` are the long one."""

    serve: Sequence[str]
    drafter: Sequence[str]
    questions: Sequence[str]
    concurrency: Sequence[int]
    tokens: int
    requests: int
    repeats: int
    soak_s: float
    soak_clients: int
    fault_s: float
    fault_clients: int
    idle_connections: int
    schemas: int
    examples: int
    log: Path

    def bodies(self, count: int, tokens: int | None = None) -> list[Body]:
        texts = [self.questions[i % len(self.questions)] for i in range(count)]
        return [
            {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": tokens or self.tokens}
            for text in texts
        ]


class Bench:
    """Servers are started when first asked for and kept until ``close``, so that phases after each other share them."""

    def __init__(self, plan: Plan, log: IO[bytes], progress: Progress) -> None:
        if not plan.questions:
            raise UsageError("no prompts to ask")
        self.plan, self.log, self.progress = plan, log, progress
        self._servers: dict[tuple[str, ...], ServerProcess] = {}
        self._references: list[Got] = []

    def server(self, way: str, *more: str) -> ServerProcess:
        """``way``: without (``plain``) or with the ``drafter``; ``more``: further arguments."""
        key = (way, *more)
        if key not in self._servers:
            drafter = self.plan.drafter if way == DRAFTER else []
            self._servers[key] = ServerProcess([*self.plan.serve, *drafter, *more], self.log)
        return self._servers[key]

    def own_server(self, *more: str) -> ServerProcess:
        """With the drafter, and the caller's to end; nothing else runs beside it."""
        self.close()
        return ServerProcess([*self.plan.serve, *self.plan.drafter, *more], self.log)

    @property
    def references(self) -> list[Got]:
        """The target's own answer to every question, four at a time, from a server without a drafter."""
        if not self._references:
            server = self.server(PLAIN)
            self.progress(f"references from {server.url}, without a drafter")
            found, _ = asyncio.run(wave(server.url, self.plan.bodies(len(self.plan.questions)), 4))
            refuse_errors(found)
            self._references = found
        return self._references

    def close(self) -> None:
        while self._servers:
            self._servers.popitem()[1].stop()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def refuse_errors(answers: Sequence[Got]) -> None:
    wrong = next((got.error for got in answers if got.error), None)
    if wrong:
        raise UsageError(f"a reference could not be made: {wrong}")
