"""Linear layers over packed weights, and RMS normalisation."""

from __future__ import annotations

import ctypes
import weakref

import torch

from draftproof.native.checks import KERNEL_DTYPES, check_tensor, plain
from draftproof.native.runtime import check_memory, library


class PackedLinear:
    """y = x @ weight.T + bias with weights packed once.

    weight: [N, K] bfloat16 or float32 on the CPU; bias: [N] or None.  The
    weight is copied.  With a bfloat16 weight the input is rounded to bfloat16
    and the products are summed in float32.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        check_tensor("weight", weight, [None, None], KERNEL_DTYPES, contiguous=False)
        self.out_features, self.in_features = (int(size) for size in weight.shape)
        if not self.out_features or not self.in_features:
            raise ValueError(f"weight: expected at least one row and column, got {list(weight.shape)}")
        if bias is not None:
            check_tensor("bias", bias, [self.out_features], KERNEL_DTYPES, contiguous=False)
        self.dtype = weight.dtype
        held = plain(weight, weight.dtype)
        held_bias = None if bias is None else plain(bias, torch.float32)
        lib = library()
        self._handle = lib.dp_linear_new(
            held.data_ptr(),
            self.out_features,
            self.in_features,
            int(self.dtype == torch.bfloat16),
            None if held_bias is None else held_bias.data_ptr(),
        )
        if not self._handle:
            raise MemoryError(f"no memory to pack a weight of shape {list(weight.shape)}")
        self._run = lib.dp_linear_run
        self._free = weakref.finalize(self, lib.dp_linear_free, ctypes.c_void_p(self._handle))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[R, K] float32 or bfloat16 -> [R, N] float32.  ValueError on a misfit."""
        check_tensor("x", x, [None, self.in_features], KERNEL_DTYPES)
        rows = x.shape[0]
        out = torch.empty(rows, self.out_features, dtype=torch.float32)
        if rows:
            check_memory(self._run(self._handle, x.data_ptr(), int(x.dtype == torch.bfloat16), rows, out.data_ptr()))
        return out


def row_stats(x: torch.Tensor, *, with_lse: bool = False) -> tuple[list[float], list[int], list[float]]:
    """Per row of logits [R, V] float32: the largest value (NaN if the row holds one), the first place of it, and
    log(sum(exp(row))) (an empty list unless ``with_lse``)."""
    check_tensor("x", x, [None, None], torch.float32)
    rows, width = x.shape
    largest, at = torch.empty(rows), torch.empty(rows, dtype=torch.int32)
    lse = torch.empty(rows if with_lse else 0)
    if rows and width:
        out = (largest.data_ptr(), at.data_ptr(), lse.data_ptr() if with_lse else None)
        library().dp_row_stats(x.data_ptr(), rows, width, int(with_lse), *out)
    return largest.tolist(), at.tolist(), lse.tolist()


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight per row, as in the decoder pass.

    x: [R, H] float32; weight: [H] float32 or bfloat16; returns [R, H] float32.
    """
    check_tensor("x", x, [None, None], torch.float32)
    rows, width = x.shape
    check_tensor("weight", weight, [width], KERNEL_DTYPES, contiguous=False)
    scale = plain(weight, torch.float32)
    out = torch.empty_like(x)
    if rows:
        library().dp_rms_norm(x.data_ptr(), scale.data_ptr(), out.data_ptr(), rows, width, eps)
    return out
