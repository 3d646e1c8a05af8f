"""The benchmark of the engine under load: streams, host time, prefix cache, peers; one document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from draftproof.bench.prefixes import fixed, measure_cached_acceptance, measure_first_token
from draftproof.bench.provenance import load_average
from draftproof.bench.streams import Progress, Prompts, measure_streams, stream_ways
from draftproof.engine.engine import Engine
from draftproof.errors import DraftproofError

SCHEMA = "draftproof.engine/1"
PREFIX_TOKENS = 2000
ACCEPTANCE_REQUESTS, ACCEPTANCE_TOKENS, ACCEPTANCE_BATCH = 208, 24, 16

Peer = Callable[[], Mapping[str, Any]]


def run_engine_load(
    engine: Engine,
    prompts: Prompts,
    *,
    streams: Sequence[int],
    max_tokens: int,
    repeats: int,
    peers: Mapping[str, Peer],
    progress: Progress = lambda line: None,
) -> dict[str, Any]:
    """Measure everything; returns the result document without its provenance."""
    before = load_average()
    table = measure_streams(
        stream_ways(engine), prompts, streams, max_tokens=max_tokens, repeats=repeats, progress=progress
    )
    document: dict[str, Any] = {
        "schema_version": SCHEMA,
        "engine": engine.describe(),
        "settings": {"max_tokens": max_tokens, "repeats": repeats, "temperature": 0, "ignore_eos": True},
        "streams": table,
        "costs": costs(engine),
    }
    text = [token for prompt in prompts for token in prompt]
    if engine.prefix_cache is not None:
        prefix = min(PREFIX_TOKENS, len(text), engine.max_model_len - 64)
        document["first_token"] = measure_first_token(
            engine, text, prefix=prefix, repeats=max(repeats, 3), progress=progress
        )
        if engine.drafter is not None:
            document["acceptance"] = measure_cached_acceptance(
                fixed(engine),
                prompts[:ACCEPTANCE_REQUESTS],
                max_tokens=ACCEPTANCE_TOKENS,
                batch=min(ACCEPTANCE_BATCH, engine.options.max_num_seqs),
                progress=progress,
            )
    document["peers"] = {name: ask(name, peer, table, progress) for name, peer in peers.items()}
    document["load_average"] = {"before": before, "after": load_average()}
    return document


def costs(engine: Engine) -> dict[str, Any]:
    """The curves the policy worked with, as they stood at the end: milliseconds by rows."""
    known = engine.core.costs
    return {
        name: [[rows, 1000 * seconds] for rows, seconds in curve.points()]
        for name, curve in (("target_ms", known.target), ("draft_ms", known.draft))
    }


def ask(name: str, peer: Peer, table: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """A peer's tokens a second by streams and our own over it, or why there are none."""
    progress(f"peer {name}")
    try:
        found = dict(peer())
    except DraftproofError as error:
        progress(f"peer {name} left out: {error}")
        return {"skipped": str(error)}
    rates = found.get("streams", {})
    ratios = {
        count: {way: told["tokens_per_s"]["median"] / rate for way, told in table[count].items()}
        for count, rate in rates.items()
        if count in table and rate > 0
    }
    return found | {"ratio": ratios}


def plain_scaling(table: Mapping[str, Any], many: str = "16") -> float | None:
    """Plain throughput of ``many`` streams over one stream's."""
    if many not in table or "1" not in table:
        return None
    return float(table[many]["plain"]["tokens_per_s"]["median"] / table["1"]["plain"]["tokens_per_s"]["median"])


def worst(table: Mapping[str, Any], way: str) -> float | None:
    """The lowest median ratio to the target alone over all numbers of streams."""
    ratios = [told[way]["ratio_to_plain"]["median"] for told in table.values() if way in told]
    return min(ratios) if ratios else None
