"""Tiny seeded models of every family the engine is proven on, drafters for them, and the naive loop."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig

from draftproof.drafters.base import Draft
from draftproof.drafters.dflash import DFlashDrafter
from draftproof.drafters.loading import random_weights
from draftproof.drafters.spec import DrafterSpec, LayerSpec, RopeSpec
from draftproof.targets.base import Target

VOCAB = 96
MAX_POSITION = 96
WINDOW = 8

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": MAX_POSITION,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
    "initializer_range": 0.25,
    "tie_word_embeddings": False,
}
_MIXED = ["sliding_attention", "full_attention"] * 2
_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}


def config_for(family: str) -> Any:
    """A configuration of about thirty thousand parameters; windows are far below the lengths used in tests."""
    makers: dict[str, Any] = {
        "llama": lambda: LlamaConfig(**_COMMON),
        "mistral": lambda: MistralConfig(**_COMMON, sliding_window=WINDOW),
        "qwen2": lambda: Qwen2Config(**_COMMON, layer_types=_MIXED, use_sliding_window=True, sliding_window=WINDOW),
        "qwen3": lambda: Qwen3Config(**_COMMON),
        "qwen3_moe": lambda: Qwen3MoeConfig(**_COMMON, **_MOE),
        "gemma2": lambda: Gemma2Config(**_COMMON, layer_types=_MIXED, sliding_window=WINDOW, query_pre_attn_scalar=8),
        "gemma3": lambda: Gemma3TextConfig(
            **_COMMON, layer_types=_MIXED, sliding_window=WINDOW, query_pre_attn_scalar=8
        ),
        "gpt_oss": lambda: GptOssConfig(
            **_COMMON, layer_types=_MIXED, sliding_window=WINDOW, num_local_experts=4, num_experts_per_tok=2
        ),
        "qwen3_5": lambda: Qwen3_5TextConfig(
            **_COMMON,
            layer_types=["linear_attention", "full_attention"] * 2,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
        ),
    }
    return makers[family]()


FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3", "gpt_oss", "qwen3_5")
RECURRENT_FAMILIES = {"qwen3_5"}


def tiny_model(family: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    """A fresh seeded model in eval mode, with transformers' own eager attention."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config_for(family), attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "sinks" in name:  # zero by default: a sink that does nothing proves nothing
                parameter.normal_(0.0, 1.0)
    return model.to(dtype).eval().requires_grad_(False)


@torch.inference_mode()
def naive_greedy(model: Any, prompt: list[int], count: int) -> list[int]:
    """The naive loop: the whole sequence through the model's own code for every token, no cache."""
    ids = list(prompt)
    for _ in range(count):
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
        ids.append(int(logits.argmax()))
    return ids[len(prompt) :]


def drafter_spec(
    target: Target,
    kinds: str = "sf",
    *,
    window: int = 6,
    block: int = 8,
    causal: str = "rule",
    from_anchor: bool = False,
) -> DrafterSpec:
    """``kinds``: one letter a layer, s(liding) or f(ull). ``causal``: rule (iff sliding), all or none."""
    info = target.info

    def layer(kind: str) -> LayerSpec:
        sliding = kind == "s"
        is_causal = {"rule": sliding, "all": True, "none": False}[causal]
        return LayerSpec(sliding, max(window, block) if sliding else None, is_causal)

    return DrafterSpec(
        hidden_size=info.hidden_size,
        num_layers=len(kinds),
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        intermediate_size=48,
        vocab_size=info.vocab_size,
        block_size=block,
        mask_token_id=5,
        tap_layers=(1, 3, 2),
        layers=tuple(layer(k) for k in kinds),
        rope=RopeSpec(theta=10_000.0),
        num_target_layers=info.num_layers,
        window_from_anchor=from_anchor,
    )


def tiny_drafter(target: Target, kinds: str = "sf", *, std: float = 0.3, seed: int = 1, **shape: Any) -> DFlashDrafter:
    """A random drafter whose weights are large enough for every layer to matter (see the witness test)."""
    spec = drafter_spec(target, kinds, **shape)
    return DFlashDrafter(spec, random_weights(spec, target.info.dtype, target.info.device, seed, std), target)


class NoisyOracle:
    """A test double that knows the answer and is wrong at seeded places, so that rounds accept 0 to N tokens.

    Proposes logits in which the true token ranks first, second or not at all: chains are cut at random places and
    trees find tokens that chains miss.
    """

    name = "oracle"
    tap_layers = ()
    kv_shapes = ()
    max_position = None

    def __init__(self, answers: dict[tuple[int, ...], list[int]], vocab: int, *, count: int = 7, seed: int = 0) -> None:
        self.answers = answers
        self.vocab = vocab
        self.num_draft_tokens = count
        self.seed = seed

    def observe(self, pool: Any, committed: Any, taps: Any) -> None:
        pass

    def propose(self, pool: Any, requests: Any) -> list[Draft]:
        return [self._draft(r) for r in requests]

    def _draft(self, request: Any) -> Draft:
        if request.count == 0:
            return Draft()
        ids = list(request.token_ids)
        prompt = next(p for p in self.answers if ids[: len(p)] == list(p))
        ahead = self.answers[prompt][len(ids) - len(prompt) :][: request.count]
        random = torch.Generator().manual_seed(self.seed + len(ids))
        logits = torch.randn(request.count, self.vocab, generator=random)
        for row, token in enumerate(ahead):
            luck = float(torch.rand((), generator=random))
            logits[row, token] = (
                12.0 if luck < 0.6 else float(logits[row].topk(2).values[1]) + 1e-3 if luck < 0.85 else -5.0
            )
        return Draft(logits=logits)
