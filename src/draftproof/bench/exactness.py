"""Do chain and tree write what the target alone writes: each token, each bit, and as transformers does?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from draftproof.bench.equality import Divergence, explain_difference, first_divergence
from draftproof.bench.reference import NAME as REFERENCE
from draftproof.bench.reference import TransformersReference
from draftproof.bench.ways import PLAIN, TimedRun, rotated, timed_run
from draftproof.engine.engine import Engine
from draftproof.engine.types import SamplingParams, TokenLogprob

SCHEMA = "draftproof.exactness/1"
ALTERNATIVES = 20  # best tokens whose log-probabilities are compared beside the chosen token's

Prompts = Sequence[tuple[str, list[int]]]
Progress = Callable[[str], None]
Tokens = Sequence[int]
Logprobs = Sequence[TokenLogprob]
Explain = Callable[[Tokens, Tokens], Divergence]


@dataclass
class Comparison:
    """One way against the target alone: counts, and every difference with its explanation.

    ``logprobs_differ``: positions, among those where the tokens agree, with any log-probability of different
    bits. ``first_logprob``: prompt, position of the first of them.
    """

    prompts: int = 0
    identical: int = 0
    tokens: int = 0
    compared_logprobs: int = 0
    logprobs_differ: int = 0
    first_logprob: dict[str, Any] | None = None
    differences: list[dict[str, Any]] = field(default_factory=list)

    def tokens_of(self, name: str, expected: Tokens, got: Tokens, explain: Explain) -> int:
        """Compare two answers; returns how many leading tokens agree."""
        position = first_divergence(expected, got)
        agreed = len(got) if position is None else position
        self.prompts += 1
        self.tokens += agreed
        if position is None:
            self.identical += 1
        else:
            self.differences.append({"prompt": name} | explain(expected, got).to_dict())
        return agreed

    def logprobs_of(self, name: str, expected: Logprobs, got: Logprobs) -> None:
        """Compare log-probabilities of the tokens on which two answers agree."""
        self.compared_logprobs += len(expected)
        for position, (a, b) in enumerate(zip(expected, got, strict=True)):
            if a != b:  # exact floats: any different bit counts
                self.logprobs_differ += 1
                self.first_logprob = self.first_logprob or {"prompt": name, "position": position}

    def to_dict(self, *, exact: bool) -> dict[str, Any]:
        """``exact``: bits are promised, so any difference fails; else only what rounding cannot explain."""
        errors = sum(d["verdict"] == "error" for d in self.differences)
        failed = bool(self.differences or self.logprobs_differ) if exact else errors > 0
        return {
            "prompts": self.prompts,
            "identical": self.identical,
            "agreed_tokens": self.tokens,
            "compared_logprobs": self.compared_logprobs,
            "logprobs_differ": self.logprobs_differ,
            "first_logprob_difference": self.first_logprob,
            "rounding": len(self.differences) - errors,
            "errors": errors,
            "differences": self.differences,
            "passed": not failed,
        }


def run_exactness(
    ways: Mapping[str, Engine],
    prompts: Prompts,
    *,
    max_tokens: int,
    reference: TransformersReference | None = None,
    reference_prompts: int = 0,
    progress: Progress = lambda line: None,
) -> dict[str, Any]:
    """Every prompt through every way (``ways`` holds ``plain``), greedily; the first ``reference_prompts``
    also through ``reference``. Returns the result document without its provenance."""
    plain = ways[PLAIN]
    params = SamplingParams(max_tokens=max_tokens, logprobs=ALTERNATIVES)
    found = {name: Comparison() for name in ways if name != PLAIN}
    accepted = dict.fromkeys(found, 0)
    outside = Comparison()
    for turn, (name, ids) in enumerate(prompts):
        runs = {way: timed_run(engine, ids, params) for way, engine in rotated(ways, turn)}
        explain = partial(explain_difference, plain, ids)
        for way, comparison in found.items():
            _compare(comparison, name, runs[PLAIN], runs[way], explain)
            accepted[way] += sum(r.accepted for r in runs[way].rounds)
        if reference is not None and turn < reference_prompts:
            outside.tokens_of(name, reference.greedy(ids, max_tokens), runs[PLAIN].token_ids, explain)
        progress(f"{turn + 1}/{len(prompts)} {name}: {_so_far(found, outside)}")
    return _document(ways, found, accepted, outside, max_tokens)


def _compare(comparison: Comparison, name: str, expected: TimedRun, got: TimedRun, explain: Explain) -> None:
    agreed = comparison.tokens_of(name, expected.token_ids, got.token_ids, explain)
    if expected.logprobs is not None and got.logprobs is not None:
        comparison.logprobs_of(name, expected.logprobs[:agreed], got.logprobs[:agreed])


def _so_far(found: Mapping[str, Comparison], outside: Comparison) -> str:
    told = [f"{way} {c.identical}/{c.prompts} identical" for way, c in found.items()]
    if outside.prompts:
        told.append(f"{REFERENCE} {outside.identical}/{outside.prompts}")
    return ", ".join(told)


def _document(
    ways: Mapping[str, Engine],
    found: Mapping[str, Comparison],
    accepted: Mapping[str, int],
    outside: Comparison,
    max_tokens: int,
) -> dict[str, Any]:
    drafting = next((engine for name, engine in ways.items() if name != PLAIN), ways[PLAIN])
    facts = drafting.describe()
    exact = bool(facts["invariant"])
    told = {
        way: c.to_dict(exact=exact) | {"accepted": accepted[way], "tree_budget": ways[way].describe()["tree_budget"]}
        for way, c in found.items()
    }
    # transformers computes in another order than the engine does: bits are not promised there.
    against = outside.to_dict(exact=False) if outside.prompts else None
    checks = [*told.values(), *([against] if against else [])]
    return {
        "schema_version": SCHEMA,
        "engine": facts,
        "settings": {"max_tokens": max_tokens, "temperature": 0, "alternatives": ALTERNATIVES},
        "bits_promised": exact,
        "ways": told,
        REFERENCE: against,
        "passed": all(check["passed"] for check in checks),
    }
