"""What a cached prefix saves and that it costs no acceptance: time to first token and τ, cold and cached."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from draftproof.bench.acceptance import AcceptanceCounts
from draftproof.bench.streams import Progress, Prompts
from draftproof.engine.engine import Engine
from draftproof.engine.types import RequestOutput, SamplingParams, TokensCommitted
from draftproof.errors import UsageError

_QUESTION = 24  # tokens after the shared prefix


def measure_first_token(
    engine: Engine, text: Sequence[int], *, prefix: int, repeats: int, progress: Progress = lambda line: None
) -> dict[str, Any]:
    """Seconds to the first token of a prompt of ``prefix`` tokens and a question, cold and with the prefix cached by
    another question. ``text``: at least as many tokens, of which prefixes are made."""
    if len(text) < prefix or engine.prefix_cache is None:
        raise UsageError(f"a prefix of {prefix} tokens needs as long a text ({len(text)} given) and a prefix cache")
    cold: list[float] = []
    cached: list[float] = []
    hits: list[int] = []
    for turn in range(repeats):
        beginning = [*text[turn:prefix], *text[:turn]]
        questions = [[(31 * i + 7 * turn + k) % 1000 + 5 for i in range(_QUESTION)] for k in (1, 2)]
        engine.prefix_cache.reset()
        for times, question in ((cold, questions[0]), (cached, questions[1])):
            times.append(_first_token(engine, [*beginning, *question]))
        hits.append(engine.prefix_cache.stats.hits)
        progress(f"prefix of {prefix}: {1000 * cold[-1]:.0f} ms cold, {1000 * cached[-1]:.0f} ms cached")
    return {
        "prefix_tokens": prefix,
        "question_tokens": _QUESTION,
        "cold_s": statistics.median(cold),
        "cached_s": statistics.median(cached),
        "ratio": statistics.median(b / a for a, b in zip(cold, cached, strict=True)),
        "hit_tokens": hits[-1] - (hits[-2] if len(hits) > 1 else 0),
    }


def _first_token(engine: Engine, prompt: list[int]) -> float:
    began = perf_counter()
    for event in engine.stream(prompt, SamplingParams(max_tokens=1)):
        if isinstance(event, TokensCommitted):
            return perf_counter() - began
    raise RuntimeError("a request ended without a token")


def measure_cached_acceptance(
    engine: Engine, prompts: Prompts, *, max_tokens: int, batch: int, progress: Progress = lambda line: None
) -> dict[str, Any]:
    """Acceptance of fixed-length drafts, every prompt cold and then cached, ``batch`` at once."""
    assert engine.prefix_cache is not None
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    engine.prefix_cache.reset()
    told: dict[str, Any] = {"requests": len(prompts)}
    texts: dict[str, list[list[int]]] = {}
    for name in ("cold", "cached"):
        outputs: list[RequestOutput] = []
        for begin in range(0, len(prompts), batch):
            outputs += engine.generate(prompts[begin : begin + batch], params)
        counts = AcceptanceCounts.from_rounds(
            [r for o in outputs for r in o.rounds], [i for i, o in enumerate(outputs) for _ in o.rounds]
        )
        texts[name] = [o.token_ids for o in outputs]
        told[name] = counts.to_dict() | {"cached_tokens": sum(o.cached_tokens for o in outputs)}
        progress(f"acceptance {name}: τ {counts.tau or 0:.3f} over {len(outputs)} requests")
    told["prompt_tokens"] = sum(map(len, prompts))
    told["same_texts"] = texts["cold"] == texts["cached"]
    return told


def fixed(engine: Engine) -> Engine:
    """The same pair with drafts of full length, so that nothing but the cache differs."""
    return engine.with_method(engine.method, length_policy="fixed")
