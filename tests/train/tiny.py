"""A tiny target, drafter specs and recorded answers for the training tests."""

from __future__ import annotations

from pathlib import Path

import torch

from draftproof.drafters.loading import random_weights
from draftproof.drafters.spec import DrafterSpec
from draftproof.engine.options import EngineOptions
from draftproof.targets.open import wrap_model
from draftproof.train.module import DrafterModule
from draftproof.train.shards import Answered, ShardWriter
from support.folders import tensors_of
from support.tiny import VOCAB, drafter_spec, tiny_model

TAPS = (1, 3, 2)


def module_of(spec: DrafterSpec, model: object, std: float = 0.3, seed: int = 1) -> DrafterModule:
    """A module with the weights of ``support.tiny.tiny_drafter``."""
    module = DrafterModule(spec, model.get_input_embeddings().weight.detach())
    weights = random_weights(spec, torch.float32, torch.device("cpu"), seed, std)
    module.load_state_dict(tensors_of(weights))
    return module


def spec_for(kinds: str = "sf", **shape: object) -> DrafterSpec:
    return drafter_spec(wrap_model(tiny_model("llama"), EngineOptions()), kinds, **shape)


def record(folder: Path, count: int = 12, seed: int = 0, hidden: int = 32) -> Path:
    """Recorded answers of random tokens and taps."""
    random = torch.Generator().manual_seed(seed)
    header = {"taps": list(TAPS), "hidden_size": hidden}
    writer = ShardWriter(folder, header)
    answers = []
    for index in range(count):
        length = int(torch.randint(14, 30, (), generator=random))
        ids = torch.randint(6, VOCAB, (length,), generator=random).tolist()
        taps = torch.randn(length - 1, len(TAPS) * hidden, generator=random).bfloat16()
        answers.append(Answered(index, "made", ids, 5, taps, 0.0, 0, "stop"))
    writer.write(answers[: count // 2])
    writer.write(answers[count // 2 :])
    return folder
