"""A tiny pair on disk, and our own engine captured on it, healthy or with a fault of the laboratory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from draftproof.drafters.loading import load_weights
from draftproof.engine.engine import Engine
from draftproof.engine.types import SamplingParams
from draftproof.proof.capture.own import RecordingDrafter
from draftproof.proof.capture.recorder.recorder import Recorder
from draftproof.proof.capture.recorder.settings import Settings
from draftproof.proof.lab.faults import BY_NAME
from draftproof.proof.lab.wiring import Wiring
from support.folders import save_target, tensors_of, zlab_config
from support.tiny import VOCAB, tiny_drafter, tiny_model

PROMPTS = [[(k * i + k) % 90 + 3 for i in range(40)] for k in (7, 11, 13)]
TOKENS = 24


def save_pair(folder: Path, kinds: str = "sf") -> tuple[Path, Path]:
    """Target and drafter; the drafter drafts from half the vocabulary, with a head and norms of its own."""
    target = save_target(folder / "target")
    engine = Engine.from_model(tiny_model("llama"), length_policy="fixed", drafter=lambda t: tiny_drafter(t, kinds))
    drafter = tiny_drafter(engine.target, kinds, std=0.5, window=12)
    random = torch.Generator().manual_seed(3)
    for layer in drafter.weights.layers:
        for norm in (layer.input_norm, layer.k_norm):
            norm.copy_(torch.rand(norm.shape, generator=random) + 0.5)
    keep = torch.arange(3, VOCAB, 2)
    tensors = tensors_of(drafter.weights)
    tensors["lm_head.weight"] = torch.randn(len(keep), drafter.spec.hidden_size, generator=random)
    tensors["d2t"] = keep - torch.arange(len(keep))
    place = folder / "drafter"
    place.mkdir()
    config = zlab_config(drafter.spec) | {"draft_vocab_size": len(keep)}
    (place / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(place / "model.safetensors"))
    return target, place


def captured(
    folder: Path, pair: tuple[Path, Path], fault: str | None = None, *, repeat: int = 1, **settings: Any
) -> Path:
    """Where our engine's capture is, after all prompts side by side, ``repeat`` times."""
    recorder = Recorder(Settings(str(folder), **settings))
    base = Engine(str(pair[0]), None, dtype="float32")

    def make(target: Any) -> Any:
        wiring = Wiring(*load_weights(str(pair[1]), target, []))
        if fault is not None:
            change = BY_NAME[fault].change
            assert change is not None
            wiring = change(wiring, target)
        return RecordingDrafter(wiring.build(target), recorder, str(pair[0]), str(pair[1]))

    engine = base.with_drafter(make, length_policy="fixed", max_num_seqs=3, enable_prefix_caching=repeat > 1)
    for _ in range(repeat):
        engine.generate(PROMPTS, SamplingParams(max_tokens=TOKENS, ignore_eos=True))
    recorder.close("prompts")
    assert recorder.path is not None
    return Path(recorder.path)
