"""Memory of the layers with a sliding window: it follows the window instead of the whole sequence.

Such layers share the pool's block table, but a block of the pool has memory in them only while a query can still
see it (or while the prefix cache keeps it). ``slot_map`` leads from the pool's slots to theirs.
"""

from __future__ import annotations

import torch

from draftproof.engine.blocks import BlockPool


class WindowMemory:
    """Places for ``count`` of the pool's ``num_blocks`` blocks, for all layers with the same ``window``."""

    def __init__(self, window: int, count: int, num_blocks: int, block_size: int, device: torch.device) -> None:
        self.window = window
        self.block_size = block_size
        self.blocks = BlockPool(count, self._vacate)
        self.slot_map = torch.full((num_blocks * block_size,), -1, dtype=torch.int32, device=device)
        self._place = [-1] * num_blocks
        self._owner = [-1] * count

    def first_seen(self, position: int) -> int:
        """Index, within its sequence, of the first block that a row at ``position`` can see."""
        return max(position - self.window + 1, 0) // self.block_size

    def holds(self, block: int) -> bool:
        return self._place[block] >= 0

    def refs(self, block: int) -> int:
        return self.blocks.refs(self._place[block])

    def give(self, block: int) -> None:
        """A place for a new block of one holder."""
        place = self.blocks.take()
        self._place[block], self._owner[place] = place, block
        begin = block * self.block_size
        self.slot_map[begin : begin + self.block_size] = torch.arange(
            place * self.block_size, (place + 1) * self.block_size, dtype=torch.int32
        )

    def share(self, block: int) -> None:
        self.blocks.share(self._place[block])

    def drop(self, block: int, *, keep: bool) -> None:
        """One holder less; the place of a block that is not kept becomes free with its last one."""
        place = self._place[block]
        self.blocks.drop(place, keep=keep)
        if not keep and self.blocks.refs(place) == 0:
            self._vacate(place)

    def forget(self, block: int) -> None:
        """The block itself is given away: its place, kept until now, is free."""
        place = self._place[block]
        if place >= 0:
            self._vacate(place)
            self.blocks.forget(place)

    def _vacate(self, place: int) -> None:
        block = self._owner[place]
        self._place[block], self._owner[place] = -1, -1
        begin = block * self.block_size
        self.slot_map[begin : begin + self.block_size] = -1
