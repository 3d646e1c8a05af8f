"""The prefix cache: finds blocks that hold the keys and values of a prompt's beginning.

A full block is named by a hash over its tokens and the name of the block before it, so a name stands for the
whole prefix (hash-chained blocks as in vLLM's automatic prefix caching). A block holds the target's keys and
values and the drafter's context keys and values, both functions of the prefix alone: a hit costs no acceptance and
nothing is dropped from it. A block gets its name after it has been written, never before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import takewhile

from draftproof.engine.pool import KVPool
from draftproof.targets.base import Snapshot

_NAME_BYTES = 16


@dataclass
class CacheStats:
    """Counted in tokens of admitted prompts; ``hits`` ones were not computed again."""

    requests: int = 0
    queries: int = 0
    hits: int = 0
    evictions: int = 0


@dataclass(frozen=True)
class Match:
    """The longest cached beginning: whole ``blocks``, and the first ``rows`` tokens of ``part`` after them; with
    the ``snapshot`` taken at their end where the target needs one."""

    blocks: tuple[int, ...] = ()
    part: int = -1
    rows: int = 0
    snapshot: Snapshot | None = None
    known: int = 0  # blocks that stand in the pool, though perhaps without a snapshot to go on from

    def length(self, block_size: int) -> int:
        return len(self.blocks) * block_size + self.rows


def root_name(salt: str | None) -> bytes:
    """What a sequence's first block follows. Different salts never share a block."""
    return blake2b(b"" if salt is None else b"salt:" + salt.encode(), digest_size=_NAME_BYTES).digest()


def block_name(before: bytes, tokens: Sequence[int]) -> bytes:
    """The name of a block of ``tokens`` after the block named ``before``."""
    return blake2b(before + b"".join(t.to_bytes(4, "little") for t in tokens), digest_size=_NAME_BYTES).digest()


class PrefixCache:
    """Names of the pool's blocks. ``stats`` counts what admitted requests asked for and got.

    ``snapshot_bytes``: memory for snapshots of targets with recurrent layers, which can go on only where one was
    taken: at the ends of passes that fall on a block's end. 0: the target needs none. The longest unused go first.
    """

    def __init__(self, pool: KVPool, *, snapshot_bytes: int = 0) -> None:
        self._pool = pool
        self._snapshot_bytes = snapshot_bytes
        self._snapshots: OrderedDict[bytes, Snapshot] = OrderedDict()
        self.stats = CacheStats()
        self._block_of: dict[bytes, int] = {}
        self._entry: dict[int, tuple[bytes, bytes, tuple[int, ...]]] = {}  # block → name, name before, tokens
        self._after: dict[tuple[bytes, int], dict[int, None]] = {}  # name, next token → blocks that follow so
        pool.names = self

    def __len__(self) -> int:
        return len(self._block_of)

    # -- what the pool asks -------------------------------------------------------------------------------

    def holds(self, block: int) -> bool:
        return block in self._entry

    def evicted(self, block: int) -> None:
        self._unlink(block)
        self.stats.evictions += 1

    def _unlink(self, block: int) -> None:
        name, before, tokens = self._entry.pop(block)
        del self._block_of[name]
        self._snapshots.pop(name, None)
        siblings = self._after[before, tokens[0]]
        del siblings[block]
        if not siblings:
            del self._after[before, tokens[0]]

    def reset(self) -> None:
        """Forget everything: no later request finds what earlier ones left. Running requests are not affected."""
        for block in list(self._entry):
            self._unlink(block)
            self._pool.forget(block)

    # -- what the scheduler and the round loop ask --------------------------------------------------------

    def publish(self, block: int, name: bytes, before: bytes, tokens: Sequence[int]) -> None:
        """Let ``block``, fully written, be found. Of equal blocks the first one published stays the one found."""
        if name in self._block_of or block in self._entry:
            return
        self._block_of[name] = block
        self._entry[block] = (name, before, tuple(tokens))
        self._after.setdefault((before, tokens[0]), {})[block] = None

    @property
    def wants_snapshots(self) -> bool:
        return self._snapshot_bytes > 0

    def keep_snapshot(self, name: bytes, snapshot: Snapshot) -> None:
        """The state after the block ``name``, if that block can be found."""
        if name not in self._block_of:
            return
        self._snapshots[name] = snapshot
        self._snapshots.move_to_end(name)
        while sum(s.bytes for s in self._snapshots.values()) > self._snapshot_bytes:
            self._snapshots.popitem(last=False)

    def match(self, names: Sequence[bytes], root: bytes, tokens: Sequence[int], *, begin: int = 0) -> Match:
        """The longest cached part of ``tokens`` after its first ``begin`` blocks.

        ``names`` are those of the full blocks of ``tokens``. Only what every window can still see from the end of
        the match counts. Blocks are not held by matching: ``KVPool.adopt`` them before anything else is taken.
        """
        blocks = [self._block_of[name] for name in takewhile(self._block_of.__contains__, names[begin:])]
        for count in range(len(blocks), -1, -1):
            found = blocks[:count]
            if count and not self._seen_from(found, begin, (begin + count) * self._pool.block_size):
                continue
            if self.wants_snapshots:
                if not count:
                    return Match(known=len(blocks))
                name = names[begin + count - 1]
                if name not in self._snapshots:
                    continue
                self._snapshots.move_to_end(name)
                return Match(tuple(found), snapshot=self._snapshots[name], known=len(blocks))
            part, rows = self._part(names[begin + count - 1] if begin + count else root, begin + count, tokens)
            if part >= 0 and not self._seen_from([*found, part], begin, (begin + count) * self._pool.block_size + rows):
                part, rows = -1, 0
            return Match(tuple(found), part, rows)
        return Match()

    def _seen_from(self, blocks: Sequence[int], begin: int, length: int) -> bool:
        return all(
            window.holds(blocks[index])
            for window in self._pool.windows
            for index in range(max(window.first_seen(length) - begin, 0), len(blocks))
        )

    def _part(self, before: bytes, index: int, tokens: Sequence[int]) -> tuple[int, int]:
        """The block after ``before`` that shares most of its first tokens with what comes next in ``tokens``."""
        size = self._pool.block_size
        rest = tokens[index * size : (index + 1) * size]
        best, most = -1, 0
        for block in self._after.get((before, rest[0]), ()) if rest else ():
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._entry[block][2], rest)))  # noqa: B905
            if same > most:
                best, most = block, same
        return best, most
