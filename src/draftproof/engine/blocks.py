"""Blocks of the K/V pool with reference counts: who holds what, and which block is given away next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable


class BlockPool:
    """``count`` blocks, each free, held by one or more sequences, or *kept*: held by nobody, but with a content
    that the prefix cache can still find. Kept blocks are given away last, the longest unused first;
    ``on_evict(block)`` is told before that happens.
    """

    def __init__(self, count: int, on_evict: Callable[[int], None] = lambda block: None) -> None:
        self.count = count
        self._free = list(range(count - 1, -1, -1))
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._refs = [0] * count
        self._on_evict = on_evict

    @property
    def available(self) -> int:
        """Blocks that ``take`` can give: free ones and kept ones."""
        return len(self._free) + len(self._kept)

    @property
    def kept(self) -> int:
        return len(self._kept)

    def refs(self, block: int) -> int:
        return self._refs[block]

    def take(self) -> int:
        """A block for one holder. Call only if ``available``."""
        if not self._free:
            oldest = next(iter(self._kept))
            self._on_evict(oldest)
            self.forget(oldest)
        block = self._free.pop()
        self._refs[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more holder of a block that is held or kept."""
        self._kept.pop(block, None)
        self._refs[block] += 1

    def drop(self, block: int, *, keep: bool) -> None:
        """One holder less; the last one leaves it kept or free."""
        self._refs[block] -= 1
        assert self._refs[block] >= 0, f"block {block} was dropped more often than it was held"
        if self._refs[block] == 0:
            if keep:
                self._kept[block] = None
            else:
                self._free.append(block)

    def forget(self, block: int) -> None:
        """A kept block's content is no longer wanted: it is free. Nothing happens to other blocks."""
        if block in self._kept:
            del self._kept[block]
            self._free.append(block)
