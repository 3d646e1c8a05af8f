"""The first difference of two answers: found, and told apart into rounding and error."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draftproof import Engine
from draftproof.bench.equality import (
    explain_difference,
    first_divergence,
    rounding_bound,
    target_logits,
)
from draftproof.engine.options import EngineOptions
from draftproof.errors import UsageError
from draftproof.targets.open import wrap_model
from support.tiny import FAMILIES, VOCAB, naive_greedy, tiny_model

PROMPT = [3, 14, 15, 92, 65]
tokens = st.lists(st.integers(0, 3), max_size=8)


@given(tokens, tokens)
def test_first_divergence_is_where_common_prefixes_end(a, b):
    position = first_divergence(a, b)
    if position is None:
        assert a == b
    else:
        assert a[:position] == b[:position]
        assert a[position : position + 1] != b[position : position + 1]


def logits_with(**values):
    row = torch.zeros(8)
    for name, value in values.items():
        row[int(name[1:])] = value
    return lambda ids: row


def test_a_tie_is_rounding_and_a_gap_is_an_error():
    near = explain_difference(logits_with(t1=20.0, t2=19.9), [0], [1], [2], torch.bfloat16, depth=4)
    assert (
        near.verdict == "rounding"
        and near.gap == pytest.approx(0.1, rel=1e-4)
        and "within bfloat16 rounding" in str(near)
    )
    far = explain_difference(logits_with(t1=20.0, t2=18.0), [0], [1], [2], torch.bfloat16, depth=4)
    assert far.verdict == "error" and str(far).startswith("not rounding: token 2 instead of 1, 2 below")
    same_in_float32 = explain_difference(logits_with(t1=20.0, t2=19.9), [0], [1], [2], torch.float32, depth=4)
    assert same_in_float32.verdict == "error"


def test_two_tokens_near_each_other_but_far_from_the_best_are_an_error():
    found = explain_difference(logits_with(t1=5.0, t2=5.0, t3=20.0), [0], [1], [2], torch.bfloat16, depth=4)
    assert found.verdict == "error" and found.gap == pytest.approx(15.0)


def test_the_target_sees_the_common_prefix():
    seen = []

    def logits_of(ids):
        seen.append(list(ids))
        return torch.arange(8.0)

    found = explain_difference(logits_of, [7, 7], [1, 2, 3], [1, 2, 4], torch.float32, depth=1)
    assert seen == [[7, 7, 1, 2]] and found.position == 2 and (found.expected, found.got) == (3, 4)


def test_an_answer_that_stops_early_is_an_error_without_logits():
    found = explain_difference(logits_with(), [0], [1, 2], [1], torch.float32, depth=1)
    assert (found.verdict, found.expected, found.got, found.gap) == ("error", 2, None, None)
    assert "this answer ends after 1 tokens" in str(found)


def test_equal_answers_and_missing_facts_are_refused():
    with pytest.raises(ValueError, match="equal"):
        explain_difference(logits_with(), [0], [1], [1])
    with pytest.raises(UsageError, match="dtype and depth"):
        explain_difference(logits_with(), [0], [1], [2])
    with pytest.raises(UsageError, match="token ids"):
        explain_difference(logits_with(), "text", [1], [2], torch.float32, depth=1)


def test_the_bound_grows_with_depth_dtype_and_scale():
    row = torch.tensor([0.0, -40.0, 3.0])
    bound = rounding_bound(row, torch.bfloat16, 16)
    assert bound == pytest.approx(4 * 2**-7 * 40)
    assert rounding_bound(row, torch.bfloat16, 64) == pytest.approx(2 * bound)
    assert rounding_bound(row / 2, torch.bfloat16, 16) == pytest.approx(bound / 2)
    assert rounding_bound(row, torch.float16, 16) == pytest.approx(bound / 8)
    assert rounding_bound(row, torch.float32, 16) == pytest.approx(4 * bound / 2**16)


@pytest.mark.parametrize("family", FAMILIES)
def test_target_logits_are_the_models_own(family):
    """Through a pool of its own, in pieces, against the model's code without any cache."""
    with torch.inference_mode():
        ids = PROMPT + naive_greedy(tiny_model(family), PROMPT, 4)
        expected = tiny_model(family)(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
    target = wrap_model(tiny_model(family), EngineOptions(native=False))
    assert torch.allclose(target_logits(target)(ids), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2"])
def test_bfloat16_passes_of_other_shapes_stay_within_the_bound(family):
    """What the bound claims: however a pass is shaped, the gap of two logits moves by less."""
    model = tiny_model(family, dtype=torch.bfloat16)
    ids = PROMPT * 4
    with torch.inference_mode():
        whole = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
        for length in range(1, len(ids) + 1):
            alone = model(input_ids=torch.tensor([ids[:length]]), use_cache=False).logits[0, -1].float()
            best = alone.topk(2).indices
            moved = (alone[best[0]] - alone[best[1]]) - (whole[length - 1][best[0]] - whole[length - 1][best[1]])
            assert abs(float(moved)) <= rounding_bound(alone, torch.bfloat16, 4)


def test_an_engine_judges_a_forged_answer():
    engine = Engine.from_model(tiny_model("llama"))
    answer = naive_greedy(tiny_model("llama"), PROMPT, 6)
    forged = [*answer[:3], (answer[3] + 1) % VOCAB, *answer[4:]]
    found = explain_difference(engine, PROMPT, answer, forged)
    assert found.verdict == "error" and found.position == 3
    assert found.gap is not None and found.bound is not None and math.isfinite(found.bound)
    assert engine.pool.free_blocks == engine.pool.num_blocks  # nothing was taken from the engine's own pool
