"""Streaming clients for a load: what each one got, when, and whether it is its reference."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import httpx2

CHAT = "/v1/chat/completions"
Body = dict[str, Any]


@dataclass
class Got:
    """One response. ``error``: what went wrong, if anything did; times in seconds since the request was sent."""

    text: str = ""
    finish: str | None = None
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    first_s: float = 0.0
    seconds: float = 0.0
    speculation: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    def take(self, event: dict[str, Any], began: float) -> None:
        if "error" in event:
            self.error = str(event["error"]["message"])
        for choice in event.get("choices", ()):
            part = choice["delta"].get("content", "")
            if part and not self.first_s:
                self.first_s = perf_counter() - began
            self.text += part
            self.finish = choice["finish_reason"] or self.finish
        if event.get("usage"):
            usage = event["usage"]
            self.tokens, self.prompt_tokens = usage["completion_tokens"], usage["prompt_tokens"]
            self.cached_tokens = usage["prompt_tokens_details"]["cached_tokens"]
            self.speculation = event.get("speculation", {})


def client(url: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=url, timeout=None, limits=httpx2.Limits(max_connections=None))


async def ask(session: httpx2.AsyncClient, body: Body, *, details: bool = False) -> Got:
    """Stream one answer to its end, with its rounds where ``details`` are wanted. Never raises for what the server or
    the network did."""
    got, began, done = Got(), perf_counter(), False
    sent = body | {"stream": True, "stream_options": {"include_usage": True}}
    if details:
        sent["speculation"] = True
    try:
        async with session.stream("POST", CHAT, json=sent) as response:
            if response.status_code != 200:
                await response.aread()
                got.error = f"status {response.status_code}"
                return got
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    done = True
                elif line.startswith("data: "):
                    got.take(json.loads(line[6:]), began)
    except (httpx2.HTTPError, ValueError) as error:
        got.error = f"{type(error).__name__}: {error}"
    got.seconds = perf_counter() - began
    if not done and not got.error:
        got.error = "the stream ended without [DONE]"
    return got


def verdict(got: Got, reference: Got, others: Sequence[Got] = ()) -> str:
    """ "" if this is the reference's answer; otherwise what it is instead."""
    if got.error:
        return got.error
    said = (got.text, got.finish, got.tokens)
    if said == (reference.text, reference.finish, reference.tokens):
        return ""
    crossed = any(said == (other.text, other.finish, other.tokens) for other in others)
    return "the answer to another question" if crossed else "another answer than the reference"


async def wave(url: str, bodies: Sequence[Body], clients: int, *, details: bool = False) -> tuple[list[Got], float]:
    """All bodies by so many clients at once; the answers in order, and the seconds."""
    answers: list[Got] = [Got() for _ in bodies]
    waiting = iter(range(len(bodies)))
    async with client(url) as session:

        async def work() -> None:
            for i in waiting:
                answers[i] = await ask(session, bodies[i], details=details)

        began = perf_counter()
        await asyncio.gather(*(work() for _ in range(clients)))
        return answers, perf_counter() - began


async def metric(url: str, name: str) -> float:
    """Sum over all label sets of one of the server's counters, without its prefix."""
    async with client(url) as session:
        text = (await session.get("/metrics")).text
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith(f"draftproof:{name}") and line[len(f"draftproof:{name}")] in "{ "
    )


async def step_seconds(session: httpx2.AsyncClient) -> dict[str, float]:
    """Seconds the engine has spent, by part: ``draft``, ``verify``, ``host`` of rounds, and ``all`` of its steps."""
    text = (await session.get("/metrics")).text
    found = {"all": 0.0, "draft": 0.0, "verify": 0.0, "host": 0.0}
    for line in text.splitlines():
        if line.startswith("draftproof:step_seconds_sum"):
            part = line.partition('part="')[2].partition('"')[0]
            found[part] = float(line.rsplit(" ", 1)[1])
    return found
