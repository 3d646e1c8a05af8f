"""One request in numbers: usage, speed, acceptance. Rates come from bench.acceptance alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from draftproof.bench.acceptance import AcceptanceCounts
from draftproof.cli.protocol import Prompt, TextEngine
from draftproof.engine.types import (
    Event,
    PrefillFinished,
    RequestFinished,
    RequestOutput,
    RoundStats,
    SamplingParams,
    TokensCommitted,
)


@dataclass
class Run:
    """A finished (or stopped) request with the wall-clock time around it."""

    output: RequestOutput
    prompt_tokens: int = 0
    total_s: float = 0.0

    @classmethod
    def empty(cls) -> Run:
        return cls(RequestOutput(request_id="", prompt_token_ids=[]))

    @property
    def decode_s(self) -> float:
        """All time after the prompt was read, the first draft included."""
        return max(self.total_s - self.output.prefill_s, 1e-9)

    @property
    def decoded(self) -> int:
        """Tokens that rounds produced: the ones decode_s was spent on."""
        return sum(r.produced for r in self.output.rounds)


def run_request(engine: TextEngine, prompt: Prompt, params: SamplingParams) -> Iterator[tuple[Event, Run]]:
    """Runs a request, yielding each event with the Run it was added to; closing this aborts the request."""
    run = Run(RequestOutput(request_id="", prompt_token_ids=prompt if isinstance(prompt, list) else []))
    start = time.perf_counter()
    events = engine.stream(prompt, params)
    try:
        for event in events:
            run.output.request_id = event.request_id
            run.output.apply(event)
            if isinstance(event, PrefillFinished):
                run.prompt_tokens = event.prompt_tokens
            run.total_s = time.perf_counter() - start
            yield event, run
    finally:
        close = getattr(events, "close", None)
        if close is not None:
            close()


def run_to_end(engine: TextEngine, prompt: Prompt, params: SamplingParams) -> Run:
    run = None
    for _, run in run_request(engine, prompt, params):
        pass
    if run is None:
        raise RuntimeError("the engine ended a request without any event")
    return run


def usage(run: Run) -> dict[str, int]:
    completion = len(run.output.token_ids)
    return {
        "prompt_tokens": run.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": run.prompt_tokens + completion,
    }


def stats(runs: list[Run]) -> dict[str, Any]:
    """Speed and acceptance over requests, as plain data."""
    rounds = [r for run in runs for r in run.output.rounds]
    decoded, decode_s = sum(run.decoded for run in runs), sum(run.decode_s for run in runs)
    return {
        "rounds": len(rounds),
        "tokens_per_s": decoded / decode_s if runs else 0.0,
        "prefill_s": sum(run.output.prefill_s for run in runs),
        "decode_s": decode_s,
        "ms_per_round": _milliseconds(rounds),
        "acceptance": acceptance(rounds),
    }


def acceptance(rounds: list[RoundStats]) -> dict[str, Any] | None:
    """Mean acceptance length (τ, bonus included) and the share of rounds that accepted at least k."""
    drafting = [r for r in rounds if r.depth > 0]
    if not drafting:
        return None
    counts = AcceptanceCounts.from_rounds(drafting)
    low, high = counts.tau_interval()
    return {
        "tau": counts.tau,
        "tau_interval_95": [low, high],
        "per_position": list(counts.per_position()),
        "drafted": sum(r.drafted for r in drafting),
        "accepted": sum(r.accepted for r in drafting),
        "rounds": len(drafting),
    }


def _milliseconds(rounds: list[RoundStats]) -> dict[str, float]:
    count = max(len(rounds), 1)
    return {
        part: 1000 * sum(getattr(r, f"{part}_s") for r in rounds) / count
        for part in ("draft", "verify", "host")
    }


def committed_text(event: Event) -> str:
    """The text an event makes final."""
    return event.text if isinstance(event, TokensCommitted | RequestFinished) else ""
