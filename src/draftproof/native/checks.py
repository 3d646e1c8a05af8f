"""Argument checks that name the tensor, what was expected and what came."""

from __future__ import annotations

from collections.abc import Sequence

import torch

KERNEL_DTYPES = (torch.float32, torch.bfloat16)


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    shape: Sequence[int | None],
    dtypes: torch.dtype | Sequence[torch.dtype],
    *,
    contiguous: bool = True,
) -> None:
    """Raise ValueError unless `tensor` is a CPU tensor of that shape and dtype.

    None in `shape` accepts any size.
    """
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name}: expected a tensor, got {type(tensor).__name__}")
    got = tuple(tensor.shape)
    if len(got) != len(shape) or any(want is not None and want != have for want, have in zip(shape, got, strict=True)):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name}: expected shape [{wanted}], got {list(got)}")
    allowed = (dtypes,) if isinstance(dtypes, torch.dtype) else tuple(dtypes)
    if tensor.dtype not in allowed:
        raise ValueError(f"{name}: expected dtype {' or '.join(map(str, allowed))}, got {tensor.dtype}")
    if tensor.device.type != "cpu":
        raise ValueError(f"{name}: expected a CPU tensor, got device {tensor.device}")
    if contiguous and not tensor.is_contiguous():
        raise ValueError(f"{name}: expected a contiguous tensor, got strides {tensor.stride()}")


def plain(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`tensor` detached, in `dtype` and contiguous; itself if it already is."""
    return tensor.detach().to(dtype).contiguous()
