"""Load for minutes with bad clients beside it, then SIGTERM and SIGKILL under load."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections import Counter
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from draftproof.bench.serving.client import Got, ask, client, verdict, wave
from draftproof.bench.serving.faults import Bother, leave, sit
from draftproof.bench.serving.process import ServerProcess

if TYPE_CHECKING:
    from draftproof.bench.serving.plan import Plan, Progress

_SAMPLE_S = 2.0


async def soak(plan: Plan, references: Sequence[Got], log: Any, progress: Progress) -> dict[str, Any]:
    """Streaming clients for ``plan.soak_s`` seconds, then a drain while they are in the middle of answers."""
    server = await asyncio.to_thread(ServerProcess, [*plan.serve, *plan.drafter], log)
    bodies = plan.bodies(len(references))
    bother = Bother(server.url, bodies)
    verdicts: Counter[str] = Counter()
    memory: list[tuple[float, float]] = []
    began, asked, open_at_end = perf_counter(), itertools.count(), 0
    stopping = asyncio.Event()
    idle = await sit(server.url, plan.idle_connections)

    async def good(session: Any) -> None:
        while not stopping.is_set():
            i = next(asked) % len(bodies)
            verdicts[verdict(await ask(session, bodies[i]), references[i])] += 1

    async def watch() -> None:
        while not stopping.is_set():
            memory.append((perf_counter() - began, server.memory_mb()))
            await asyncio.sleep(_SAMPLE_S)

    async with client(server.url) as session:
        bad = asyncio.create_task(bother.run())
        tasks = [asyncio.create_task(good(session)) for _ in range(plan.soak_clients)]
        watching = asyncio.create_task(watch())
        await asyncio.sleep(plan.soak_s)
        stopping.set()
        bad.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await bad
        open_at_end = sum(not task.done() for task in tasks)
        progress(f"{sum(verdicts.values())} responses, {sum(verdicts.values()) - verdicts['']} wrong; now SIGTERM")
        leave(idle)
        drain_began = perf_counter()
        server.send(signal.SIGTERM)
        code = await asyncio.to_thread(server.wait)
        drain_s = perf_counter() - drain_began
        await asyncio.gather(*tasks, watching)
    wrong = {told: count for told, count in verdicts.items() if told}
    return {
        "seconds": plan.soak_s,
        "clients": plan.soak_clients,
        "idle_connections": len(idle),
        "responses": sum(verdicts.values()),
        "wrong": wrong,
        "bad_clients": bother.counts,
        "memory_mb": [mb for _, mb in memory],
        "memory_slope_mb_per_min": slope(memory),
        "drain": {"open_streams": open_at_end, "seconds": drain_s, "exit_code": code},
    }


def slope(samples: Sequence[tuple[float, float]]) -> float | None:
    """MB a minute by least squares over the second half: the first one fills caches."""
    half = samples[len(samples) // 2 :]
    if len(half) < 3:
        return None
    mean_t = sum(t for t, _ in half) / len(half)
    mean_m = sum(m for _, m in half) / len(half)
    spread = sum((t - mean_t) ** 2 for t, _ in half)
    return 60 * sum((t - mean_t) * (m - mean_m) for t, m in half) / spread


async def restart_after_kill(plan: Plan, log: Any) -> dict[str, Any]:
    """SIGKILL in the middle of answers: every client notices, and a new server answers after so many seconds."""
    arguments = [*plan.serve, *plan.drafter]
    server = await asyncio.to_thread(ServerProcess, arguments, log)
    bodies = plan.bodies(8, tokens=400)
    running = asyncio.create_task(wave(server.url, bodies, 8))
    await asyncio.sleep(1.5)
    server.send(signal.SIGKILL)
    code = await asyncio.to_thread(server.wait)
    answers, _ = await running
    began = perf_counter()
    again = await asyncio.to_thread(ServerProcess, arguments, log)
    (got,), _ = await wave(again.url, plan.bodies(1, tokens=2), 1)
    seconds = perf_counter() - began
    await asyncio.to_thread(again.stop)
    return {
        "exit_code": code,
        "streams": len(answers),
        "noticed": sum(bool(a.error) for a in answers),
        "restart_s": seconds,
        "answers_again": not got.error,
    }
