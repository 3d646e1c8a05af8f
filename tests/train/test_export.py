"""What is written is what was trained: configuration, weights, both formats, and the engine's drafts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from draftproof.drafters.formats import read_spec
from draftproof.drafters.formats.writing import write_config
from draftproof.drafters.loading import load_drafter
from draftproof.engine.options import EngineOptions
from draftproof.errors import SpecError, UsageError
from draftproof.targets.open import wrap_model
from draftproof.train.export import convert, export_drafter
from support.tiny import VOCAB, tiny_model

from .tiny import module_of, spec_for

KEEP = torch.tensor([3, 4, 9, 20, 21, 22, 50, 95])


def exported(folder, kinds="sf", causal="none", keep=None, **options):
    model = tiny_model("llama")
    spec = spec_for(kinds, causal=causal)
    module = module_of(spec, model)
    if keep is not None:
        spec = replace(spec, draft_vocab_size=len(keep))
    head = model.get_output_embeddings().weight
    export_drafter(folder, spec, module.state_dict(), keep=keep, head=head, dtype=torch.float32, **options)
    return spec, module, model


@pytest.mark.parametrize("keep", [None, KEEP], ids=["whole", "reduced"])
@pytest.mark.parametrize(
    ("kinds", "causal"), [("sf", "none"), ("sf", "all"), ("sf", "rule"), ("ss", "none"), ("f", "all")]
)
def test_zlab_round_trip(tmp_path, kinds, causal, keep):
    spec, module, _ = exported(tmp_path, kinds, causal, keep)
    assert read_spec(tmp_path) == spec and not read_spec(tmp_path).warnings
    stored = load_file(tmp_path / "model.safetensors")
    for name, value in module.state_dict().items():
        assert torch.equal(stored[name], value)
    assert ("lm_head.weight" in stored) == (keep is not None)
    if keep is not None:
        assert torch.equal(stored["d2t"] + torch.arange(len(keep)), keep)
        assert stored["t2d"].nonzero().flatten().tolist() == keep.tolist()


def test_the_configuration_is_complete_for_every_reader(tmp_path):
    exported(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["layer_types"] == ["sliding_attention", "full_attention"]
    assert (config["sliding_window"], config["use_sliding_window"], config["is_causal"]) == (8, True, False)
    assert config["rope_parameters"]["rope_theta"] == config["rope_theta"] == 10_000.0
    assert config["block_size"] == config["dflash_config"]["block_size"] == 8
    assert config["dflash_config"]["target_layer_ids"] == [0, 2, 1] and config["num_target_layers"] == 4
    assert config["architectures"] == ["DFlashDraftModel"] and config["model_type"] == "qwen3"


@pytest.mark.parametrize("keep", [None, KEEP], ids=["whole", "reduced"])
@pytest.mark.parametrize(("kinds", "causal"), [("sf", "none"), ("sf", "rule"), ("ss", "none"), ("f", "none")])
def test_converting_there_and_back_changes_nothing(tmp_path, kinds, causal, keep):
    exported(tmp_path / "a", kinds, causal, keep)
    said = convert(tmp_path / "a", tmp_path / "b", "speculators")
    assert any("anchor" in s for s in said) == ("s" in kinds)
    there = json.loads((tmp_path / "b" / "config.json").read_text())
    assert there["aux_hidden_state_layer_ids"] == [1, 3, 2] and "model_type" not in there
    assert there["draft_vocab_size"] == (VOCAB if keep is None else len(keep))
    assert there["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 7
    assert there["sliding_window_non_causal"] == ("s" in kinds and causal == "none")
    convert(tmp_path / "b", tmp_path / "c", "zlab")
    first, last = read_spec(tmp_path / "a"), read_spec(tmp_path / "c")
    assert first == last
    before, after = (load_file(tmp_path / n / "model.safetensors") for n in "ac")
    assert before.keys() == after.keys() and all(torch.equal(before[k], after[k]) for k in before)
    a, c = (json.loads((tmp_path / n / "config.json").read_text()) for n in "ac")
    assert {k: v for k, v in a.items() if k != "num_target_layers"} == c  # speculators has no place for that one


def test_the_engine_drafts_what_the_module_says(tmp_path):
    _, module, model = exported(tmp_path, keep=KEEP)
    target = wrap_model(model, EngineOptions(native=False))
    drafter = load_drafter(str(tmp_path), target, EngineOptions(), [])
    hidden = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    logits = drafter.logits(hidden)
    full = torch.nn.functional.linear(hidden, model.get_output_embeddings().weight)
    torch.testing.assert_close(logits, full[:, KEEP])
    taps = torch.randn(5, 96, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(drafter.context_features(taps), module.hidden_norm(module.fc(taps)).detach())


def test_what_a_format_cannot_say_is_refused(tmp_path):
    exported(tmp_path / "a", "sf", "all")
    with pytest.raises(SpecError, match="full layer is causal"):
        convert(tmp_path / "a", tmp_path / "b", "speculators")
    with pytest.raises(SpecError, match="tap 0"):
        write_config(replace(spec_for("f"), tap_layers=(0, 2, 3)), "zlab")
    with pytest.raises(UsageError, match="exists already"):
        convert(tmp_path / "a", tmp_path / "a", "zlab")
    with pytest.raises(UsageError, match="unknown"):
        write_config(spec_for("f"), "other")
    assert not (tmp_path / "b").exists()
