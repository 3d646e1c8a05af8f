"""Who runs next, and with how many rows: requests wait, are admitted, read their prompts in pieces, are pre-empted
when the pool is full, and leave between rounds.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from draftproof.engine.pool import KVPool
from draftproof.engine.prefix_cache import Match, PrefixCache
from draftproof.engine.request import Request
from draftproof.engine.types import Event, RequestPreempted
from draftproof.targets.base import Snapshot


@dataclass
class Step:
    """One pass. ``decodes`` have a slot for their anchor; ``prompts`` have slots for as many rows as named.
    ``draft_rows``: most rows that all drafts together may add."""

    decodes: list[Request] = field(default_factory=list)
    prompts: list[tuple[Request, int]] = field(default_factory=list)
    draft_rows: int = 0


class Scheduler:
    """First come, first served, under a budget of ``max_rows`` rows a pass.

    Running requests go on first; what is left of the budget reads prompts, so a long prompt takes part in many
    passes and stalls nobody. A request is admitted when its prompt fits. Blocks are taken as sequences grow; when
    there is none left, the youngest request gives its blocks back and waits to be computed again. ``cache``
    None: no prefix is reused. ``draft_rows``: rows to leave for the drafts of these requests. ``release(seq)`` frees
    a sequence wherever it is known; ``restore(seq, snapshot)`` gives the target a state to go on from.
    """

    def __init__(
        self,
        pool: KVPool,
        cache: PrefixCache | None,
        *,
        max_rows: int,
        draft_rows: Callable[[Sequence[Request]], int],
        share_prompts: bool,
        release: Callable[[int], None],
        restore: Callable[[int, Snapshot], None],
    ) -> None:
        self._pool = pool
        self._cache = cache
        self._max_rows = max_rows
        self._draft_rows = draft_rows
        self._share_prompts = share_prompts
        self._release = release
        self._restore = restore
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []  # in order of arrival

    @property
    def idle(self) -> bool:
        return not self.running and not self.waiting

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def remove(self, request: Request) -> None:
        """Take a request out, waiting or running, and free what it holds."""
        request.done = True
        if request in self.running:
            self.running.remove(request)
            self._release(request.seq)
            request.seq = -1
        elif request in self.waiting:
            self.waiting.remove(request)

    def plan(self) -> tuple[Step, list[Event]]:
        """The next pass and the pre-emptions it took."""
        events: list[Event] = []
        self._admit()
        step = Step()
        reading: list[Request] = []
        for request in list(self.running):
            if request.seq < 0:
                continue  # an older one needed its blocks
            if not request.decoding:
                reading.append(request)
            elif self._make_room(request, events):
                step.decodes.append(request)
        left = self._max_rows - len(step.decodes)
        for_drafts = min(self._draft_rows(step.decodes), left // 2)  # a prompt gets a row at least
        left -= self._plan_prompts(step, reading, left - for_drafts, events)
        step.decodes = [r for r in step.decodes if r.seq >= 0]  # reading an older prompt may have cost a younger one
        step.draft_rows = max(left, 0)
        return step, events

    # -- prompts ------------------------------------------------------------------------------------------

    def _plan_prompts(self, step: Step, reading: Sequence[Request], rows: int, events: list[Event]) -> int:
        """Pieces of prompts, the oldest first; returns the rows they take."""
        taken = 0
        to_come: set[bytes] = set()  # blocks that an older request is about to write
        for request in reading:
            if request.seq < 0 or taken >= rows:
                continue
            self._extend(request)
            if self._will_be_cached(request, to_come):
                continue
            wanted = self._piece(request, min(rows - taken, request.prefill_end - request.computed))
            count = self._reserve_piece(request, wanted, events)
            if count:
                step.prompts.append((request, count))
                taken += count
        return taken

    def _piece(self, request: Request, rows: int) -> int:
        """Rows of the next piece. Where states are kept it ends with a block, and also where this prompt leaves one
        known before, and at its last whole block: a later prompt will want to go on from there."""
        if self._cache is None or not self._cache.wants_snapshots:
            return rows
        size = self._pool.block_size
        goals = [g for g in (request.branch, (request.prefill_end - 1) // size * size) if g > request.computed]
        end = min([request.computed + rows, *goals])
        aligned = end // size * size
        return aligned - request.computed if goals and aligned > request.computed else rows

    def _reserve_piece(self, request: Request, wanted: int, events: list[Event]) -> int:
        """Slots for up to ``wanted`` rows: what there is, or one row at the cost of a younger request."""
        wanted = min(wanted, max(self._pool.room(request.seq, request.computed), 1))
        while not self._pool.reserve(request.seq, request.computed, request.computed + wanted):
            if not self._preempt_youngest(request, events):
                return 0
        return wanted

    def _extend(self, request: Request) -> None:
        """Take over blocks that others have written since this request was admitted."""
        size = self._pool.block_size
        if self._cache is None or request.computed % size:
            return
        match = self._find(request, request.computed // size)
        if match.blocks:
            self._take_over(request, Match(match.blocks, snapshot=match.snapshot))
            if request.generated == 0:
                request.cached += len(match.blocks) * size
                self._cache.stats.hits += len(match.blocks) * size

    def _will_be_cached(self, request: Request, to_come: set[bytes]) -> bool:
        """Is an older request in the midst of writing the very block that this one needs next? Then it waits a
        step and finds it, instead of computing it twice."""
        if self._cache is None:
            return False
        size = self._pool.block_size
        names = request.block_names((request.prefill_end - 1) // size, size)
        ahead = names[request.computed // size :]
        wait = request.computed % size == 0 and bool(ahead) and ahead[0] in to_come
        to_come.update(ahead)
        return wait

    # -- admission ----------------------------------------------------------------------------------------

    def _admit(self) -> None:
        for request in list(self.waiting):
            if not self._pool.free_seqs:
                return
            if self._must_wait_for_parent(request):
                continue
            if not self._try_to_admit(request):
                return
            self.waiting.remove(request)
            insort(self.running, request, key=lambda r: r.order)

    def _must_wait_for_parent(self, request: Request) -> bool:
        parent = request.parent
        if not self._share_prompts or parent is None or parent.done or request.generated:
            return False
        return parent.seq < 0 or parent.computed < request.prompt_length - 1

    def _try_to_admit(self, request: Request) -> bool:
        shared = request.prompt_length - 1
        parent = request.parent
        if self._share_prompts and parent is not None and parent.seq >= 0 and not request.generated and shared:
            if self._pool.free_blocks < 1 + self._promised():
                return False
            known = min(parent.computed, parent.observed)  # where its drafter failed, the drafter's part is missing
            if known >= shared and self._pool.can_fork(parent.seq, shared):
                request.seq = self._pool.fork(parent.seq, shared)
                request.computed = request.observed = request.cached = shared
                request.published = shared // self._pool.block_size
                return True
        match = self._find(request, 0)
        size = self._pool.block_size
        # A block that is merely kept counts as free until it is taken over, so it does not shrink the need.
        held = sum(self._pool.refs(block) > 0 for block in match.blocks)
        if self._pool.blocks_for(request.prefill_end + 1) - held > self._pool.free_blocks - self._promised():
            return False
        request.seq = self._pool.acquire()
        request.branch = match.known * size
        self._take_over(request, match)
        if self._cache is not None and request.generated == 0:
            request.cached = request.computed
            self._cache.stats.requests += 1
            self._cache.stats.queries += request.prompt_length
            self._cache.stats.hits += request.cached
        return True

    def _promised(self) -> int:
        """Blocks that running requests will still take to read their prompts."""
        return sum(
            max(self._pool.blocks_for(r.prefill_end + 1) - self._pool.held(r.seq), 0)
            for r in self.running
            if not r.decoding
        )

    def _find(self, request: Request, begin: int) -> Match:
        if self._cache is None:
            return Match()
        # One token at least must be computed: its row yields the next one.
        tokens = request.token_ids[: request.prefill_end - (request.generated == 0)]
        size = self._pool.block_size
        return self._cache.match(request.block_names(len(tokens) // size, size), request.root, tokens, begin=begin)

    def _take_over(self, request: Request, match: Match) -> None:
        size = self._pool.block_size
        start = request.computed
        self._pool.adopt(request.seq, match.blocks, start + len(match.blocks) * size)
        if match.snapshot is not None:
            self._restore(request.seq, match.snapshot)
        request.computed = start + match.length(size)
        request.observed = request.computed
        request.published = request.computed // size
        if match.rows and not self._copy_part(request, match):
            request.computed = request.observed = start + len(match.blocks) * size

    def _copy_part(self, request: Request, match: Match) -> bool:
        """A block known in part is copied, if there is room for it and its source at once."""
        spare = min([self._pool.free_blocks, *(w.blocks.available for w in self._pool.windows)])
        if spare < 2:
            return False
        self._pool.copy_rows(request.seq, match.part, match.rows)
        return True

    # -- room ---------------------------------------------------------------------------------------------

    def _make_room(self, request: Request, events: list[Event]) -> bool:
        """One writable slot for the anchor; pre-empts from the youngest on. False: it went itself."""
        while not self._pool.reserve(request.seq, request.computed, request.computed + 1):
            if not self._preempt_youngest(request, events):
                return False
        return True

    def _preempt_youngest(self, request: Request, events: list[Event]) -> bool:
        """Take the youngest request's blocks. False if that is ``request`` itself."""
        victim = self.running[-1]
        self.preempt(victim, events)
        return victim is not request

    def preempt(self, victim: Request, events: list[Event]) -> None:
        """Give a running request's blocks back; it waits, before all others, to be computed again."""
        events.append(RequestPreempted(victim.request_id, victim.computed, victim.index))
        self.running.remove(victim)
        self._release(victim.seq)
        victim.forget_computed()
        self.waiting.appendleft(victim)

    def requests(self) -> Iterable[Request]:
        return [*self.running, *self.waiting]
