"""The target in transformers' own hands: its attention, its cache, its greedy loop. The outside witness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from draftproof.engine.options import EngineOptions
from draftproof.targets.loading import load_target, pick_device, pick_dtype

NAME = "transformers"


class TransformersReference:
    """Greedy ``generate`` of a loaded model; ``eos_token_ids`` end an answer and belong to it."""

    def __init__(self, model: Any, eos_token_ids: Sequence[int] | frozenset[int]) -> None:
        self.model = model
        self.eos_token_ids = sorted(eos_token_ids)

    @classmethod
    def load(
        cls, target: str, options: EngineOptions, eos_token_ids: Sequence[int] | frozenset[int]
    ) -> TransformersReference:
        """A second copy of the weights, since the engine takes its own copy over. Same device and dtype."""
        device = pick_device(options.device)
        loaded = load_target(
            target,
            device=device,
            dtype=pick_dtype(options.dtype, device),
            revision=options.revision,
            trust_remote_code=options.trust_remote_code,
        )
        return cls(loaded.model, eos_token_ids)

    @torch.inference_mode()
    def greedy(self, ids: Sequence[int], max_tokens: int) -> list[int]:
        """The answer to a prompt, token by token, up to an end of text or ``max_tokens``."""
        prompt = torch.tensor([list(ids)], device=self.model.device)
        out = self.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=max_tokens,
            do_sample=False,
            num_beams=1,
            repetition_penalty=1.0,  # a checkpoint's generation_config may ask for more
            no_repeat_ngram_size=0,
            pad_token_id=self.eos_token_ids[0] if self.eos_token_ids else 0,
            eos_token_id=self.eos_token_ids or None,
        )
        answer: list[int] = out[0, len(ids) :].tolist()
        return answer
