"""What training exports, z-lab's own package loads and proposes the same tokens from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from test_zlab import record_zlab, zlab_python

from draftproof.drafters.loading import random_weights
from draftproof.engine.options import EngineOptions
from draftproof.targets.open import wrap_model
from draftproof.train.export import export_drafter
from draftproof.train.module import Blocks, DrafterModule
from support.folders import save_target, tensors_of
from support.tiny import VOCAB, drafter_spec, tiny_model

pytestmark = pytest.mark.conformance
__all__ = ["zlab_python"]  # the fixture


@pytest.mark.parametrize("causal", ["none", "all", "rule"])
@pytest.mark.parametrize("kinds", ["ssf", "ss", "f"])
@torch.no_grad()
def test_zlab_proposes_what_the_exported_module_does(zlab_python: str, tmp_path: Path, kinds: str, causal: str) -> None:
    target, model = save_target(tmp_path / "target"), tiny_model("llama")
    spec = drafter_spec(wrap_model(model, EngineOptions()), kinds, causal=causal)
    weights = random_weights(spec, torch.float32, torch.device("cpu"), 1, 0.3)
    module = DrafterModule(spec, model.get_input_embeddings().weight)
    module.load_state_dict(tensors_of(weights))
    drafter = export_drafter(tmp_path / "drafter", spec, module.state_dict(), dtype=torch.float32)
    prompts = torch.randint(6, VOCAB, (4, 12), generator=torch.Generator().manual_seed(0)).tolist()
    (tmp_path / "prompts.json").write_text(json.dumps(prompts))
    record = record_zlab(zlab_python, tmp_path, target, drafter, "--threads", 1)
    head, compared = model.get_output_embeddings().weight, 0
    for prompt in record["prompts"]:
        ids = prompt["prompt_token_ids"] + prompt["token_ids"]
        states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        taps = torch.cat([states[j] for j in spec.tap_layers], dim=-1)
        anchor = len(prompt["prompt_token_ids"])
        for produced, drafted in zip(prompt["produced"], prompt["drafted"], strict=True):
            place = torch.tensor([[anchor]])
            blocks = Blocks(taps[:, :anchor], place, torch.tensor([[ids[anchor]]]), len(drafted) + 1)
            logits = torch.nn.functional.linear(module(blocks)[0, 0], head)
            assert logits.argmax(-1).tolist() == drafted, f"anchor {anchor}"
            compared += len(drafted)
            anchor += produced
    assert compared > 500
