"""The trained computation is the served one: masks, logits, no leaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from draftproof import Engine, SamplingParams
from draftproof.drafters.base import Draft, DraftRequest
from draftproof.drafters.dflash import DFlashDrafter
from draftproof.engine.pool import KVPool
from draftproof.targets.base import Target
from draftproof.train.masks import Visibility, batch_masks, block_mask
from draftproof.train.module import Blocks
from support.tiny import VOCAB, tiny_drafter, tiny_model

from .tiny import module_of, spec_for

SHAPES = [
    {"kinds": kinds, "causal": causal, "from_anchor": origin}
    for kinds in ("sf", "s", "f")
    for causal in ("rule", "all", "none")
    for origin in (False, True)
]


@pytest.mark.parametrize("from_anchor", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("window", [None, 6, 9])
def test_the_mask_is_its_definition(window, bidirectional, from_anchor):
    rows = 5
    for anchor in (1, 4, 20):
        seen = block_mask(anchor, rows, Visibility(window, bidirectional, from_anchor))
        for row in range(rows):
            for key in range(anchor + rows):
                position = anchor + row
                origin = anchor if from_anchor else position
                allowed = key < anchor or bidirectional or key <= position
                inside = window is None or abs(origin - key) < window
                assert bool(seen[row, key]) == (allowed and inside), (anchor, row, key)


def test_a_batch_closes_what_lies_past_the_anchor():
    far, near = batch_masks(torch.tensor([[2, 6]]), 3, 8, Visibility(None, True, False))
    assert far.shape == (1, 2, 3, 8) and near.shape == (1, 2, 3, 3)
    assert (far[0, 0, :, 2:] == float("-inf")).all() and (far[0, 0, :, :2] == 0).all()
    assert (near == 0).all()


def served_drafts(shape: dict, prompt: list[int]) -> list[tuple[list[int], torch.Tensor]]:
    """Every draft the engine asked for while it answered: (all tokens committed by then, logits of the block)."""
    seen: list[tuple[list[int], torch.Tensor]] = []

    def make(target: Target) -> DFlashDrafter:
        drafter = tiny_drafter(target, **shape)
        propose = drafter.propose

        def watched(pool: KVPool, requests: Sequence[DraftRequest]) -> list[Draft]:
            drafts = propose(pool, requests)
            seen.extend(
                (list(r.token_ids), d.logits) for r, d in zip(requests, drafts, strict=True) if d.logits is not None
            )
            return drafts

        drafter.propose = watched
        return drafter

    engine = Engine.from_model(tiny_model("llama"), drafter=make, native=False, num_speculative_tokens=7)
    engine.generate([prompt], SamplingParams(max_tokens=14))
    return seen


@torch.inference_mode()
def taps_of(ids: list[int], layers: tuple[int, ...]) -> torch.Tensor:
    states = tiny_model("llama")(torch.tensor([ids]), output_hidden_states=True).hidden_states
    return torch.cat([states[j][0] for j in layers], dim=-1)


@torch.no_grad()
def module_logits(shape: dict, ids: list[int], anchors: list[int], rows: int) -> torch.Tensor:
    model = tiny_model("llama")
    spec = spec_for(**shape)
    module = module_of(spec, model)
    taps = taps_of(ids, spec.tap_layers)[None, : max(anchors)].clone()
    blocks = Blocks(taps, torch.tensor([anchors]), torch.tensor([[ids[a] for a in anchors]]), rows)
    return torch.nn.functional.linear(module(blocks), model.get_output_embeddings().weight)[0]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s['kinds']}-{s['causal']}-{s['from_anchor']}")
@pytest.mark.parametrize("length", [2, 9, 30])  # windows are 8
def test_training_logits_are_the_engines_drafts(shape, length):
    prompt = torch.randint(6, VOCAB, (length,), generator=torch.Generator().manual_seed(3)).tolist()
    drafts = served_drafts(shape, prompt)
    assert len(drafts) >= 3
    for ids, served in drafts:
        [trained] = module_logits(shape, ids, [len(ids) - 1], len(served) + 1)
        torch.testing.assert_close(trained, served, rtol=1e-3, atol=1e-3)
        assert torch.equal(trained.argmax(-1), served.argmax(-1))


def test_blocks_of_one_pass_are_those_of_many():
    ids = torch.randint(6, VOCAB, (40,), generator=torch.Generator().manual_seed(3)).tolist()
    together = module_logits(SHAPES[0], ids, [3, 17, 33], 6)
    for i, anchor in enumerate((3, 17, 33)):
        torch.testing.assert_close(together[i], module_logits(SHAPES[0], ids, [anchor], 6)[0], rtol=1e-4, atol=1e-4)


def test_the_comparison_would_notice_another_window_or_causality():
    ids = torch.randint(6, VOCAB, (40,), generator=torch.Generator().manual_seed(3)).tolist()
    right = module_logits(SHAPES[0], ids, [33], 6)
    for change in ({"causal": "none"}, {"kinds": "ff"}, {"from_anchor": True}):
        assert (module_logits({**SHAPES[0], **change}, ids, [33], 6) - right).abs().max() > 0.05, change


@pytest.mark.parametrize("kinds", ["sf", "ss"])
def test_nothing_leaks_from_the_anchor_on(kinds):
    """Taps at or after the anchor, and other blocks, leave a block's logits unchanged bit for bit."""
    spec = spec_for(kinds)
    module = module_of(spec, tiny_model("llama"))
    random = torch.Generator().manual_seed(5)
    taps = torch.randn(1, 30, spec.fc_in, generator=random)
    blocks = Blocks(taps, torch.tensor([[9, 20]]), torch.tensor([[7, 8]]), 6)
    before = module(blocks)[:, 0]
    other = taps.clone()
    other[:, 9:] = torch.randn(1, 21, spec.fc_in, generator=random)
    after = module(replace(blocks, taps=other, tokens=torch.tensor([[7, 50]])))[:, 0]
    assert torch.equal(before, after)
    changed = module(replace(blocks, tokens=torch.tensor([[9, 8]])))[:, 0]
    assert not torch.equal(before, changed), "the anchor itself must matter"
    other = taps.clone()
    other[:, 8] += 1.0
    assert not torch.equal(before, module(replace(blocks, taps=other))[:, 0]), "the last context token must matter"
