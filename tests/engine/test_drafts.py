"""DFlash drafts against a brute-force reading of the paper: no cache, no pool, one explicit mask per layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from draftproof import Engine, SamplingParams
from draftproof.drafters.base import Draft
from draftproof.drafters.dflash import DFlashDrafter, DFlashWeights, rope_frequencies
from draftproof.drafters.loading import random_weights
from draftproof.drafters.spec import DrafterSpec
from draftproof.engine.types import RoundFinished, TokensCommitted
from support.tiny import VOCAB, drafter_spec, tiny_drafter, tiny_model

PROMPT = [(7 * i + 3) % VOCAB for i in range(21)]


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def rope(x: torch.Tensor, positions: torch.Tensor, spec: DrafterSpec) -> torch.Tensor:
    inv_freq, scaling = rope_frequencies(spec)
    angles = positions[:, None].float() * torch.cat([inv_freq, inv_freq])[None]
    cos, sin = angles.cos()[:, None] * scaling, angles.sin()[:, None] * scaling
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def naive_draft(model: Any, spec: DrafterSpec, weights: DFlashWeights, ids: list[int], count: int) -> torch.Tensor:
    """Logits [count, V] for the tokens after ``ids`` (whose last is the anchor), everything computed afresh."""
    hidden_states = model(input_ids=torch.tensor([ids]), output_hidden_states=True, use_cache=False).hidden_states
    taps = torch.cat([hidden_states[j][0, :-1] for j in spec.tap_layers], dim=-1)
    context = norm(F.linear(taps, weights.fc), weights.hidden_norm, spec.rms_norm_eps)
    anchor = len(ids) - 1
    tokens = [ids[-1], *[spec.mask_token_id] * count]
    x = model.get_input_embeddings().weight[tokens] * spec.input_embedding_scale
    if weights.mask_embedding is not None:
        x[1:] = weights.mask_embedding * spec.input_embedding_scale
    q_pos = torch.arange(anchor, anchor + len(tokens))
    k_pos = torch.arange(anchor + len(tokens))
    for layer, kind in zip(weights.layers, spec.layers, strict=True):
        h = norm(x, layer.input_norm, spec.rms_norm_eps)
        both = torch.cat([context, h])
        q = rope(norm(F.linear(h, layer.q).unflatten(-1, (4, 8)), layer.q_norm, spec.rms_norm_eps), q_pos, spec)
        k = rope(norm(F.linear(both, layer.k).unflatten(-1, (2, 8)), layer.k_norm, spec.rms_norm_eps), k_pos, spec)
        v = F.linear(both, layer.v).unflatten(-1, (2, 8))
        distance = q_pos[:, None] - k_pos[None]
        before = anchor - k_pos[None]  # how far a key lies before the anchor
        visible = torch.ones_like(distance, dtype=torch.bool)
        if kind.causal:
            visible &= distance >= 0
        if kind.window is not None and spec.window_from_anchor:
            visible &= before <= kind.window
        elif kind.window is not None:
            visible &= (distance < kind.window) & (-distance < kind.window)
        scores = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(2, 1)) * spec.head_dim**-0.5
        weight = scores.masked_fill(~visible, float("-inf")).softmax(-1)
        out = torch.einsum("hqk,khd->qhd", weight, v.repeat_interleave(2, 1)).flatten(1)
        x = x + F.linear(out, layer.o)
        h = norm(x, layer.post_norm, spec.rms_norm_eps)
        x = x + F.linear(F.silu(F.linear(h, layer.gate)) * F.linear(h, layer.up), layer.down)
    return F.linear(norm(x[1:], weights.norm, spec.rms_norm_eps), model.get_output_embeddings().weight)


class Recorder:
    """Wraps a drafter and keeps what it was asked and what it said."""

    def __init__(self, drafter: DFlashDrafter) -> None:
        self._drafter = drafter
        self.calls: list[tuple[list[int], torch.Tensor]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drafter, name)

    def propose(self, pool: Any, requests: Any) -> list[Draft]:
        drafts = self._drafter.propose(pool, requests)
        self.calls += [
            (list(r.token_ids), d.logits) for r, d in zip(requests, drafts, strict=True) if d.logits is not None
        ]
        return drafts


@pytest.mark.parametrize("native", [None, False], ids=["native", "torch"])
@pytest.mark.parametrize("from_anchor", [False, True], ids=["per-row", "from-anchor"])
@pytest.mark.parametrize("causal", ["rule", "all", "none"])
@pytest.mark.parametrize("kinds", ["ff", "ss", "sf", "fsf"])
@torch.inference_mode()
def test_drafts_equal_brute_force(kinds: str, causal: str, from_anchor: bool, native: bool | None) -> None:
    check_drafts(kinds, causal, from_anchor, native=native)


def check_drafts(kinds: str, causal: str, from_anchor: bool, **options: Any) -> None:
    recorders: list[Recorder] = []

    def make(target: Any) -> Any:
        recorders.append(Recorder(tiny_drafter(target, kinds, causal=causal, from_anchor=from_anchor)))
        return recorders[0]

    engine = Engine.from_model(tiny_model("llama"), None, make, length_policy="fixed", **options)
    for _ in range(2):  # the second time the prompt's keys and values come from the prefix cache
        (output,) = engine.generate(PROMPT, SamplingParams(max_tokens=24))
    drafter, model = recorders[0]._drafter, tiny_model("llama")
    assert len(recorders[0].calls) >= 40
    assert output.cached_tokens == len(PROMPT) - 1
    for ids, logits in recorders[0].calls:
        expected = naive_draft(model, drafter.spec, drafter.weights, ids, logits.shape[0])
        torch.testing.assert_close(logits, expected, rtol=2e-4, atol=2e-4)


@torch.inference_mode()
def test_drafts_equal_brute_force_after_a_prompt_read_in_pieces() -> None:
    check_drafts("sf", "rule", False, max_num_batched_tokens=9, max_num_seqs=1)


@torch.inference_mode()
def test_reduced_vocabulary_mask_embedding_scale_and_cap() -> None:
    """Own head over a reduced vocabulary, mapped to target ids; trained mask row; multiplier, scale and soft-cap."""
    from dataclasses import replace

    model = tiny_model("llama")
    recorders: list[Recorder] = []
    ids = torch.arange(0, VOCAB, 3)

    def make(target: Any) -> Any:
        spec = replace(
            drafter_spec(target, "sf"),
            draft_vocab_size=len(ids),
            input_embedding_scale=1.5,
            output_multiplier=0.5,
            final_logit_softcapping=4.0,
        )
        weights = random_weights(spec, torch.float32, torch.device("cpu"), 3, 0.3)
        weights.head = torch.randn(len(ids), 32, generator=torch.Generator().manual_seed(4))
        weights.draft_to_target = ids
        weights.mask_embedding = torch.randn(32, generator=torch.Generator().manual_seed(5))
        recorders.append(Recorder(DFlashDrafter(spec, weights, target)))
        return recorders[0]

    engine = Engine.from_model(tiny_model("llama"), None, make, length_policy="fixed")
    engine.generate(PROMPT, SamplingParams(max_tokens=8))
    drafter = recorders[0]._drafter
    for tokens, logits in recorders[0].calls:
        head = torch.nn.Linear(32, len(ids), bias=False)
        head.weight = torch.nn.Parameter(drafter.weights.head, requires_grad=False)
        model.set_output_embeddings(head)
        raw = naive_draft(model, drafter.spec, drafter.weights, tokens, logits.shape[0])
        expected = 4.0 * torch.tanh(raw * 0.5 / 4.0)
        torch.testing.assert_close(logits, expected, rtol=2e-4, atol=2e-4)
        wide = Draft(logits, vocabulary=ids).wide(VOCAB)
        assert wide is not None and torch.equal(wide[:, ids], logits)
        others = torch.ones(VOCAB, dtype=torch.bool)
        others[ids] = False
        assert bool((wide[:, others] == float("-inf")).all())


@pytest.mark.parametrize(
    "options",
    [{"method": "chain"}, {"draft_sample_method": "probabilistic"}, {"method": "tree", "tree_budget": 9}],
)
@pytest.mark.parametrize("params", [{}, {"temperature": 1.0, "seed": 1}])
def test_a_reduced_vocabulary_drafts_as_if_its_logits_were_written_out(options: Any, params: Any) -> None:
    """Columns in any order; what the engine verifies is what it would of the whole vocabulary's logits."""
    shuffled = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(2))[: VOCAB // 2]

    def make(target: Any, *, wide: bool) -> Any:
        from dataclasses import replace

        spec = replace(drafter_spec(target, "sf"), draft_vocab_size=len(shuffled))
        weights = random_weights(spec, torch.float32, torch.device("cpu"), 3, 0.3)
        weights.head = torch.randn(len(shuffled), 32, generator=torch.Generator().manual_seed(4))
        weights.draft_to_target = shuffled
        drafter = DFlashDrafter(spec, weights, target)
        if wide:
            inner = drafter.propose
            drafter.propose = lambda *asked: [Draft(d.wide(VOCAB)) for d in inner(*asked)]  # type: ignore[method-assign]
        return drafter

    rounds: list[list[Any]] = []
    for wide in (False, True):
        engine = Engine.from_model(
            tiny_model("llama"), None, lambda t, w=wide: make(t, wide=w), length_policy="fixed", **options
        )
        engine.add_request(PROMPT, SamplingParams(max_tokens=12, **params))
        seen: list[Any] = []
        while engine.has_work:
            for e in engine.step():
                seen += [e.token_ids] if isinstance(e, TokensCommitted) else []
                seen += [(e.stats.drafted, e.stats.accepted)] if isinstance(e, RoundFinished) else []
        rounds.append(seen)
    assert rounds[0] == rounds[1] and any(isinstance(s, tuple) and s[0] > 1 for s in rounds[0])


@torch.inference_mode()
def test_the_random_drafter_is_a_witness() -> None:
    """Flipping one layer's direction must change more than a tenth of the drafts, or the tests above prove little."""

    def drafts(causal: str, kinds: str = "sf") -> list[int]:
        recorders: list[Recorder] = []

        def make(target: Any) -> Any:
            recorders.append(Recorder(tiny_drafter(target, kinds, causal=causal)))
            return recorders[0]

        Engine.from_model(tiny_model("llama"), None, make, length_policy="fixed").generate(
            PROMPT, SamplingParams(max_tokens=40)
        )
        return [t for _, logits in recorders[0].calls for t in logits.argmax(-1).tolist()]

    rule, flipped, no_window = drafts("rule"), drafts("none"), drafts("rule", "ff")
    for other in (flipped, no_window):
        changed = sum(a != b for a, b in zip(rule, other, strict=True)) / len(rule)
        assert changed > 0.10
