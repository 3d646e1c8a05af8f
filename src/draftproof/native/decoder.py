"""A stack of Llama/Qwen style decoder layers as one C call per pass."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from ctypes import c_float, c_int32, c_void_p
from dataclasses import dataclass

import torch

from draftproof.native.attention import check_heads, check_window
from draftproof.native.checks import KERNEL_DTYPES, check_tensor, plain
from draftproof.native.plan import LayerKV, RowPlan, check_map, check_values
from draftproof.native.runtime import check_memory, library

KvPools = Sequence[LayerKV]


class LayerSpec(ctypes.Structure):
    """The C view of LayerWeights."""

    _fields_ = (
        *((name, c_void_p) for name in ("q", "k", "v", "o", "gate", "up", "down")),
        *((name, c_void_p) for name in ("input_norm", "post_norm")),
        *((name, c_void_p) for name in ("q_bias", "k_bias", "v_bias", "o_bias", "q_norm", "k_norm")),
        ("window", c_int32),
        ("bidirectional", c_int32),
    )


class DecoderSpec(ctypes.Structure):
    """The C view of the sizes and constants of a decoder."""

    _fields_ = (
        *(
            (name, c_int32)
            for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "inter", "bf16", "rope_half")
        ),
        *((name, c_float) for name in ("eps", "rope_scaling", "attn_scale")),
        ("inv_freq", c_void_p),
        ("final_norm", c_void_p),
    )


@dataclass
class LayerWeights:
    """Weights of one layer, torch CPU tensors (copied by the decoder).

    q [nh*D, H], k and v [nkv*D, H], o [H, nh*D], gate and up [I, H],
    down [H, I], all in the decoder's dtype; norms [H]; q_norm and k_norm [D]
    (RMS norm per head before the rotation) or None; biases or None.
    window: None or the number of positions a row looks back, itself included.
    bidirectional: the layer uses RowPlan.visible_block and a two-sided window.
    """

    input_norm: torch.Tensor
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    o: torch.Tensor
    post_norm: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    q_bias: torch.Tensor | None = None
    k_bias: torch.Tensor | None = None
    v_bias: torch.Tensor | None = None
    o_bias: torch.Tensor | None = None
    q_norm: torch.Tensor | None = None
    k_norm: torch.Tensor | None = None
    window: int | None = None
    bidirectional: bool = False


class _Pools:
    """K/V pools as C sees them: addresses (k0, v0, k1, …), one slot map per layer or null, the plan's slots."""

    def __init__(self, kv: KvPools, slots: int, views: Sequence[tuple[int | None, bool]]) -> None:
        self.kv = (c_void_p * (2 * len(kv)))(*(t.data_ptr() for layer in kv for t in layer[:2]))
        self.maps = (c_void_p * len(kv))(*(None if m is None else m.data_ptr() for *_, m in kv))
        self.slots = slots
        # Layers that share a map and a view of the keys need to be checked once.
        distinct = {
            (m.data_ptr(), *view): (layer, *view)
            for layer, view in zip(kv, views, strict=True)
            if (m := layer.slot_map) is not None
        }
        self.mapped: list[tuple[LayerKV, int | None, bool]] = list(distinct.values())


