"""Who runs next: requests wait, are admitted when the pool has room for them, and leave between rounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from draftproof.engine.pool import KVPool
from draftproof.engine.request import Request
from draftproof.errors import UsageError


class Scheduler:
    """First come, first served. A request is admitted when every slot it can ever need is free."""

    def __init__(self, pool: KVPool, slots_ahead: int) -> None:
        self._pool = pool
        self._slots_ahead = slots_ahead
        self._waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def add(self, request: Request) -> None:
        """Queue a request; refuses one that could never be admitted, with the arithmetic."""
        needed = -(-self._slots(request) // self._pool.block_size)
        if needed > self._pool.num_blocks:
            raise UsageError(
                f"the request needs {self._slots(request)} K/V slots = {needed} blocks of {self._pool.block_size}, "
                f"but the pool has {self._pool.num_blocks} blocks: raise kv_cache_gb or shorten the request"
            )
        self._waiting.append(request)

    def admit(self) -> Request | None:
        """The next waiting request with its slots reserved, or None if there is no room or nobody waits."""
        if not self._waiting or not self._pool.free_seqs:
            return None
        request = self._waiting[0]
        seq = self._pool.acquire()
        if not self._pool.fits(seq, self._slots(request)):
            self._pool.release(seq)
            return None
        self._pool.reserve(seq, self._slots(request))
        request.seq = seq
        self.running.append(self._waiting.popleft())
        return request

    def remove(self, request_id: str) -> Request | None:
        """Take a request out, waiting or running, and free its slots. None if it is unknown or has left."""
        for request in self.running:
            if request.request_id == request_id:
                self.running.remove(request)
                self._pool.release(request.seq)
                return request
        for request in self._waiting:
            if request.request_id == request_id:
                self._waiting.remove(request)
                return request
        return None

    @property
    def idle(self) -> bool:
        return not self.running and not self._waiting

    def requests(self, request_ids: Sequence[str]) -> list[Request]:
        """The waiting or running requests with these ids."""
        return [r for r in [*self.running, *self._waiting] if r.request_id in request_ids]

    def knows(self, request_id: str) -> bool:
        return any(r.request_id == request_id for r in [*self.running, *self._waiting])

    def _slots(self, request: Request) -> int:
        return request.limit + self._slots_ahead
