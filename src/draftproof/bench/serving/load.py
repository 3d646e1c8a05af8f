"""How fast: throughput with and without the drafter, a lone stream, the first token, a second turn."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from typing import Any

from draftproof.bench.serving.client import Body, Got, ask, client, step_seconds, verdict, wave
from draftproof.bench.serving.plan import DRAFTER, PLAIN, Bench, refuse_errors
from draftproof.bench.serving.process import ServerProcess

_PREFIX_NUMBERS = 466  # about 2,000 tokens
_TURNS = 12


def throughput(bench: Bench) -> dict[str, Any]:
    """Tokens a second by clients, in turns with and without the drafter, every answer checked. The ratio is the
    median of the turns' own, so that a slow minute counts on both sides."""
    plan, references = bench.plan, bench.references
    servers = {PLAIN: bench.server(PLAIN), DRAFTER: bench.server(DRAFTER)}
    asyncio.run(wave(servers[DRAFTER].url, plan.bodies(len(references)), 4))  # both have read every prompt once
    table: dict[str, Any] = {}
    for clients in plan.concurrency:
        bodies = plan.bodies(max(plan.requests, 2 * clients))
        rates: dict[str, list[float]] = {PLAIN: [], DRAFTER: []}
        wrong: list[str] = []
        for turn in range(plan.repeats):
            for way in (PLAIN, DRAFTER) if turn % 2 == 0 else (DRAFTER, PLAIN):
                answers, seconds = asyncio.run(wave(servers[way].url, bodies, clients))
                rates[way].append(sum(a.tokens for a in answers) / seconds)
                wrong += wrong_ones(answers, references)
        table[str(clients)] = _row(rates, 2 * plan.repeats * len(bodies), wrong)
        bench.progress(
            f"{clients} clients: {table[str(clients)]['ratio']:.2f} times the target alone, {len(wrong)} wrong"
        )
    return {"clients": table, "tokens": plan.tokens, "repeats": plan.repeats}


def wrong_ones(answers: Sequence[Got], references: Sequence[Got]) -> list[str]:
    """What is wrong with those that are not their reference; question i has reference i modulo their number."""
    found = (verdict(a, references[i % len(references)], references) for i, a in enumerate(answers))
    return [told for told in found if told]


def _row(rates: dict[str, list[float]], responses: int, wrong: Sequence[str]) -> dict[str, Any]:
    ratios = [b / a for a, b in zip(rates[PLAIN], rates[DRAFTER], strict=True)]
    return {
        "plain_tokens_per_s": statistics.median(rates[PLAIN]),
        "drafter_tokens_per_s": statistics.median(rates[DRAFTER]),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "responses": responses,
        "wrong": len(wrong),
        "first_wrong": wrong[0] if wrong else None,
    }


# -- a lone stream ----------------------------------------------------------------------------------------


def one_stream(bench: Bench) -> dict[str, Any]:
    """Where a lone client's time goes: outside the engine's steps (HTTP, event loop, hand-over), in the steps but not
    in a pass (scheduling, sampling, text), in passes."""
    return {way: _shares(bench, bench.server(way), way) for way in (PLAIN, DRAFTER)}


def _shares(bench: Bench, server: ServerProcess, way: str) -> dict[str, Any]:
    outside, host, per_token = [], [], []
    bodies = bench.plan.bodies(3 * bench.plan.repeats)
    asyncio.run(wave(server.url, bodies, 1))  # prompts are read now; what follows is decoding
    for got, spent in asyncio.run(_one_by_one(server.url, bodies)):
        refuse_errors([got])
        outside.append(1 - spent["all"] / got.seconds)
        host.append(spent["host"] / got.seconds)
        per_token.append((got.seconds - got.first_s) / max(got.tokens - 1, 1))
    told = {
        "outside_steps": statistics.median(outside),
        "host_in_steps": statistics.median(host),
        "ms_per_token": 1000 * statistics.median(per_token),
        "requests": len(bodies),
    }
    bench.progress(
        f"one stream, {way}: {100 * told['outside_steps']:.1f} % of the time outside the engine's steps, "
        f"{100 * told['host_in_steps']:.1f} % in them but in no pass"
    )
    return told


