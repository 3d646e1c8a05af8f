"""Load for minutes with bad clients beside it, SIGTERM and SIGKILL under load, and a pool that is too small."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections import Counter
from time import perf_counter
from typing import Any

from draftproof.bench.serving.client import Body, Got, ask, client, metric, verdict, wave
from draftproof.bench.serving.faults import Bother, leave, sit, still_open
from draftproof.bench.serving.load import wrong_ones
from draftproof.bench.serving.plan import Bench
from draftproof.bench.serving.process import ServerProcess

_SAMPLE_S = 2.0
_KILL_AFTER_S = 1.5


def soak(bench: Bench) -> dict[str, Any]:
    """The long run: every client streams answers one after the other, each checked against its own reference."""
    return _under_load(bench, bench.plan.soak_clients, bench.plan.soak_s)


def faults(bench: Bench) -> dict[str, Any]:
    """The same with few clients and for a short time: what bad clients do to good ones costs little to see."""
    return _under_load(bench, bench.plan.fault_clients, bench.plan.fault_s)


def _under_load(bench: Bench, clients: int, seconds: float) -> dict[str, Any]:
    references = bench.references
    with bench.own_server() as server:
        bench.progress(f"{clients} clients for {seconds:g} s, bad ones beside them")
        load = _Load(server, bench.plan.bodies(len(references)), references)
        return asyncio.run(load.run(bench, clients, seconds))


class _Load:
    """Good clients, bad clients and idle connections on one server, then SIGTERM in the middle of it."""

    def __init__(self, server: ServerProcess, bodies: list[Body], references: list[Got]) -> None:
        self._server, self._bodies, self._references = server, bodies, references
        self._bother = Bother(server.url, bodies)
        self._verdicts: Counter[str] = Counter()
        self._tokens = 0
        self._memory: list[tuple[float, float]] = []
        self._asked = itertools.count()
        self._stopping = asyncio.Event()
        self._began = perf_counter()

    async def run(self, bench: Bench, clients: int, seconds: float) -> dict[str, Any]:
        idle = await sit(self._server.url, bench.plan.idle_connections)
        async with client(self._server.url) as session:
            bad = asyncio.create_task(self._bother.run())
            tasks = [asyncio.create_task(self._good(session)) for _ in range(clients)]
            watching = asyncio.create_task(self._watch())
            await asyncio.sleep(seconds)
            self._stopping.set()
            bad.cancel()
            await asyncio.gather(bad, return_exceptions=True)
            open_idle = still_open(idle)
            leave(idle)
            drained = await self._drain(tasks)
            await watching
        responses = self._verdicts.total()
        wrong = {told: count for told, count in self._verdicts.items() if told}
        bench.progress(f"{responses} responses, {sum(wrong.values())} wrong; drained in {drained['seconds']:.1f} s")
        return {
            "seconds": seconds,
            "clients": clients,
            "idle_connections": {"asked": bench.plan.idle_connections, "opened": len(idle), "open_at_end": open_idle},
            "responses": responses,
            "tokens": self._tokens,
            "wrong": wrong,
            "bad_clients": self._bother.counts,
            "memory_mb": [mb for _, mb in self._memory],
            "memory_slope_mb_per_min": slope(self._memory),
            "drain": drained,
        }

    async def _good(self, session: Any) -> None:
        while not self._stopping.is_set():
            i = next(self._asked) % len(self._bodies)
            got = await ask(session, self._bodies[i])
            self._tokens += got.tokens
            self._verdicts[verdict(got, self._references[i], self._references)] += 1

    async def _watch(self) -> None:
        while not self._stopping.is_set():
            self._memory.append((perf_counter() - self._began, self._server.memory_mb()))
            await asyncio.sleep(_SAMPLE_S)

    async def _drain(self, tasks: list[asyncio.Task[None]]) -> dict[str, Any]:
        """SIGTERM now; the answers under way are judged like all others."""
        before, open_streams, began = self._wrong(), sum(not task.done() for task in tasks), perf_counter()
        self._server.send(signal.SIGTERM)
        code = await asyncio.to_thread(self._server.wait)
        seconds = perf_counter() - began
        await asyncio.gather(*tasks)
        cut = self._wrong() - before
        return {"open_streams": open_streams, "cut_off": cut, "seconds": seconds, "exit_code": code}

    def _wrong(self) -> int:
        return sum(count for told, count in self._verdicts.items() if told)


def slope(samples: list[tuple[float, float]]) -> float | None:
    """MB a minute by least squares over the second half: the first one fills caches."""
    half = samples[len(samples) // 2 :]
    if len(half) < 3:
        return None
    mean_t = sum(t for t, _ in half) / len(half)
    mean_m = sum(m for _, m in half) / len(half)
    spread = sum((t - mean_t) ** 2 for t, _ in half)
    return 60 * sum((t - mean_t) * (m - mean_m) for t, m in half) / spread


def kill(bench: Bench) -> dict[str, Any]:
    """SIGKILL in the middle of answers: every client notices, and a new server answers after so many seconds."""
    server = bench.own_server()
    with server:
        code, answers = asyncio.run(_kill(server, bench.plan.bodies(8, tokens=400)))
    began = perf_counter()
    with bench.own_server() as again:
        (got,), _ = asyncio.run(wave(again.url, bench.plan.bodies(1, tokens=2), 1))
        seconds = perf_counter() - began
    bench.progress(f"killed; {seconds:.1f} s later a new server has answered")
    return {
        "exit_code": code,
        "streams": len(answers),
        "noticed": sum(bool(a.error) for a in answers),
        "restart_s": seconds,
        "answers_again": not got.error,
    }


async def _kill(server: ServerProcess, bodies: list[Body]) -> tuple[int, list[Got]]:
    running = asyncio.create_task(wave(server.url, bodies, len(bodies)))
    await asyncio.sleep(_KILL_AFTER_S)
    server.send(signal.SIGKILL)
    code = await asyncio.to_thread(server.wait)
    answers, _ = await running
    return code, answers


def small_pool(bench: Bench) -> dict[str, Any]:
    """Sixteen clients in memory for about two answers: constant pre-emption, the same answers."""
    references = bench.references
    with bench.own_server("--kv-cache-gb", "0.03", "--max-model-len", "512") as server:
        answers, seconds = asyncio.run(wave(server.url, bench.plan.bodies(len(references)), 16))
        preempted = asyncio.run(metric(server.url, "num_preemptions_total"))
    wrong = wrong_ones(answers, references)
    bench.progress(f"a tiny pool: {preempted:.0f} pre-emptions, {len(wrong)} of {len(answers)} answers wrong")
    return {
        "responses": len(answers),
        "wrong": len(wrong),
        "first_wrong": wrong[0] if wrong else None,
        "preemptions": int(preempted),
        "seconds": seconds,
    }
