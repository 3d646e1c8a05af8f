"""Attention of rows over a pool of scattered keys and values."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int32, c_void_p

import torch

from draftproof.native.checks import KERNEL_DTYPES, check_tensor, plain
from draftproof.native.plan import LayerKV, RowPlan, check_map, check_values
from draftproof.native.runtime import check_memory, library


class AttentionSpec(ctypes.Structure):
    """The C view of the keyword arguments."""

    _fields_ = (
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("bf16", c_int32),
        ("window", c_int32),
        ("bidirectional", c_int32),
        ("scale", c_float),
        ("softcap", c_float),
        ("sinks", c_void_p),
    )


def check_heads(num_heads: int, num_kv_heads: int, head_dim: int) -> None:
    """Raise ValueError for head counts that the kernels do not support."""
    if num_kv_heads < 1 or num_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(f"num_heads: expected a multiple of num_kv_heads={num_kv_heads}, got {num_heads}")
    if head_dim < 8 or head_dim % 8:
        raise ValueError(f"head_dim: expected a multiple of 8, got {head_dim}")


def check_window(window: int | None) -> None:
    """Raise ValueError unless the window is None or positive."""
    if window is not None and window < 1:
        raise ValueError(f"window: expected None or at least 1, got {window}")


def check_pools(q: torch.Tensor, plan: RowPlan, k_pool: torch.Tensor, v_pool: torch.Tensor) -> None:
    """Raise ValueError unless queries and pools fit the plan and each other."""
    check_tensor("q", q, [plan.rows, None, None], KERNEL_DTYPES)
    heads, dim = int(q.shape[1]), int(q.shape[2])
    check_tensor("k_pool", k_pool, [None, None, dim], q.dtype)
    check_tensor("v_pool", v_pool, list(k_pool.shape), q.dtype)
    check_heads(heads, int(k_pool.shape[1]), dim)


def attention(
    q: torch.Tensor,
    plan: RowPlan,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    bidirectional: bool = False,
    slot_map: torch.Tensor | None = None,
) -> torch.Tensor:
    """Softmax attention of each row over the keys its plan makes visible.

    q: [R, num_heads, D] float32 or bfloat16, already rotated.
    k_pool, v_pool: [num_slots, num_kv_heads, D] in the dtype of q.
    window: keys with position p - k < window only (and k - p < window if
    bidirectional, which also selects plan.visible_block).
    softcap: scores become cap * tanh(s / cap).  sinks: [num_heads] extra logit
    in the denominator.  slot_map: see LayerKV.  plan.slots is not used.
    Returns [R, num_heads, D] in the dtype of q; rows without a key are zero.
    Raises ValueError on misfitting arguments or indices out of range.
    """
    check_pools(q, plan, k_pool, v_pool)
    heads, dim, (slots, kv_heads) = int(q.shape[1]), int(q.shape[2]), k_pool.shape[:2]
    check_window(window)
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap: expected None or a positive number, got {softcap}")
    plan.check_shapes()
    struct = plan.as_struct()
    if slot_map is None:
        check_values(plan, struct, slots, writes=False)
    else:
        check_tensor("slot_map", slot_map, [None], torch.int32)
        check_values(plan, struct, int(slot_map.shape[0]), writes=False)
        layer = LayerKV(k_pool, v_pool, slot_map)
        check_map(plan, struct, layer, window=window, bidirectional=bidirectional, writes=False)
    held = None
    if sinks is not None:
        check_tensor("sinks", sinks, [heads], KERNEL_DTYPES, contiguous=False)
        held = plain(sinks, torch.float32)
    out = torch.empty_like(q)
    if not plan.rows:
        return out
    spec = AttentionSpec(
        heads, kv_heads, dim, int(q.dtype == torch.bfloat16), window or 0, int(bidirectional),
        scale, softcap or 0.0, None if held is None else held.data_ptr(),
    )  # fmt: skip
    mapped = None if slot_map is None else slot_map.data_ptr()
    pointers = (q.data_ptr(), k_pool.data_ptr(), v_pool.data_ptr(), mapped, out.data_ptr())
    check_memory(library().dp_attention(ctypes.byref(spec), ctypes.byref(struct), *pointers))
    return out
