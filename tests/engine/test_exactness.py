"""The engine's text against the naive loop: every family, every drafter layout, chain and tree, float32."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch

from draftproof import Engine, SamplingParams
from draftproof.errors import CapabilityError
from support.tiny import (
    FAMILIES,
    MAX_POSITION,
    RECURRENT_FAMILIES,
    VOCAB,
    WINDOW,
    NoisyOracle,
    naive_greedy,
    tiny_drafter,
    tiny_model,
)

METHODS = ("chain", "tree")


@cache
def prompt_of(length: int) -> tuple[int, ...]:
    return tuple(torch.randint(0, VOCAB, (length,), generator=torch.Generator().manual_seed(length)).tolist())


@cache
def truth(family: str, length: int) -> list[int]:
    """The naive loop's whole answer, up to the model's last position."""
    return naive_greedy(tiny_model(family), list(prompt_of(length)), MAX_POSITION - length)


def combinations(families: Sequence[str]) -> list[tuple[str, str]]:
    """Chains for every family, trees where they are possible (their refusal has a test of its own)."""
    return [(f, m) for f in families for m in METHODS if not (m == "tree" and f in RECURRENT_FAMILIES)]


def run(family: str, drafter: Any, prompts: list[int], **options: Any) -> list[Any]:
    if drafter:
        options["length_policy"] = "fixed"
    engine = Engine.from_model(tiny_model(family), None, drafter, **options)
    outputs = engine.generate([list(prompt_of(n)) for n in prompts], SamplingParams(max_tokens=MAX_POSITION))
    assert engine.pool.free_blocks == engine.pool.num_blocks
    return outputs


# Around the window, the block of eight rows and the pool's blocks of sixteen slots; and with little room left.
LENGTHS = [1, 2, WINDOW - 1, WINDOW, WINDOW + 1, 15, 16, 17, 31, 33, MAX_POSITION - 9, MAX_POSITION - 2]


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_equals_the_naive_loop(family: str) -> None:
    for length, output in zip(LENGTHS, run(family, None, LENGTHS), strict=True):
        assert output.token_ids == truth(family, length)
        assert output.finish_reason == "length"


@pytest.mark.parametrize("native", [None, False], ids=["native", "torch"])
@pytest.mark.parametrize(("family", "method"), combinations(FAMILIES))
def test_partly_right_drafts_change_nothing(family: str, method: str, native: bool | None) -> None:
    """Rounds that accept anything from nothing to everything, at every place a round can begin."""
    answers = {prompt_of(n): truth(family, n) for n in LENGTHS}
    outputs = run(family, lambda t: NoisyOracle(answers, VOCAB), LENGTHS, method=method, native=native)
    for length, output in zip(LENGTHS, outputs, strict=True):
        assert output.token_ids == truth(family, length)
    accepted = {r.accepted for o in outputs for r in o.rounds}
    assert {0, 1, 2, 7} <= accepted  # the test exercised partial acceptance


@pytest.mark.parametrize("kinds", ["ff", "ss", "sf", "fsf"])
@pytest.mark.parametrize(("family", "method"), combinations(FAMILIES))
def test_dflash_drafters_change_nothing(family: str, method: str, kinds: str) -> None:
    lengths = [2, WINDOW, 17, MAX_POSITION - 9]
    outputs = run(family, lambda t: tiny_drafter(t, kinds), lengths, method=method)
    for length, output in zip(lengths, outputs, strict=True):
        assert output.token_ids == truth(family, length)
        assert sum(r.drafted for r in output.rounds) > 0


@pytest.mark.parametrize("block", range(2, 17))
@pytest.mark.parametrize(("family", "method"), combinations(["llama", "gemma2", "qwen3_5"]))
def test_every_block_size(family: str, method: str, block: int) -> None:
    answers = {prompt_of(n): truth(family, n) for n in (3, 40)}
    oracle = run(family, lambda t: NoisyOracle(answers, VOCAB, count=block - 1, seed=block), [3, 40], method=method)
    dflash = run(family, lambda t: tiny_drafter(t, "sf", block=block), [3, 40], method=method)
    for outputs in (oracle, dflash):
        assert [o.token_ids for o in outputs] == [truth(family, 3), truth(family, 40)]


@pytest.mark.parametrize("block", [2, 16])
@pytest.mark.parametrize("kinds", ["ff", "ss", "sf"])
@pytest.mark.parametrize(("family", "method"), combinations(FAMILIES))
def test_every_family_and_layout_at_both_ends_of_block_sizes(family: str, method: str, kinds: str, block: int) -> None:
    length = MAX_POSITION - 20  # past every window, and up to the last position
    (output,) = run(family, lambda t: tiny_drafter(t, kinds, block=block), [length], method=method)
    assert output.token_ids == truth(family, length)


@pytest.mark.parametrize("length", [17, 33])
@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen3_5"])
def test_a_prompt_read_in_pieces_changes_nothing(family: str, length: int) -> None:
    """Neither the text nor what is drafted: the drafter's context is made of every piece's taps."""
    answers = {prompt_of(length): truth(family, length)}
    pieces = {"max_num_batched_tokens": 9, "max_num_seqs": 1}
    for drafter in (lambda t: tiny_drafter(t), lambda t: NoisyOracle(answers, VOCAB)):
        (whole,) = run(family, drafter, [length], max_num_seqs=1)
        (again,) = run(family, drafter, [length], **pieces)
        assert again.token_ids == whole.token_ids == truth(family, length)
        assert [r.accepted for r in again.rounds] == [r.accepted for r in whole.rounds]


@pytest.mark.parametrize("budget", [1, 2, 5, 31, 64])
def test_every_tree_budget(budget: int) -> None:
    answers = {prompt_of(5): truth("qwen3", 5)}
    (output,) = run("qwen3", lambda t: NoisyOracle(answers, VOCAB), [5], method="tree", tree_budget=budget)
    assert output.token_ids == truth("qwen3", 5)
    assert max(r.drafted for r in output.rounds) == budget


def test_trees_are_refused_for_recurrent_targets() -> None:
    with pytest.raises(CapabilityError, match="recurrent layers keep one state"):
        Engine.from_model(tiny_model("qwen3_5"), None, lambda t: tiny_drafter(t), method="tree")


@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral", "qwen3"])
@pytest.mark.parametrize("native", [None, False], ids=["native", "torch"])
def test_invariant_mode_is_equal_bit_for_bit_in_bfloat16(family: str, native: bool | None) -> None:
    """Plain, chain, tree and company of other requests: the same tokens and the very same log-probabilities."""
    lengths = [2, WINDOW, 17, 40]
    options: dict[str, Any] = {"native": native, "invariant": True}
    params = SamplingParams(max_tokens=MAX_POSITION, logprobs=0)

    def engine(drafter: Any, **more: Any) -> Engine:
        if drafter:
            more["length_policy"] = "fixed"
        return Engine.from_model(tiny_model(family, dtype=torch.bfloat16), None, drafter, **options, **more)

    alone = engine(None)
    expected = [alone.generate(list(prompt_of(n)), params)[0] for n in lengths]
    answers = {prompt_of(n): o.token_ids for n, o in zip(lengths, expected, strict=True)}
    others = [
        engine(None),
        engine(lambda t: NoisyOracle(answers, VOCAB)),
        engine(lambda t: NoisyOracle(answers, VOCAB), method="tree", tree_budget=20),
        engine(lambda t: tiny_drafter(t), method="tree"),
    ]
    for other in others:
        outputs = other.generate([list(prompt_of(n)) for n in lengths], params)
        assert [o.token_ids for o in outputs] == [o.token_ids for o in expected]
        assert [o.logprobs for o in outputs] == [o.logprobs for o in expected]
