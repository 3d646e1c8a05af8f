"""The drafter's weights as they lie in the engine's memory, under engine-neutral names.

Joined projections keep the engine's order: ``qkv_proj`` is q, k, v one below the other, ``gate_up_proj`` gate, up.
A matrix whose memory is packed (CPU kernels, quantised layers) has no bytes to compare, so its layer is run on
``probe_rows`` instead and the result kept as ``probe.<name>``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MATRICES = ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")
VECTORS = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")
PROBE_ROWS = 2
SAMPLE = 16  # rows of the embedding table, evenly spread


def probe_rows(width: int) -> Tensor:
    """[PROBE_ROWS, width] of multiples of 1/16 below 1, which every float type holds exactly."""
    steps = torch.arange(PROBE_ROWS * width, dtype=torch.int64).view(PROBE_ROWS, width)
    return ((steps * 37 + steps // 7) % 31 - 15).float() / 16


def collect(model: Any, mask_token_id: int) -> dict[str, Tensor]:
    """Tensors by name; views, not copies. Missing parts are left out."""
    inner, found = model.model, {}
    for i, layer in enumerate(inner.layers):
        for name in (*MATRICES, *VECTORS):
            part = reach(layer, name)
            if part is not None:
                found.update(one(part, f"layers.{i}.{name}.weight", name in MATRICES))
    for name in ("fc", "hidden_norm", "norm"):
        part = reach(inner, name)
        if part is not None:
            found.update(one(part, f"{name}.weight", name == "fc"))
    head = getattr(getattr(model, "lm_head", None), "weight", None)
    if torch.is_tensor(head):
        found["lm_head.weight"] = head.data
    mapping = getattr(model, "draft_id_to_target_id", None)
    if torch.is_tensor(mapping):
        found["d2t"] = mapping.data
    found.update(mask_row(inner, mask_token_id))
    return found


def one(part: Any, name: str, matrix: bool) -> dict[str, Tensor]:
    weight = getattr(part, "weight", None)
    if torch.is_tensor(weight) and weight.numel() > 0 and weight.is_floating_point():
        return {name: weight.data}
    width = getattr(part, "input_size_per_partition", None) or getattr(part, "input_size", None)
    if not matrix or not width:
        return {}
    bias = getattr(part, "bias", None)
    like = bias if torch.is_tensor(bias) else next((p for p in part.parameters() if p.is_floating_point()), None)
    rows = probe_rows(int(width)) if like is None else probe_rows(int(width)).to(like.device, like.dtype)
    out = part(rows)
    return {f"probe.{name}": (out[0] if isinstance(out, tuple) else out).detach().float().clone()}


def mask_row(inner: Any, mask_token_id: int) -> dict[str, Tensor]:
    """What stands for the mask at the drafter's input, by the engine's own look-up."""
    table = getattr(inner, "embed_tokens", None)
    if table is None:
        return {}
    device = next(table.parameters()).device
    count = int(getattr(table, "org_vocab_size", None) or getattr(inner, "vocab_size", 0) or mask_token_id + 1)
    rows = inner.embed_input_ids(torch.tensor([mask_token_id, *sample_ids(count)], device=device)).detach()
    return {"mask_row": rows[0].clone(), "embedding_sample": rows[1:].clone()}


def sample_ids(count: int) -> list[int]:
    """The rows of an embedding table of ``count`` rows that are looked at."""
    return sorted({i * count // SAMPLE for i in range(SAMPLE)})


def reach(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part, None)
        if module is None:
            return None
    return module