async def _one_by_one(url: str, bodies: Sequence[Body]) -> list[tuple[Got, dict[str, float]]]:
    """Each answer, and what the engine spent on it by part; one connection for all, as clients keep it."""
    found = []
    async with client(url) as session:
        for body in bodies:
            before = await step_seconds(session)
            got = await ask(session, body)
            after = await step_seconds(session)
            found.append((got, {part: after[part] - before[part] for part in after}))
    return found


# -- prefixes ---------------------------------------------------------------------------------------------


def first_token(bench: Bench) -> dict[str, Any]:
    """Seconds to the first token of a long prompt, cold and after another question about the same text."""
    url = bench.server(DRAFTER).url
    times: dict[str, list[float]] = {"cold": [], "cached": []}
    ratios, found = [], []
    for turn in range(max(bench.plan.repeats, 3)):
        text = " ".join(f"{(turn * 7919 + i * 31) % 9973}" for i in range(_PREFIX_NUMBERS))
        for way, question in (("cold", "Add them."), ("cached", "Which is the largest?")):
            body = {"messages": [{"role": "user", "content": f"{text}\n{question}"}], "temperature": 0, "max_tokens": 2}
            (got,), _ = asyncio.run(wave(url, [body], 1))
            refuse_errors([got])
            times[way].append(got.first_s)
        found.append((got.prompt_tokens, got.cached_tokens))
        ratios.append(times["cached"][-1] / times["cold"][-1])
    told = {
        "prompt_tokens": statistics.median(prompt for prompt, _ in found),
        "cached_tokens": statistics.median(cached for _, cached in found),
        "cold_s": statistics.median(times["cold"]),
        "cached_s": statistics.median(times["cached"]),
        "ratio": statistics.median(ratios),
        "repeats": len(ratios),
    }
    bench.progress(f"first token: {told['cached_s']:.3f} s instead of {told['cold_s']:.3f} s")
    return told


def second_turn(bench: Bench) -> dict[str, Any]:
    """Chats of two turns, the second answered with the first one's keys and values and again without them. Drafts
    have their full length, so that nothing depends on times: the same rounds must come of both."""
    url = bench.server(DRAFTER, "--length-policy", "fixed").url
    bodies = bench.plan.bodies(min(_TURNS, bench.plan.requests))
    first, _ = asyncio.run(wave(url, [b | {"cache_salt": "turns"} for b in bodies], 1))
    refuse_errors(first)
    again = [{"role": "user", "content": "Say that again in other words."}]
    longer = [
        body | {"messages": [*body["messages"], {"role": "assistant", "content": got.text}, *again]}
        for body, got in zip(bodies, first, strict=True)
    ]
    cached, _ = asyncio.run(wave(url, [b | {"cache_salt": "turns"} for b in longer], 1, details=True))
    cold, _ = asyncio.run(wave(url, [b | {"cache_salt": f"new {i}"} for i, b in enumerate(longer)], 1, details=True))
    refuse_errors([*cached, *cold])
    told = {
        "chats": len(bodies),
        "prompt_tokens": sum(a.prompt_tokens for a in cached),
        "cached_tokens": sum(a.cached_tokens for a in cached),
        "same_texts": [a.text for a in cached] == [a.text for a in cold],
        "same_rounds": [a.speculation for a in cached] == [a.speculation for a in cold],
        "tau_cached": tau(cached)["tau"],
        "tau_cold": tau(cold)["tau"],
    }
    bench.progress(f"second turn: {told['cached_tokens']} of {told['prompt_tokens']} prompt tokens from the cache")
    return told


def tau(answers: Sequence[Got]) -> dict[str, Any]:
    """Mean acceptance length over all rounds with drafts, as the server counted them."""
    rounds = sum(a.speculation.get("rounds_with_drafts", 0) for a in answers)
    accepted = sum(a.speculation.get("accepted_tokens", 0) for a in answers)
    return {"rounds": rounds, "tau": 1 + accepted / rounds if rounds else None}
