"""The ways of decoding that are compared (target alone, chain, trees) on one set of weights; timed runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

from draftproof.engine.engine import Engine
from draftproof.engine.types import RequestOutput, RoundStats, SamplingParams, TokenLogprob

PLAIN = "plain"
T = TypeVar("T")


@dataclass(frozen=True)
class TimedRun:
    """One finished request. ``total_s`` is wall clock from the request to its last event."""

    prompt_tokens: int
    token_ids: tuple[int, ...]
    prefill_s: float
    total_s: float
    rounds: tuple[RoundStats, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None

    @property
    def decode_s(self) -> float:
        """All time after the prompt was read, the first draft included."""
        return max(self.total_s - self.prefill_s, 1e-9)

    @property
    def decode_rate(self) -> float:
        """Tokens a second without the prompt and without the first token, which the prefill yields."""
        return max(len(self.token_ids) - 1, 0) / self.decode_s

    @property
    def total_rate(self) -> float:
        """Tokens a second, reading the prompt included."""
        return len(self.token_ids) / max(self.total_s, 1e-9)


Runner = Callable[[Sequence[int]], TimedRun]


def ways_of(engine: Engine, tree_budgets: Sequence[int | None] = (None,)) -> dict[str, Engine]:
    """The engine's target alone, with its drafter's chain, and a tree per budget (None: the engine's own), drafting
    in full length each round: what is compared is drafting itself, not the policy that may leave it.

    All of them share the loaded weights: nothing but the way of decoding differs, and memory is taken once.
    Trees are left out where drafter or target cannot have them; one budget makes ``tree``, more ``tree-N``.
    """
    ways = {PLAIN: engine.with_method("none")}
    if engine.drafter is None:
        return ways
    ways["chain"] = engine.with_method("chain", length_policy="fixed")
    if engine.drafter.name == "ngram" or not engine.target.capabilities.trees:
        return ways
    for budget in tree_budgets:
        name = "tree" if len(tree_budgets) == 1 else f"tree-{budget}"
        ways[name] = engine.with_method("tree", budget, length_policy="fixed")
    return ways


def policy_ways(engine: Engine, most_nodes: int = 16) -> dict[str, Engine]:
    """As they are served: a chain, and a tree of up to ``most_nodes`` nodes, whose lengths the policy chooses each
    round, down to nothing. Empty without a drafter."""
    if engine.drafter is None:
        return {}
    ways = {"policy": engine.with_method("chain", length_policy="adaptive")}
    if engine.drafter.name != "ngram" and engine.target.capabilities.trees:
        ways["policy-tree"] = engine.with_method("tree", most_nodes, length_policy="adaptive")
    return ways


def timed_run(engine: Engine, ids: Sequence[int], params: SamplingParams) -> TimedRun:
    """Run one request alone to its end."""
    output = RequestOutput("", list(ids))
    began = perf_counter()
    for event in engine.stream(list(ids), params):
        output.apply(event)
    total = perf_counter() - began
    if output.finish_reason == "error":
        raise RuntimeError(output.finish_detail or "the engine gave no reason")
    logprobs = None if output.logprobs is None else tuple(output.logprobs)
    return TimedRun(len(ids), tuple(output.token_ids), output.prefill_s, total, tuple(output.rounds), logprobs)


def rotated(ways: Mapping[str, T], turn: int) -> Iterator[tuple[str, T]]:
    """All ways, another one first each turn: none is favoured, and a noisy minute hits all alike."""
    items = list(ways.items())
    first = turn % len(items)
    yield from [*items[first:], *items[:first]]