class NativeDecoder:
    """Decoder layers with packed weights; see `forward` and `append_context`.

    inv_freq: [rotary_dim / 2] float; the angle of position p is p * inv_freq,
    cosine and sine are multiplied by rope_scaling.  attn_scale multiplies the
    scores.  final_norm: [H] or None.  dtype: torch.bfloat16 (weights, GEMM
    inputs and K/V rounded to bfloat16, residual and sums in float32) or
    torch.float32.  Raises ValueError on misfitting weights.
    """

    def __init__(
        self,
        layers: Sequence[LayerWeights],
        *,
        hidden_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        rms_eps: float,
        inv_freq: torch.Tensor,
        rope_scaling: float,
        attn_scale: float,
        final_norm: torch.Tensor | None,
        dtype: torch.dtype,
    ) -> None:
        if not layers:
            raise ValueError("layers: expected at least one, got none")
        if dtype not in KERNEL_DTYPES:
            raise ValueError(f"dtype: expected torch.float32 or torch.bfloat16, got {dtype}")
        check_heads(num_heads, num_kv_heads, head_dim)
        self.num_layers, self.hidden_size = len(layers), hidden_size
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.dtype = dtype
        self._bidirectional = any(layer.bidirectional for layer in layers)
        self._views = [(layer.window, layer.bidirectional) for layer in layers]
        check_tensor("gate", layers[0].gate, [None, hidden_size], dtype, contiguous=False)
        self.intermediate_size = int(layers[0].gate.shape[0])
        self._seen: list[tuple[weakref.ref[torch.Tensor], int]] = []
        self._seen_pools: _Pools
        self._lib = library()
        self._handle = self._create(inv_freq, final_norm, (rms_eps, rope_scaling, attn_scale))
        self._free = weakref.finalize(self, self._lib.dp_decoder_free, c_void_p(self._handle))
        for index, layer in enumerate(layers):
            self._add(index, layer)

    def _create(
        self, inv_freq: torch.Tensor, final_norm: torch.Tensor | None, constants: tuple[float, float, float]
    ) -> int:
        """A C decoder without layers; constants are eps, rope_scaling and attn_scale."""
        check_tensor("inv_freq", inv_freq, [None], (torch.float32, torch.float64, torch.bfloat16), contiguous=False)
        half = int(inv_freq.shape[0])
        if 2 * half > self.head_dim:
            raise ValueError(f"inv_freq: expected at most head_dim/2 = {self.head_dim // 2} values, got {half}")
        if final_norm is not None:
            check_tensor("final_norm", final_norm, [self.hidden_size], KERNEL_DTYPES, contiguous=False)
        freq = plain(inv_freq, torch.float32)
        norm = None if final_norm is None else plain(final_norm, torch.float32)
        spec = DecoderSpec(
            self.num_layers, self.hidden_size, self.num_heads, self.num_kv_heads, self.head_dim,
            self.intermediate_size, int(self.dtype == torch.bfloat16), half, *constants,
            freq.data_ptr(), None if norm is None else norm.data_ptr(),
        )  # fmt: skip
        handle = self._lib.dp_decoder_new(ctypes.byref(spec))
        if not handle:
            raise MemoryError("no memory for the packed decoder")
        return int(handle)

    def _add(self, index: int, layer: LayerWeights) -> None:
        """Check and pack one layer."""
        hidden, inter, dim = self.hidden_size, self.intermediate_size, self.head_dim
        q_dim, kv_dim = self.num_heads * dim, self.num_kv_heads * dim
        matrices = {
            "q": [q_dim, hidden], "k": [kv_dim, hidden], "v": [kv_dim, hidden], "o": [hidden, q_dim],
            "gate": [inter, hidden], "up": [inter, hidden], "down": [hidden, inter],
        }  # fmt: skip
        vectors = {
            "input_norm": hidden, "post_norm": hidden, "q_bias": q_dim, "k_bias": kv_dim, "v_bias": kv_dim,
            "o_bias": hidden, "q_norm": dim, "k_norm": dim,
        }  # fmt: skip
        check_window(layer.window)
        spec = LayerSpec(window=layer.window or 0, bidirectional=int(layer.bidirectional))
        held: list[torch.Tensor] = []
        for name, shape in matrices.items():
            check_tensor(f"layers[{index}].{name}", getattr(layer, name), shape, self.dtype, contiguous=False)
            held.append(plain(getattr(layer, name), self.dtype))
            setattr(spec, name, held[-1].data_ptr())
        for name, size in vectors.items():
            value = getattr(layer, name)
            if value is None and name not in ("input_norm", "post_norm"):
                continue
            check_tensor(f"layers[{index}].{name}", value, [size], KERNEL_DTYPES, contiguous=False)
            held.append(plain(value, torch.float32))
            setattr(spec, name, held[-1].data_ptr())
        if self._lib.dp_decoder_layer(self._handle, ctypes.byref(spec)):
            raise MemoryError(f"no memory to pack layer {index}")

    def _pools(self, kv: KvPools) -> _Pools:
        """The pools as C sees them, checked."""
        if len(kv) != self.num_layers:
            raise ValueError(f"kv: expected {self.num_layers} pairs, got {len(kv)}")
        pools = [tensor for layer in kv for tensor in layer if tensor is not None]
        seen = self._seen
        # Looking at sixty tensors takes a percent of a one-row pass: those of
        # the last pass are known to fit.  Weak references leave them free to go.
        if len(seen) == len(pools) and all(
            ref() is pool and at == pool.data_ptr() for (ref, at), pool in zip(seen, pools, strict=True)
        ):
            return self._seen_pools
        slots: int | None = None
        for index, layer in enumerate(kv):
            if layer.key.dim() == 3 and layer.slot_map is None:
                slots = slots or int(layer.key.shape[0])
            if layer.slot_map is not None:
                check_tensor(f"kv[{index}].slot_map", layer.slot_map, [None], torch.int32)
                slots = slots or int(layer.slot_map.shape[0])
            own = slots if layer.slot_map is None else int(layer.key.shape[0])
            for name, pool in (("k", layer.key), ("v", layer.value)):
                check_tensor(f"kv[{index}].{name}", pool, [own, self.num_kv_heads, self.head_dim], self.dtype)
            if layer.slot_map is not None:
                check_tensor(f"kv[{index}].slot_map", layer.slot_map, [slots], torch.int32)
        self._seen = [(weakref.ref(pool), pool.data_ptr()) for pool in pools]
        self._seen_pools = _Pools(kv, slots or 0, self._views)
        return self._seen_pools

    def forward(
        self, x: torch.Tensor, plan: RowPlan, kv: KvPools, taps: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Run the rows of `plan` through all layers.

        x: [R, H] float32 embeddings.  kv: per layer (k_pool, v_pool), each
        [num_slots, num_kv_heads, D] in the decoder's dtype; every row's K/V is
        written at its slot before any attention of that layer; or with a
        slot_map, whose pool may have other slots than the plan.
        taps: indices as in Hugging Face `output_hidden_states` (0 embeddings,
        j the output of layer j-1, num_layers the value after the final norm).
        Returns (hidden [R, H] float32 after the final norm, taps
        [R, len(taps) * H] float32 in the order asked, or None without taps).
        Raises ValueError on misfits and indices out of range.
        """
        rows = plan.rows
        check_tensor("x", x, [rows, self.hidden_size], torch.float32)
        plan.check_shapes()
        if self._bidirectional and plan.extra_ptr is not None:
            raise ValueError("extra_ptr: expected None, bidirectional layers take no extra keys")
        wanted = [int(tap) for tap in taps]
        if any(not 0 <= tap <= self.num_layers for tap in wanted):
            raise ValueError(f"taps: expected indices 0..{self.num_layers}, got {wanted}")
        pools = self._pools(kv)
        struct = plan.as_struct()
        check_values(plan, struct, pools.slots, writes=True)
        for layer, window, bidirectional in pools.mapped:
            check_map(plan, struct, layer, window=window, bidirectional=bidirectional, writes=True)
        out = torch.empty_like(x)
        tapped = torch.empty(rows, len(wanted) * self.hidden_size) if wanted else None
        if rows:
            status = self._lib.dp_decoder_forward(
                self._handle, ctypes.byref(struct), pools.kv, pools.maps, x.data_ptr(),
                (c_int32 * len(wanted))(*wanted), len(wanted), out.data_ptr(),
                None if tapped is None else tapped.data_ptr(),
            )  # fmt: skip
            check_memory(status)
        return out, tapped

    def append_context(self, x: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, kv: KvPools) -> None:
        """Write keys and values of context rows into every layer's pools.

        Per layer K = RoPE(k_norm(k_proj x)) and V = v_proj x, without the
        layer's input norm.  x: [R, H] float32; positions and slots: [R] int32
        (slot -1 writes nothing); kv as in `forward`.
        """
        check_tensor("positions", positions, [None], torch.int32)
        rows = int(positions.shape[0])
        check_tensor("x", x, [rows, self.hidden_size], torch.float32)
        nothing = torch.zeros(rows, dtype=torch.int32)
        plan = RowPlan(positions, slots, nothing, torch.zeros(1, 0, dtype=torch.int32), nothing)
        plan.check_shapes()
        pools = self._pools(kv)
        struct = plan.as_struct()
        check_values(plan, struct, pools.slots, writes=True)
        for layer, window, bidirectional in pools.mapped:
            check_map(plan, struct, layer, window=window, bidirectional=bidirectional, writes=True)
        if rows:
            status = self._lib.dp_decoder_append(self._handle, ctypes.byref(struct), pools.kv, pools.maps, x.data_ptr())
            check_memory(status)
