"""How fast one stream decodes: target alone, chain and trees, interleaved, with where the time goes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from draftproof.bench.acceptance import AcceptanceCounts
from draftproof.bench.passes import CONTEXT, PassBench, read_bandwidth, weight_bytes
from draftproof.bench.peers import PeerResult
from draftproof.bench.provenance import load_average
from draftproof.bench.ways import PLAIN, TimedRun, rotated, timed_run
from draftproof.engine.engine import Engine
from draftproof.engine.types import SamplingParams
from draftproof.errors import DraftproofError

SCHEMA = "draftproof.speed/1"
HOST_SHARE_AIM = 0.10
_WARM_UP_TOKENS = 16

Prompts = Sequence[tuple[str, list[int]]]
Progress = Callable[[str], None]
Peer = Callable[[], PeerResult]
Runs = list[list[TimedRun]]  # [prompt][repeat]


def run_speed(
    ways: Mapping[str, Engine],
    workloads: Mapping[str, Prompts],
    *,
    max_tokens: int,
    repeats: int,
    peers: Mapping[str, Peer],
    progress: Progress = lambda line: None,
) -> dict[str, Any]:
    """Measure everything; returns the result document without its provenance."""
    params = SamplingParams(max_tokens=max_tokens)
    load_before = load_average()
    bandwidth = read_bandwidth()
    _warm_up(ways, workloads, params)
    measured = {
        name: measure(ways, prompts, params, repeats, lambda line, name=name: progress(f"{name} {line}"))  # type: ignore[misc]
        for name, prompts in workloads.items()
    }
    tables = {name: summarise(runs) for name, runs in measured.items()}
    progress("cost of a pass by its rows")
    drafting = next((engine for name, engine in ways.items() if name != PLAIN), ways[PLAIN])
    costs = [cost.to_dict() for cost in PassBench(drafting).run()]
    others = {name: _ask(name, peer, progress) for name, peer in peers.items()}
    return {
        "schema_version": SCHEMA,
        "engine": drafting.describe(),
        "settings": {"max_tokens": max_tokens, "repeats": repeats, "temperature": 0, "streams": 1},
        "workloads": tables,
        "passes": {"context": CONTEXT, "costs": costs},
        "bandwidth": bandwidth_use(ways[PLAIN], bandwidth, [r for runs in measured.values() for r in runs[PLAIN]]),
        "peers": {name: found | _ratios(found, tables) for name, found in others.items()},
        "load_average": {"before": load_before, "after": load_average()},
    }


def _warm_up(ways: Mapping[str, Engine], workloads: Mapping[str, Prompts], params: SamplingParams) -> None:
    """First passes allocate and compile; they are not what is measured."""
    _, ids = next(iter(workloads.values()))[0]
    for engine in ways.values():
        timed_run(engine, ids, SamplingParams(max_tokens=min(_WARM_UP_TOKENS, params.max_tokens)))


def measure(
    ways: Mapping[str, Engine],
    prompts: Prompts,
    params: SamplingParams,
    repeats: int,
    progress: Progress = lambda line: None,
) -> dict[str, Runs]:
    """Every prompt ``repeats`` times through every way, all ways before the next repeat, rotating."""
    runs: dict[str, Runs] = {way: [] for way in ways}
    turn = 0
    for index, (name, ids) in enumerate(prompts):
        for way in ways:
            runs[way].append([])
        for _ in range(repeats):
            for way, engine in rotated(ways, turn):
                runs[way][-1].append(timed_run(engine, ids, params))
            turn += 1
        speeds = ", ".join(f"{way} {_median_rate(runs[way][-1]):.1f}" for way in ways)
        progress(f"{index + 1}/{len(prompts)} {name}: {speeds} tok/s")
    return runs


def summarise(runs: Mapping[str, Runs]) -> dict[str, Any]:
    """Numbers per way: a prompt counts with the median of its repeats, a way with that of its prompts."""
    plain = [_median_rate(repeats) for repeats in runs[PLAIN]]
    plain_whole = [_median_rate(repeats, whole=True) for repeats in runs[PLAIN]]
    return {
        "prompts": len(plain),
        "ways": {way: _summary(found, plain, plain_whole) for way, found in runs.items()},
    }


def _summary(runs: Runs, plain: Sequence[float], plain_whole: Sequence[float]) -> dict[str, Any]:
    decode = [_median_rate(repeats) for repeats in runs]
    whole = [_median_rate(repeats, whole=True) for repeats in runs]
    counts = AcceptanceCounts.from_rounds(
        # Repeats of a greedy answer are the same rounds again and would only make the interval look narrower.
        [r for repeats in runs for r in repeats[0].rounds],
        [index for index, repeats in enumerate(runs) for _ in repeats[0].rounds],
    )
    return {
        "decode_tokens_per_s": spread(decode),
        "with_prefill_tokens_per_s": spread(whole),
        "speedup": spread([a / b for a, b in zip(decode, plain, strict=True)]),
        "speedup_with_prefill": spread([a / b for a, b in zip(whole, plain_whole, strict=True)]),
        "ms_per_round": round_parts([run for repeats in runs for run in repeats]),
        "tokens": sum(len(repeats[0].token_ids) for repeats in runs),
        "acceptance": counts.to_dict() if counts.rounds else None,
    }


def _median_rate(repeats: Sequence[TimedRun], *, whole: bool = False) -> float:
    return statistics.median(run.total_rate if whole else run.decode_rate for run in repeats)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median with the values at a tenth and nine tenths (lowest and highest of few)."""
    ordered = sorted(values)
    cut = len(ordered) // 10
    return {"median": statistics.median(ordered), "p10": ordered[cut], "p90": ordered[-1 - cut]}


