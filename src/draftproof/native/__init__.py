"""Row-invariant CPU kernels, compiled on first use.

A decoder pass is one C call that works for any number of rows.  The result of
a row never depends, not even in the last bit, on the rows next to it, on its
place in the pass or on the number of threads; plain, chain, tree and batched
decoding therefore produce the same numbers.

When no compiler is at hand `available()` is False and `reason()` tells why;
everything else in this package then raises `RuntimeError`.
"""

from draftproof.native.attention import attention
from draftproof.native.decoder import LayerWeights, NativeDecoder
from draftproof.native.linear import PackedLinear, rms_norm, row_stats
from draftproof.native.plan import LayerKV, RowPlan
from draftproof.native.runtime import available, reason, set_threads, target

__all__ = [
    "LayerKV",
    "LayerWeights",
    "NativeDecoder",
    "PackedLinear",
    "RowPlan",
    "attention",
    "available",
    "reason",
    "rms_norm",
    "row_stats",
    "set_threads",
    "target",
]
