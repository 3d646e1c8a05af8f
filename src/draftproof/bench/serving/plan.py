"""What is measured of the server, and the result document it goes into."""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.bench.acceptance import wilson
from draftproof.bench.serving.client import Body, Got, metric, step_seconds, verdict, wave
from draftproof.bench.serving.process import ServerProcess
from draftproof.bench.serving.soak import restart_after_kill, soak
from draftproof.errors import UsageError

SCHEMA = "draftproof.serve-bench/1"
Progress = Callable[[str], None]
_PREFIX_WORDS = 1400  # about 2,000 tokens
_JSON = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 80}, "sure": {"type": "boolean"}},
    "required": ["answer", "sure"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Plan:
    """``serve``: arguments of ``draftproof serve`` without the drafter; ``drafter``: those that add it."""

    serve: Sequence[str]
    drafter: Sequence[str]
    questions: Sequence[str]
    concurrency: Sequence[int]
    tokens: int
    requests: int
    repeats: int
    soak_s: float
    soak_clients: int
    idle_connections: int
    log: Path

    def bodies(self, count: int, tokens: int | None = None) -> list[Body]:
        texts = [self.questions[i % len(self.questions)] for i in range(count)]
        return [
            {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": tokens or self.tokens}
            for text in texts
        ]


def run(plan: Plan, progress: Progress) -> dict[str, Any]:
    if not plan.questions:
        raise UsageError("no prompts to ask")
    with plan.log.open("ab") as log:
        with ServerProcess(plan.serve, log) as alone:
            progress(f"references from {alone.url}, without a drafter")
            bodies = plan.bodies(len(plan.questions))
            references, _ = asyncio.run(wave(alone.url, bodies, 4))
            _refuse_errors(references)
            document: dict[str, Any] = {"schema_version": SCHEMA, "engine": alone.engine, "start_s": alone.start_s}
            with ServerProcess([*plan.serve, *plan.drafter], log) as drafting:
                document["engine"] = drafting.engine
                document["streams"] = throughput(plan, alone, drafting, references, progress)
                document["one_stream"] = one_stream(plan, {"plain": alone, "drafter": drafting}, progress)
                document["first_token"] = asyncio.run(first_token(drafting.url, plan.repeats))
                document["structured"] = asyncio.run(structured(plan, drafting.url))
        progress(f"{plan.soak_clients} clients for {plan.soak_s:g} s")
        document["soak"] = asyncio.run(soak(plan, references, log, progress))
        document["kill"] = asyncio.run(restart_after_kill(plan, log))
        document["small_pool"] = small_pool(plan, references, log, progress)
    return document


def _refuse_errors(answers: Sequence[Got]) -> None:
    wrong = next((got.error for got in answers if got.error), None)
    if wrong:
        raise UsageError(f"a reference could not be made: {wrong}")


def throughput(
    plan: Plan, alone: ServerProcess, drafting: ServerProcess, references: Sequence[Got], progress: Progress
) -> dict[str, Any]:
    """Tokens a second by clients, in turns with and without the drafter, every answer checked."""
    table: dict[str, Any] = {}
    for clients in plan.concurrency:
        bodies = plan.bodies(max(plan.requests, clients))
        rates: dict[str, list[float]] = {"plain": [], "drafter": []}
        wrong: list[str] = []
        for _ in range(plan.repeats):
            for way, server in (("plain", alone), ("drafter", drafting)):
                answers, seconds = asyncio.run(wave(server.url, bodies, clients))
                rates[way].append(sum(a.tokens for a in answers) / seconds)
                found = (verdict(a, references[i % len(references)]) for i, a in enumerate(answers))
                wrong += [told for told in found if told]
        ratios = [b / a for a, b in zip(rates["plain"], rates["drafter"], strict=True)]
        table[str(clients)] = {
            "plain_tokens_per_s": statistics.median(rates["plain"]),
            "drafter_tokens_per_s": statistics.median(rates["drafter"]),
            "ratio": statistics.median(ratios),
            "ratios": ratios,
            "responses": 2 * plan.repeats * len(bodies),
            "wrong": len(wrong),
            "first_wrong": wrong[0] if wrong else None,
        }
        progress(f"{clients} clients: {table[str(clients)]['ratio']:.2f} times the target alone, {len(wrong)} wrong")
    return table


def one_stream(plan: Plan, servers: dict[str, ServerProcess], progress: Progress) -> dict[str, Any]:
    """The share of a lone client's time in which the engine was not stepping: HTTP, event loop, hand-over."""
    told: dict[str, Any] = {}
    for way, server in servers.items():
        shares, per_token = [], []
        for body in plan.bodies(3 * plan.repeats):
            before = asyncio.run(step_seconds(server.url))
            (got,), _ = asyncio.run(wave(server.url, [body], 1))
            stepping = asyncio.run(step_seconds(server.url)) - before
            shares.append(1 - stepping / got.seconds)
            per_token.append((got.seconds - got.first_s) / max(got.tokens - 1, 1))
        told[way] = {
            "outside_steps": statistics.median(shares),
            "ms_per_token": 1000 * statistics.median(per_token),
        }
        progress(f"one stream, {way}: {100 * told[way]['outside_steps']:.1f} % of the time outside the engine's steps")
    return told


async def first_token(url: str, repeats: int) -> dict[str, Any]:
    """Seconds to the first token of a long prompt, cold and after another question about the same text."""
    cold: list[float] = []
    cached: list[float] = []
    ratios: list[float] = []
    for turn in range(max(repeats, 3)):
        text = " ".join(f"{(turn * 7919 + i * 31) % 9973}" for i in range(_PREFIX_WORDS // 3))
        for times, question in ((cold, "Add them."), (cached, "Which is the largest?")):
            body = {"messages": [{"role": "user", "content": f"{text}\n{question}"}], "temperature": 0, "max_tokens": 2}
            (got,), _ = await wave(url, [body], 1)
            _refuse_errors([got])
            times.append(got.first_s)
        ratios.append(cached[-1] / cold[-1])
    return {
        "cold_s": statistics.median(cold),
        "cached_s": statistics.median(cached),
        "ratio": statistics.median(ratios),
    }


async def structured(plan: Plan, url: str) -> dict[str, Any]:
    """The same questions free and under a JSON schema: τ of both, and whether every answer is valid."""
    count = min(plan.requests, 24)
    told: dict[str, Any] = {}
    format = {"type": "json_schema", "json_schema": {"name": "answer", "schema": _JSON}}
    for way, extra in (("free", {}), ("schema", {"response_format": format, "max_tokens": 160})):
        answers, _ = await wave(url, [body | extra for body in plan.bodies(count)], 2)
        rounds = sum(a.speculation.get("rounds_with_drafts", 0) for a in answers)
        accepted = sum(a.speculation.get("accepted_tokens", 0) for a in answers)
        told[way] = {"rounds": rounds, "tau": 1 + accepted / rounds if rounds else None}
        if extra:
            valid = sum(_valid(a) for a in answers if a.finish == "stop")
            ended = sum(a.finish == "stop" for a in answers)
            told[way] |= {"ended": ended, "valid": valid, "valid_ci95": wilson(valid, ended), "asked": count}
    return told


def _valid(got: Got) -> bool:
    try:
        answer = json.loads(got.text)
    except ValueError:
        return False
    return isinstance(answer, dict) and set(answer) == {"answer", "sure"} and isinstance(answer["sure"], bool)


def small_pool(plan: Plan, references: Sequence[Got], log: Any, progress: Progress) -> dict[str, Any]:
    """Sixteen clients in memory for about two answers: constant pre-emption, the same answers."""
    arguments = [*plan.serve, *plan.drafter, "--kv-cache-gb", "0.03", "--max-model-len", "512"]
    with ServerProcess(arguments, log) as server:
        bodies = plan.bodies(len(references))
        answers, seconds = asyncio.run(wave(server.url, bodies, 16))
        preempted = asyncio.run(metric(server.url, "num_preemptions_total"))
    wrong = [told for got, ref in zip(answers, references, strict=True) if (told := verdict(got, ref))]
    progress(f"a tiny pool: {preempted:.0f} pre-emptions, {len(wrong)} of {len(answers)} answers wrong")
    return {"responses": len(answers), "wrong": len(wrong), "preemptions": preempted, "seconds": seconds}
