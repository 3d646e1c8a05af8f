"""How fast training is, and how fast this machine could be: a ratio that carries over better than seconds."""

from __future__ import annotations

from time import perf_counter

import torch
import torch.nn.functional as F

from draftproof import compat
from draftproof.drafters.spec import DrafterSpec

_SHAPE = (2048, 576, 1536)


def gemm_peak(device: torch.device, dtype: torch.dtype = torch.bfloat16, seconds: float = 1.0) -> float:
    """Best measured FLOP/s of a matrix product in ``dtype`` with the threads that torch has now."""
    scale = 4 if device.type == "cuda" else 1
    m, k, n = (size * scale for size in _SHAPE)
    a, b = torch.randn(m, k, device=device).to(dtype), torch.randn(n, k, device=device).to(dtype)
    best, end = 0.0, perf_counter() + seconds
    while perf_counter() < end or best == 0.0:
        began = perf_counter()
        F.linear(a, b)
        compat.synchronize(device)
        best = max(best, 2.0 * m * n * k / (perf_counter() - began))
    return best


def step_flops(spec: DrafterSpec, *, context: int, slots: int, drafted: int, head_rows: int) -> float:
    """FLOPs of the matrix products of one step, forward and backward: ``context`` tokens are fused and get keys and
    values, ``slots`` rows pass the layers, ``drafted`` rows meet ``head_rows`` of the frozen head."""
    width, heads, kv = spec.hidden_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    layer = 2 * width * heads + 2 * width * kv + 3 * width * spec.intermediate_size
    per_context = spec.fc_in * width + spec.num_layers * 2 * width * kv
    return 6.0 * (context * per_context + slots * spec.num_layers * layer) + 4.0 * drafted * head_rows * width
