"""Runs the same prompts in several ways, interleaved, and compares what comes out. Prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from draftproof.cli.prompts import NamedPrompt, as_request
from draftproof.cli.protocol import Prompt, TextEngine
from draftproof.cli.summary import Run, run_to_end, stats
from draftproof.engine.types import SamplingParams

PLAIN = "plain"
WARM_UP_TOKENS = 16


@dataclass
class Way:
    """One way of decoding: its engine and what it produced, one run per prompt."""

    name: str
    engine: TextEngine
    runs: list[Run] = field(default_factory=list)


@dataclass(frozen=True)
class Difference:
    """Where a way first leaves the text of the target alone."""

    prompt: str
    position: int
    rounding: bool  # two nearly equal logits changed places
    explanation: str


@dataclass(frozen=True)
class WayReport:
    name: str
    numbers: dict[str, Any]
    speedup: float
    differences: tuple[Difference, ...]

    @property
    def identical(self) -> bool:
        return not self.differences


def run_ways(
    engines: Mapping[str, TextEngine],
    prompts: Sequence[NamedPrompt],
    params: SamplingParams,
    on_run: Callable[[Way, NamedPrompt, Run], None],
) -> list[Way]:
    """Every prompt through every way before the next prompt, so that a noisy minute hits all ways alike."""
    ways = [Way(name, engine) for name, engine in engines.items()]
    warm_up(ways, prompts[0], params)
    for turn, prompt in enumerate(prompts):
        first = turn % len(ways)  # no way always runs first
        for way in [*ways[first:], *ways[:first]]:
            run = run_to_end(way.engine, as_request(way.engine, prompt.text, chat=None), params)
            way.runs.append(run)
            on_run(way, prompt, run)
    return ways


def warm_up(ways: Sequence[Way], prompt: NamedPrompt, params: SamplingParams) -> None:
    """First passes allocate and compile; they are not what is measured."""
    short = replace(params, max_tokens=min(WARM_UP_TOKENS, params.max_tokens))
    for way in ways:
        run_to_end(way.engine, as_request(way.engine, prompt.text, chat=None), short)


def reports(ways: Sequence[Way], prompts: Sequence[NamedPrompt]) -> list[WayReport]:
    """Numbers per way, with speed and text held against the target alone."""
    plain = next(way for way in ways if way.name == PLAIN)
    base = stats(plain.runs)["tokens_per_s"]
    made = []
    for way in ways:
        numbers = stats(way.runs)
        speedup = numbers["tokens_per_s"] / base if base else 0.0
        made.append(WayReport(way.name, numbers, speedup, tuple(_differences(plain, way, prompts))))
    return made


def _differences(plain: Way, way: Way, prompts: Sequence[NamedPrompt]) -> list[Difference]:
    from draftproof.bench.equality import first_divergence

    found = []
    for prompt, wanted, got in zip(prompts, plain.runs, way.runs, strict=True):
        position = first_divergence(wanted.output.token_ids, got.output.token_ids)
        if position is not None:
            request = as_request(plain.engine, prompt.text, chat=None)
            judged = explain(plain.engine, request, wanted.output.token_ids, got.output.token_ids)
            found.append(Difference(prompt.name, position, *judged))
    return found


def explain(engine: Any, prompt: Prompt, wanted: Sequence[int], got: Sequence[int]) -> tuple[bool, str]:
    """Whether the two best logits at the first difference lie within rounding (a tie, not a defect)."""
    from draftproof.bench.equality import explain_difference

    judged = explain_difference(engine, prompt, list(wanted), list(got))
    return judged.verdict == "rounding", str(judged)
