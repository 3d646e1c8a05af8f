"""One request in numbers: usage, speed, acceptance. Rates come from bench.acceptance alone."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

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

_DERIVABLE = ("positions", "undrafted_share")  # follow from at_least and proposed; would make lines long


@dataclass
class Run:
    """A finished (or stopped) request with the wall-clock time around it."""

    output: RequestOutput
    prompt_tokens: int = 0
    total_s: float = 0.0

    @classmethod
    def empty(cls) -> Run:
        return cls(RequestOutput(request_id="", prompt_token_ids=[]))

    def raise_failure(self) -> None:
        if self.output.finish_reason == "error":
            raise RuntimeError(self.output.finish_detail or "the engine gave no reason")

    @property
    def decode_s(self) -> float:
        """All time after the prompt was read, the first draft included."""
        return max(self.total_s - self.output.prefill_s, 1e-9)

    @property
    def decoded(self) -> int:
        """Tokens that rounds produced: the ones decode_s was spent on."""
        return sum(r.produced for r in self.output.rounds)


def run_request(engine: TextEngine, prompt: Prompt, params: SamplingParams, run: Run) -> Generator[Event, None, None]:
    """Runs a request and books its events into ``run`` before passing them on; closing this aborts it."""
    start = time.perf_counter()
    events = engine.stream(prompt, params)
    try:
        for event in events:
            run.output.request_id = event.request_id
            run.output.apply(event)
            if isinstance(event, PrefillFinished):
                run.prompt_tokens = event.prompt_tokens
            run.total_s = time.perf_counter() - start
            yield event
    finally:
        close = getattr(events, "close", None)
        if close is not None:
            close()


def run_to_end(engine: TextEngine, prompt: Prompt, params: SamplingParams) -> Run:
    """All of a request at once. An error inside the engine is raised, not returned."""
    run = Run.empty()
    for _ in run_request(engine, prompt, params, run):
        pass
    run.raise_failure()
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
        "acceptance": acceptance(runs),
    }


def acceptance(runs: list[Run]) -> dict[str, Any] | None:
    """Raw counts, mean acceptance length (τ, bonus included) and shares per position; None without drafts."""
    from draftproof.bench.acceptance import AcceptanceCounts  # here: --help needs no statistics

    rounds = [(r, index) for index, run in enumerate(runs) for r in run.output.rounds]
    groups = [index for _, index in rounds] if len(runs) > 1 else None  # one answer's rounds resemble each other
    counts = AcceptanceCounts.from_rounds([r for r, _ in rounds], groups)
    if counts.rounds == 0:
        return None
    kept = {name: value for name, value in counts.to_dict().items() if name not in _DERIVABLE}
    return kept | {"per_position": [p.rate for p in counts.positions()]}


def _milliseconds(rounds: list[RoundStats]) -> dict[str, float]:
    count = max(len(rounds), 1)
    parts = {
        "draft": sum(r.draft_s for r in rounds),
        "verify": sum(r.verify_s for r in rounds),
        "host": sum(r.host_s for r in rounds),
    }
    return {name: 1000 * seconds / count for name, seconds in parts.items()}


def committed_text(event: Event) -> str:
    """The text an event makes final."""
    return event.text if isinstance(event, TokensCommitted | RequestFinished) else ""
