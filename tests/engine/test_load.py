"""Many requests on one pool: whatever the neighbours, the cache and the pool's size do, every text is the naive one.

Batch sizes × what happens to a request × families × methods. Float32 against the naive loop; bfloat16, where rows do
not depend on their company, bit for bit against the request alone, log-probabilities included.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch

from draftproof import Engine, RequestOutput, SamplingParams
from draftproof.engine.types import RequestFinished
from support.tiny import (
    FAMILIES,
    MAX_POSITION,
    RECURRENT_FAMILIES,
    VOCAB,
    NoisyOracle,
    naive_greedy,
    tiny_drafter,
    tiny_model,
)

TOKENS = 22
BLOCK = 4
SHARED = 21  # five blocks and one token: a hit ends inside a block
PARAMS = SamplingParams(max_tokens=TOKENS)
CASES = [(f, m) for f in FAMILIES for m in ("chain", "tree") if not (m == "tree" and f in RECURRENT_FAMILIES)]


@cache
def prompts() -> tuple[tuple[int, ...], ...]:
    """Sixteen of 2 to 43 tokens, every second of which begins like the others."""
    random = torch.Generator().manual_seed(5)
    beginning = torch.randint(0, VOCAB, (SHARED,), generator=random).tolist()
    made = []
    for i in range(16):
        own = torch.randint(0, VOCAB, (2 + (11 * i) % 23,), generator=random).tolist()
        made.append(tuple(beginning + own if i % 2 == 0 else own))
    return tuple(made)


@cache
def truth(family: str, index: int) -> list[int]:
    return naive_greedy(tiny_model(family), list(prompts()[index]), TOKENS)


def engine(family: str, method: str, drafter: str, dtype: torch.dtype = torch.float32, **options: Any) -> Engine:
    def oracle(target: Any) -> NoisyOracle:
        return NoisyOracle({p: truth(family, i) for i, p in enumerate(prompts())}, VOCAB)

    makers: dict[str, Any] = {"oracle": oracle, "dflash": lambda t: tiny_drafter(t, "sf"), "none": None}
    if makers[drafter]:
        options |= {"length_policy": "fixed", "method": method}
    return Engine.from_model(tiny_model(family, dtype=dtype), None, makers[drafter], block_size=BLOCK, **options)


def bytes_per_token(family: str) -> int:
    probe = engine(family, "chain", "dflash")
    shapes = [*probe.target.kv_shapes, *probe.drafter.kv_shapes]  # type: ignore[union-attr]
    return sum(s.bytes_per_token(torch.float32) for s in shapes)


def small_pool(family: str, blocks: int) -> dict[str, Any]:
    return {"kv_cache_gb": blocks * BLOCK * bytes_per_token(family) / 2**30, "max_model_len": 68}


def cold(run: Callable[..., Engine], family: str, batch: int, params: SamplingParams) -> list[RequestOutput]:
    return run().generate([list(p) for p in prompts()[:batch]], params)


def prefix_hit(run: Callable[..., Engine], family: str, batch: int, params: SamplingParams) -> list[RequestOutput]:
    running = run()
    running.generate([list(p) for p in prompts()[:batch]], params)
    outputs = running.generate([list(p) for p in prompts()[:batch]], params)
    assert all(o.cached_tokens == len(o.prompt_token_ids) - 1 for o in outputs)
    return outputs


def hit_inside_a_block(
    run: Callable[..., Engine], family: str, batch: int, params: SamplingParams
) -> list[RequestOutput]:
    running = run()
    running.generate([[*prompts()[0][:SHARED], 1, 1, 1, 1, 1]], params)
    outputs = running.generate([list(p) for p in prompts()[:batch]], params)
    assert all(o.cached_tokens >= SHARED for o in outputs[::2])
    return outputs


def pre_empted(run: Callable[..., Engine], family: str, batch: int, params: SamplingParams) -> list[RequestOutput]:
    running = run(**small_pool(family, 18))
    outputs = running.generate([list(p) for p in prompts()[:batch]], params)
    assert batch < 4 or sum(o.preemptions for o in outputs) > 0
    return outputs


def aborted_neighbour(
    run: Callable[..., Engine], family: str, batch: int, params: SamplingParams
) -> list[RequestOutput]:
    running = run()
    outputs = [RequestOutput(str(i), list(p)) for i, p in enumerate(prompts()[:batch])]
    for output in outputs:
        running.add_request(output.prompt_token_ids, params, output.request_id)
        running.add_request(list(prompts()[3]), params, f"neighbour-{output.request_id}")
    steps = 0
    while running.has_work:
        for event in running.step():
            if not event.request_id.startswith("neighbour"):
                outputs[int(event.request_id)].apply(event)
            else:
                assert not isinstance(event, RequestFinished) or event.reason == "abort"
        if steps < batch:
            assert running.abort(f"neighbour-{steps}")
        steps += 1
    return outputs


HAPPENINGS = [cold, prefix_hit, hit_inside_a_block, pre_empted, aborted_neighbour]


def check(running: Callable[..., Engine], family: str, batch: int, happening: Any) -> None:
    engines: list[Engine] = []

    def run(**options: Any) -> Engine:
        engines.append(running(**options))
        return engines[-1]

    outputs = happening(run, family, batch, PARAMS)
    for i, output in enumerate(outputs):
        assert output.finish_reason == "length", output.finish_detail
        assert output.token_ids == truth(family, i), i
    assert engines[-1].pool.free_blocks == engines[-1].pool.num_blocks
    assert all(w.blocks.available == w.blocks.count for w in engines[-1].pool.windows)


# Nothing is cached for recurrent targets, which has a test of its own.
MATRIX = [
    (family, method, happening)
    for family, method in CASES
    for happening in HAPPENINGS
    if not (family in RECURRENT_FAMILIES and happening in (prefix_hit, hit_inside_a_block))
]


@pytest.mark.parametrize("drafter", ["oracle", "dflash"])
@pytest.mark.parametrize(("family", "method", "happening"), MATRIX, ids=lambda v: getattr(v, "__name__", v))
def test_texts_are_the_naive_loop_s(family: str, method: str, happening: Any, drafter: str) -> None:
    for batch in (1, 2, 4, 16):
        check(lambda **options: engine(family, method, drafter, **options), family, batch, happening)


@cache
def alone(family: str, index: int) -> RequestOutput:
    """One request alone, plain, on a fresh engine: the bits everything else must reproduce."""
    running = engine(family, "chain", "none", torch.bfloat16)
    return running.generate([list(prompts()[index])], SamplingParams(max_tokens=TOKENS, logprobs=2))[0]


@pytest.mark.parametrize("method", ["chain", "tree"])
@pytest.mark.parametrize("happening", HAPPENINGS, ids=lambda h: h.__name__)
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_bfloat16_is_bit_for_bit_what_the_request_alone_gets(family: str, happening: Any, method: str) -> None:
    params = SamplingParams(max_tokens=TOKENS, logprobs=2)
    for batch in (1, 4, 16):
        outputs = happening(
            lambda **options: engine(family, method, "dflash", torch.bfloat16, **options), family, batch, params
        )
        for i, output in enumerate(outputs):
            assert output.token_ids == alone(family, i).token_ids
            assert output.logprobs == alone(family, i).logprobs


def test_recurrent_targets_cache_nothing_and_say_why() -> None:
    from draftproof.errors import CapabilityError

    running = engine("qwen3_5", "chain", "dflash")
    assert running.prefix_cache is None
    with pytest.raises(CapabilityError, match="one state per sequence"):
        engine("qwen3_5", "chain", "dflash", enable_prefix_caching=True)


def test_acceptance_is_the_same_cold_and_cached() -> None:
    """A hit brings the drafter's context back: round by round the same drafts are accepted."""
    for kinds in ("ff", "ss", "sf"):
        running = Engine.from_model(
            tiny_model("llama"), None, lambda t, k=kinds: tiny_drafter(t, k), block_size=BLOCK, length_policy="fixed"
        )
        first, again = (running.generate([list(prompts()[0])], PARAMS)[0] for _ in range(2))
        assert again.cached_tokens > 0 and first.cached_tokens == 0
        assert [r.accepted for r in again.rounds] == [r.accepted for r in first.rounds]
        assert len(prompts()[0]) + TOKENS < MAX_POSITION