def round_parts(runs: Sequence[TimedRun]) -> dict[str, float]:
    """Mean milliseconds of a round by what they were spent on. ``host`` is everything outside of drafting and
    of the target's passes, the engine's work between rounds included: the parts add up to all the time."""
    rounds = [r for run in runs for r in run.rounds]
    if not rounds:
        return {"draft": 0.0, "verify": 0.0, "host": 0.0, "host_share": 0.0}
    draft, verify = sum(r.draft_s for r in rounds), sum(r.verify_s for r in rounds)
    wall = sum(run.decode_s for run in runs)
    host = max(wall - draft - verify, 0.0)
    per_round = {name: 1000 * s / len(rounds) for name, s in (("draft", draft), ("verify", verify), ("host", host))}
    return per_round | {"host_share": host / wall}


def bandwidth_use(plain: Engine, bandwidth: float, runs: Sequence[Sequence[TimedRun]]) -> dict[str, Any]:
    """The share of the memory bandwidth that plain decoding reaches: its weights, read once a pass."""
    held = weight_bytes(plain)
    times = [r.verify_s for repeats in runs for run in repeats for r in run.rounds]
    if held is None or not times:
        return {
            "read_bytes_per_s": bandwidth,
            "weight_bytes": held,
            "reached_bytes_per_s": None,
            "share": None,
        }
    reached = held / statistics.median(times)
    return {
        "read_bytes_per_s": bandwidth,
        "weight_bytes": held,
        "reached_bytes_per_s": reached,
        "share": reached / bandwidth,
    }


def _ask(name: str, peer: Peer, progress: Progress) -> dict[str, Any]:
    """A peer's figure, or why there is none: a peer that is missing must not cost the rest of the run."""
    progress(f"peer {name}")
    try:
        return dict(peer())
    except DraftproofError as error:
        progress(f"peer {name} left out: {error}")
        return {"skipped": str(error)}


def _ratios(found: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """Each way's decoding speed over the peer's, on the first workload, whose prompts the peers get."""
    if "skipped" in found:
        return {}
    ways = next(iter(tables.values()))["ways"]
    theirs = found["tokens_per_second"]
    return {"ratio": {way: told["decode_tokens_per_s"]["median"] / theirs for way, told in ways.items()}}
