"""How fast many streams decode together: target alone, with the drafter (chains, trees), and with one that is never
right."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from draftproof.bench.speed import spread
from draftproof.bench.ways import PLAIN, rotated
from draftproof.drafters.base import Drafter
from draftproof.drafters.dflash import DFlashDrafter
from draftproof.engine.engine import Engine
from draftproof.engine.types import LengthChosen, RoundFinished, SamplingParams, TokensCommitted
from draftproof.errors import CapabilityError
from draftproof.targets.base import Target

DRAFTING, TREES, NEVER_RIGHT = "drafter", "drafter-tree", "never-right"
TREE_BUDGET = 16  # most nodes the policy may choose
STREAMS = (1, 2, 4, 8, 16, 32, 64)

Prompts = Sequence[list[int]]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class StreamRun:
    """One wave of requests, all there at the beginning. ``host_s``: what neither target nor drafter passes took:
    scheduler, policy, sampling, text and events, over whole steps."""

    tokens: int
    seconds: float
    rounds: int
    drafted: int
    produced: int
    verify_s: float
    draft_s: float
    host_s: float
    reasons: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def run_wave(engine: Engine, prompts: Prompts, params: SamplingParams) -> StreamRun:
    """All prompts at once, from an empty prefix cache, to their ends."""
    if engine.prefix_cache is not None:
        engine.prefix_cache.reset()
    for prompt in prompts:
        engine.add_request(prompt, params)
    tokens = rounds = drafted = produced = 0
    verify_s = draft_s = host_s = 0.0
    reasons: dict[str, None] = {}
    began = perf_counter()
    while engine.has_work:
        step_began = perf_counter()
        events = engine.step()
        step_s = perf_counter() - step_began
        stats = [e.stats for e in events if isinstance(e, RoundFinished)]
        tokens += sum(len(e.token_ids) for e in events if isinstance(e, TokensCommitted))
        reasons |= {e.reason: None for e in events if isinstance(e, LengthChosen)}
        if stats:  # the times are the whole pass's, told to each of its requests
            verify_s, draft_s = verify_s + stats[0].verify_s, draft_s + stats[0].draft_s
            host_s += step_s - stats[0].verify_s - stats[0].draft_s
        rounds += len(stats)
        drafted += sum(s.drafted for s in stats)
        produced += sum(s.produced for s in stats)
    seconds = perf_counter() - began
    return StreamRun(tokens, seconds, rounds, drafted, produced, verify_s, draft_s, host_s, tuple(reasons))


def never_right(drafter: Drafter) -> Callable[[Target], Drafter]:
    """The same drafter with its head's rows moved by one: it costs as much, is as sure, and always wrong."""

    def make(target: Target) -> Drafter:
        if not isinstance(drafter, DFlashDrafter):
            raise CapabilityError(f"drafter {drafter.name!r} has no head to move: the never-right way needs DFlash")
        head = drafter.weights.head if drafter.weights.head is not None else output_head(target)
        weights = replace(drafter.weights, head=head.roll(1, dims=0).contiguous())
        return DFlashDrafter(drafter.spec, weights, target, num_draft_tokens=drafter.num_draft_tokens)

    return make


def output_head(target: Target) -> Any:
    """The target's output matrix [V, H], from what its head makes of unit vectors."""
    import torch

    eye = torch.eye(target.info.hidden_size, dtype=target.info.dtype, device=target.info.device)
    return target.project(eye).T.to(target.info.dtype).contiguous()


def stream_ways(engine: Engine) -> dict[str, Engine]:
    """Engines on the same weights: target alone; the drafter, as chains and as trees, and its wrong twin under the
    policy."""
    ways = {PLAIN: engine.with_method("none")}
    if engine.drafter is None:
        return ways
    ways[DRAFTING] = engine
    if engine.target.capabilities.trees:
        ways[TREES] = engine.with_method("tree", TREE_BUDGET)
    ways[NEVER_RIGHT] = engine.with_drafter(never_right(engine.drafter))
    return ways


def measure_streams(
    ways: Mapping[str, Engine],
    prompts: Prompts,
    streams: Sequence[int],
    *,
    max_tokens: int,
    repeats: int,
    progress: Progress = lambda line: None,
) -> dict[str, dict[str, Any]]:
    """Per number of streams: every way in turn, ``repeats`` times, with other prompts each time; ratios are formed
    within a repeat and their median taken."""
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    for engine in ways.values():
        run_wave(engine, prompts[:2], replace(params, max_tokens=min(16, max_tokens)))
    found: dict[str, dict[str, Any]] = {}
    for count in streams:
        runs: dict[str, list[StreamRun]] = {way: [] for way in ways}
        for turn in range(repeats):
            first = turn * count % len(prompts)
            chosen = [prompts[(first + i) % len(prompts)] for i in range(count)]
            for way, engine in rotated(ways, turn):
                runs[way].append(run_wave(engine, chosen, params))
        found[str(count)] = {way: summarise(told, runs[PLAIN]) for way, told in runs.items()}
        speeds = ", ".join(f"{way} {statistics.median(r.rate for r in told):.0f}" for way, told in runs.items())
        progress(f"{count} streams: {speeds} tok/s")
    return found


def summarise(runs: Sequence[StreamRun], plain: Sequence[StreamRun]) -> dict[str, Any]:
    rounds = sum(r.rounds for r in runs) or 1
    passes_s = sum(r.verify_s + r.draft_s + r.host_s for r in runs) or 1.0
    return {
        "tokens_per_s": spread([r.rate for r in runs]),
        "ratio_to_plain": spread([r.rate / p.rate for r, p in zip(runs, plain, strict=True)]),
        "tokens": sum(r.tokens for r in runs),
        "drafted_per_round": sum(r.drafted for r in runs) / rounds,
        "tokens_per_round": sum(r.produced for r in runs) / rounds,
        "host_share": sum(r.host_s for r in runs) / passes_s,
        "draft_share": sum(r.draft_s for r in runs) / passes_s,
        "reasons": sorted({reason for r in runs for reason in r.reasons})[:6],
    }
