"""What vLLM says of itself: versions, the drafter's configuration as it sees it, each layer's window and direction."""

from __future__ import annotations

import json
from typing import Any


def unwrapped(model: Any) -> Any:
    """The module itself, out of whatever graph wrapper it is in."""
    while hasattr(model, "unwrap"):
        model = model.unwrap()
    return model


def facts(config: Any, model: Any, runner: Any, runner_name: str) -> dict[str, Any]:
    """For the manifest; what this release does not have is None."""
    import vllm

    speculative, parallel = config.speculative_config, config.parallel_config
    drafter_config = speculative.draft_model_config.hf_config
    commit = getattr(getattr(vllm, "_version", None), "commit_id", None)
    return {
        "engine": {
            "name": "vllm",
            "version": vllm.__version__,
            "commit": commit,
            "runner": runner_name,
            "dtype": str(config.model_config.dtype).replace("torch.", ""),
            "attention_backend": backend(model),
            "tensor_parallel": int(getattr(parallel, "tensor_parallel_size", 1)),
            "rank": int(getattr(parallel, "rank", 0)),
            "eager": bool(config.model_config.enforce_eager),
            "prefix_caching": getattr(config.cache_config, "enable_prefix_caching", None),
        },
        "target": {"name": str(config.model_config.model)},
        "drafter": {
            "name": str(speculative.draft_model_config.model),
            "config": plain(drafter_config.to_dict()),
            "tap_layers": tap_layers(runner, speculative),
            "rope": rope(model),
        },
    }


def backend(model: Any) -> str | None:
    try:
        return type(model.model.layers[0].self_attn.attn.impl).__name__
    except (AttributeError, IndexError):
        return None


def layers(model: Any, causal: bool | None) -> list[dict[str, Any]]:
    """Window (None: everything) and direction of every layer as they will be executed. ``causal``: the one flag of a
    runner that has one for all layers."""
    found = []
    for layer in model.model.layers:
        attention = layer.self_attn
        own = getattr(attention, "causal", None)
        found.append({"window": window(attention.attn), "causal": own if causal is None else causal, "causal_own": own})
    return found


def window(attention: Any) -> int | None:
    """Backends keep it as a width, as keys to the left, or as (left, right); -1 and None: no window."""
    value = getattr(getattr(attention, "impl", None), "sliding_window", None)
    if isinstance(value, (tuple, list)):
        return None if int(value[0]) < 0 else int(value[0]) + 1
    return None if value is None or int(value) < 0 else int(value)


def tap_layers(runner: Any, speculative: Any) -> list[int] | None:
    """Indices that the target hands out, as vLLM counts them: input of layer j, so j of ``output_hidden_states``."""
    for get in (lambda: inner(unwrapped(runner.model)).aux_hidden_state_layers, lambda: from_config(speculative)):
        try:
            return [int(i) for i in get()]
        except Exception:
            continue
    return None


def inner(model: Any) -> Any:
    language = model.get_language_model() if hasattr(model, "get_language_model") else model
    return getattr(language, "model", language)


def from_config(speculative: Any) -> Any:
    from vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils import get_eagle3_aux_layers_from_config

    return get_eagle3_aux_layers_from_config(speculative)


def rope(model: Any) -> dict[str, Any] | None:
    """Base and rotated width of the first layer's RoPE."""
    try:
        embedding = model.model.layers[0].self_attn.rotary_emb
        return {"theta": float(embedding.base), "rotary_dim": int(embedding.rotary_dim)}
    except (AttributeError, IndexError, TypeError, ValueError):
        return None


def plain(value: Any) -> Any:
    """As JSON can keep it; what it cannot becomes text."""
    return json.loads(json.dumps(value, default=str))
