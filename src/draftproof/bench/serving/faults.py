"""Bad clients, beside the good ones: those that vanish, send half a body, send far too much, or only sit there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Sequence
from urllib.parse import urlsplit

from draftproof.bench.serving.client import CHAT, Body

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(url: str) -> Connection:
    parts = urlsplit(url)
    assert parts.hostname is not None
    return await asyncio.open_connection(parts.hostname, parts.port)


def head(length: int) -> bytes:
    lines = [f"POST {CHAT} HTTP/1.1", "Host: bench", "Content-Type: application/json", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


async def vanish(url: str, body: Body, chance: random.Random) -> None:
    """Ask for a stream and leave in the middle of it, without a word."""
    reader, writer = await connect(url)
    data = json.dumps(body | {"stream": True}).encode()
    writer.write(head(len(data)) + data)
    await writer.drain()
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(200), 5)
            await asyncio.sleep(chance.random() * 0.5)
    finally:
        writer.transport.abort()


async def half_body(url: str, chance: random.Random) -> None:
    _, writer = await connect(url)
    writer.write(head(5000) + b'{"messages": [')
    await writer.drain()
    try:
        await asyncio.sleep(chance.random())
    finally:
        writer.transport.abort()


async def huge_body(url: str) -> bytes:
    """Returns the status line: 413."""
    reader, writer = await connect(url)
    writer.write(head(10**9))
    await writer.drain()
    try:
        return await asyncio.wait_for(reader.readline(), 20)
    finally:
        writer.close()


class Bother:
    """Keeps bothering the server until cancelled. ``counts``: what was done, by kind; ``failed``: the server took
    no connection, or did not answer a huge body in time."""

    def __init__(self, url: str, bodies: Sequence[Body], *, pause_s: float = 0.5, seed: int = 0) -> None:
        self._url, self._bodies, self._pause_s = url, bodies, pause_s
        self._chance = random.Random(seed)
        self.counts = {"vanished": 0, "half bodies": 0, "huge bodies": 0, "huge bodies not refused": 0, "failed": 0}

    async def run(self) -> None:
        while True:
            try:
                await self._once()
            except (OSError, TimeoutError):
                self.counts["failed"] += 1
            await asyncio.sleep(self._pause_s)

    async def _once(self) -> None:
        await vanish(self._url, self._chance.choice(self._bodies), self._chance)
        self.counts["vanished"] += 1
        await half_body(self._url, self._chance)
        self.counts["half bodies"] += 1
        self.counts["huge bodies not refused"] += b" 413 " not in await huge_body(self._url)
        self.counts["huge bodies"] += 1


async def sit(url: str, many: int) -> list[Connection]:
    """Open connections on which nothing is said; as many as the system grants."""
    held: list[Connection] = []
    with contextlib.suppress(OSError):
        for _ in range(many):
            held.append(await connect(url))
    return held


def still_open(held: Sequence[Connection]) -> int:
    """Those that the server has not closed."""
    return sum(not reader.at_eof() and not writer.is_closing() for reader, writer in held)


def leave(held: Sequence[Connection]) -> None:
    for _, writer in held:
        writer.transport.abort()
