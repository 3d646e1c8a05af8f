"""Which rows a pass holds, and which keys each of them sees."""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_void_p
from dataclasses import dataclass
from typing import NamedTuple

import torch

from draftproof.native.checks import check_tensor
from draftproof.native.runtime import library


class PlanStruct(ctypes.Structure):
    """The C view of a RowPlan."""

    _fields_ = (
        ("rows", c_int32),
        ("requests", c_int32),
        ("max_len", c_int32),
        ("extras", c_int32),
        ("positions", c_void_p),
        ("slots", c_void_p),
        ("request", c_void_p),
        ("table", c_void_p),
        ("visible", c_void_p),
        ("visible_block", c_void_p),
        ("extra_ptr", c_void_p),
        ("extra_slots", c_void_p),
        ("window_positions", c_void_p),
    )


class LayerKV(NamedTuple):
    """One layer's pools: key and value [pool_slots, kv_heads, dim].

    slot_map: [slots] int32, from a plan's slots to the pool's own (-1: that slot holds nothing any more), for
    a layer that forgets what has left its window; None: they are the same.
    """

    key: torch.Tensor
    value: torch.Tensor
    slot_map: torch.Tensor | None = None


@dataclass
class RowPlan:
    """The rows of a pass; all tensors are contiguous int32 on the CPU.

    positions:     [R] RoPE position, also the logical position for windows.
    slots:         [R] pool slot that receives the row's K/V; -1 writes nothing.
    request:       [R] row of `table` the row belongs to.
    table:         [num_requests, max_len] pool slot of each logical position.
    visible:       [R] the row sees logical positions 0..visible-1 of its request.
    visible_block: [R] count used instead by bidirectional layers; None = same.
    extra_ptr:     [R+1] and
    extra_slots:   [E] further keys of row r after the table part, in order:
                   extra_slots[extra_ptr[r]:extra_ptr[r+1]]; the i-th has the
                   logical position visible[r] + i (tree ancestors with the row
                   itself).  Not allowed together with visible_block.
    window_positions: [R] the position each row's window is measured from, if
                   not its own (drafters whose window starts at the anchor).
    """

    positions: torch.Tensor
    slots: torch.Tensor
    request: torch.Tensor
    table: torch.Tensor
    visible: torch.Tensor
    visible_block: torch.Tensor | None = None
    extra_ptr: torch.Tensor | None = None
    extra_slots: torch.Tensor | None = None
    window_positions: torch.Tensor | None = None

    @property
    def rows(self) -> int:
        """Number of rows R."""
        return int(self.positions.shape[0])

    def check_shapes(self) -> None:
        """Raise ValueError on a wrong shape, dtype, device or layout."""
        rows, kind = self.rows if self.positions.dim() == 1 else None, torch.int32
        check_tensor("positions", self.positions, [None], kind)
        for name in ("slots", "request", "visible"):
            check_tensor(name, getattr(self, name), [rows], kind)
        check_tensor("table", self.table, [None, None], kind)
        for name in ("visible_block", "window_positions"):
            if getattr(self, name) is not None:
                check_tensor(name, getattr(self, name), [rows], kind)
        if (self.extra_ptr is None) != (self.extra_slots is None):
            raise ValueError("extra_ptr, extra_slots: expected both or neither")
        if self.extra_ptr is not None and self.extra_slots is not None:
            check_tensor("extra_ptr", self.extra_ptr, [self.rows + 1], kind)
            check_tensor("extra_slots", self.extra_slots, [None], kind)
            if self.visible_block is not None:
                raise ValueError("visible_block: expected None in a plan with extra_ptr")

    def as_struct(self) -> PlanStruct:
        """The C view; valid while this plan's tensors live."""

        def at(tensor: torch.Tensor | None) -> int | None:
            return None if tensor is None else tensor.data_ptr()

        requests, max_len = self.table.shape
        extras = 0 if self.extra_slots is None else self.extra_slots.shape[0]
        return PlanStruct(
            self.rows, requests, max_len, extras,
            at(self.positions), at(self.slots), at(self.request), at(self.table),
            at(self.visible), at(self.visible_block), at(self.extra_ptr), at(self.extra_slots),
            at(self.window_positions),
        )  # fmt: skip


def check_values(plan: RowPlan, struct: PlanStruct, num_slots: int, *, writes: bool) -> None:
    """Raise ValueError if any index of the plan leaves its range.

    num_slots is the size of the K/V pools; `writes` also checks `slots`.
    """
    fault = library().dp_check_plan(ctypes.byref(struct), num_slots, int(writes))
    if fault.code == 0:
        return
    where = fault.where
    requests, max_len = plan.table.shape
    extras = 0 if plan.extra_slots is None else plan.extra_slots.shape[0]
    names = {
        1: ("slots", plan.slots, f"-1 or 0..{num_slots - 1}"),
        2: ("request", plan.request, f"0..{requests - 1}"),
        3: ("visible", plan.visible, f"0..{max_len}"),
        5: ("extra_ptr", plan.extra_ptr, f"non-decreasing values from 0 up to {extras}"),
        6: ("extra_slots", plan.extra_slots, f"0..{num_slots - 1}"),
        7: ("visible_block", plan.visible_block, f"0..{max_len}"),
        8: ("positions", plan.positions, "0 or more"),
    }
    if fault.code == 4:
        raise ValueError(
            f"table: expected slots 0..{num_slots - 1} at visible positions, got another at position {where}"
        )
    name, tensor, wanted = names[fault.code]
    got = None if tensor is None else int(tensor[where])
    raise ValueError(f"{name}[{where}]: expected {wanted}, got {got}")


def check_map(
    plan: RowPlan, struct: PlanStruct, pool: LayerKV, *, window: int | None, bidirectional: bool, writes: bool
) -> None:
    """Raise ValueError if a row writes or sees a slot that the layer's pool does not hold. The plan passed
    ``check_values`` with the size of the map."""
    assert pool.slot_map is not None
    slots = int(pool.key.shape[0])
    at = pool.slot_map.data_ptr()
    fault = library().dp_check_map(ctypes.byref(struct), at, slots, window or 0, int(bidirectional), int(writes))
    if fault.code == 9:
        raise ValueError(f"slot_map: row {fault.where} writes to a slot that is not in the layer's pool of {slots}")
    if fault.code == 10:
        raise ValueError(
            f"slot_map: position {fault.where} is inside the window of {window} but not in the layer's pool of {slots}"
        )
