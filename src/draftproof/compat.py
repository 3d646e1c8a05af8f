"""The one module that knows versions of torch and transformers: what moved, and what we rely on.

transformers 5 renamed ``past_key_values`` to ``cache``, passes unknown keyword arguments down to the attention
function, and lets ``logits_to_keep`` be a tensor of row indices. All three carry the engine's passes.
"""

from __future__ import annotations

from typing import Any

import torch

ATTENTION_NAME = "draftproof"


def quiet_transformers() -> None:
    """Silence progress bars and advice that transformers prints; errors still come through as exceptions."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def synchronize(device: torch.device) -> None:
    """Wait until ``device`` has done what it was told, so that a clock read now means something."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def register_attention(function: Any) -> None:
    """Make ``function`` known to transformers under our name; no mask function, so models build no mask."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(ATTENTION_NAME, function)


def use_attention(model: torch.nn.Module) -> None:
    """Switch every sub-config of a loaded model to our attention function."""
    model.set_attn_implementation(ATTENTION_NAME)  # type: ignore[operator]


def gguf_quantization_config() -> Any:
    """Settings that make transformers unpack a GGUF file into ordinary dense weights."""
    from transformers import GgufConfig

    return GgufConfig(dequantize=True)


def bare_decode(tokenizer: Any) -> Any:
    """The Rust tokenizer's own ``decode`` where transformers' adds nothing but time to it, else None."""
    from transformers import PreTrainedTokenizerFast

    kind = type(tokenizer)
    own = isinstance(tokenizer, PreTrainedTokenizerFast) and (
        kind._decode is not PreTrainedTokenizerFast._decode or kind.decode is not PreTrainedTokenizerFast.decode
    )
    return None if own or not hasattr(tokenizer, "backend_tokenizer") else tokenizer.backend_tokenizer.decode


def pass_through_cache(config: Any) -> Any:
    """A cache that keeps recurrent states only: keys and values go to the engine's pool instead."""
    from transformers import DynamicCache

    class PassThroughCache(DynamicCache):
        def update(self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
            return key_states, value_states

    return PassThroughCache(config=config)


RecurrentState = tuple[torch.Tensor | None, torch.Tensor | None, bool]


def recurrent_state(cache: Any, layer: int) -> RecurrentState:
    """Copies of one layer's convolution and recurrent states, and whether it has seen any token yet."""
    entry = cache.layers[layer]
    conv, state = entry.conv_states[0], entry.recurrent_states[0]
    seen = bool(entry.has_previous_state[0])
    return (None if conv is None else conv.clone(), None if state is None else state.clone(), seen)


def restore_recurrent_state(cache: Any, layer: int, saved: RecurrentState) -> None:
    """Put back what ``recurrent_state`` returned. A layer that had seen nothing becomes as new."""
    entry = cache.layers[layer]
    conv, state, seen = saved
    if not seen:
        entry.__init__()
        return
    entry.conv_states[0].copy_(conv)
    entry.recurrent_states[0].copy_(state)
    entry.has_previous_state[0] = True


def text_config(config: Any) -> Any:
    """The language model's own config, also for multimodal wrappers."""
    return config.get_text_config(decoder=True)
