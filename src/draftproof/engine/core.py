"""The engine's core: pool, cache, scheduler and loop, and the hand-over between threads.

One thread steps; any thread may submit and abort. What they leave is taken in between two steps.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from draftproof.drafters.base import Drafter
from draftproof.engine.acceptance import EngineAcceptance
from draftproof.engine.calibrate import measure_costs
from draftproof.engine.drafting import Drafting
from draftproof.engine.options import EngineOptions
from draftproof.engine.policy import AdaptiveLengths, Costs, FixedLengths
from draftproof.engine.pool import KVPool
from draftproof.engine.prefix_cache import PrefixCache
from draftproof.engine.request import Request
from draftproof.engine.rounds import RoundLoop
from draftproof.engine.scheduler import Scheduler, Step
from draftproof.engine.sizes import EngineSizes
from draftproof.engine.types import Event, Method, RequestFinished
from draftproof.errors import DraftproofError, UsageError
from draftproof.targets.base import Target

_OUT_OF_MEMORY = "out of memory: lower kv_cache_gb"
_SNAPSHOT_SHARE = 0.25  # of kv_cache_gb, on top of it, for the states of recurrent layers


class EngineCore:
    """``costs`` None: measured now, if the policy needs them."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        method: Method,
        options: EngineOptions,
        sizes: EngineSizes,
        costs: Costs | None = None,
    ) -> None:
        self.target, self.drafter, self.method, self.options = target, drafter, method, options
        # Guards what other threads leave for the next step. Re-entrant: collecting an abandoned stream aborts it,
        # and garbage may be collected anywhere.
        self._lock = threading.RLock()
        self._stepping = threading.Lock()
        self._live: dict[str, list[Request]] = {}
        self._arrived: list[Request] = []
        self._aborted: list[str] = []
        self._outbox: list[Event] = []
        self.pool = KVPool(
            target.kv_shapes,
            drafter.kv_shapes if drafter else (),
            sizes=sizes.pool,
            block_size=options.block_size,
            max_seqs=options.max_num_seqs,
            max_len=sizes.max_model_len + sizes.ahead,
            dtype=target.info.dtype,
            device=target.info.device,
        )
        self.prefix_cache = self._make_cache()
        self.costs = costs or self._measure()
        drafting = self._make_drafting(sizes)
        self.loop = RoundLoop(target, self.pool, self.prefix_cache, drafting, self.costs)
        self.scheduler = Scheduler(
            self.pool,
            self.prefix_cache,
            max_rows=sizes.max_rows,
            draft_rows=drafting.expected_rows if drafting else lambda requests: 0,
            share_prompts=not target.capabilities.snapshots,
            release=self._release,
            restore=target.restore,
        )

    def _make_cache(self) -> PrefixCache | None:
        if self.options.enable_prefix_caching is False:
            return None
        snapshots = int(self.options.kv_cache_gb * 2**30 * _SNAPSHOT_SHARE) if self.target.capabilities.snapshots else 0
        return PrefixCache(self.pool, snapshot_bytes=snapshots)

    def _measure(self) -> Costs:
        if self.drafter is None or not self.options.adaptive:
            return Costs()
        return measure_costs(self.target, self.drafter, self.pool)

    def _make_drafting(self, sizes: EngineSizes) -> Drafting | None:
        if self.drafter is None:
            return None
        tree = self.method == "tree"
        acceptance = EngineAcceptance(max(self.drafter.num_draft_tokens, sizes.tree_budget if tree else 0))
        policy: FixedLengths | AdaptiveLengths = FixedLengths()
        if self.options.adaptive:
            policy = AdaptiveLengths(self.costs, acceptance, self.drafter.num_draft_tokens if tree else None)
        return Drafting(
            self.drafter,
            self.target,
            self.pool,
            policy,
            acceptance,
            method=self.method,
            tree_budget=sizes.tree_budget,
            draft_method=self.options.draft_sample_method,
        )

    def _release(self, seq: int) -> None:
        self.target.release(seq)
        self.pool.release(seq)

    # -- requests -----------------------------------------------------------------------------------------

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests that share one id; refuses an id that is in use. From any thread."""
        request_id = requests[0].request_id
        with self._lock:
            if request_id in self._live:
                raise UsageError(f"request id {request_id!r} is already in use")
            # What was to be aborted under this id has ended by itself.
            self._aborted = [name for name in self._aborted if name != request_id]
            self._live[request_id] = list(requests)
            self._arrived += requests

    def requests_of(self, request_id: str) -> list[Request]:
        """The requests that live under an id."""
        with self._lock:
            return list(self._live.get(request_id, ()))

    @property
    def has_work(self) -> bool:
        """Is there anything for ``step`` to do?"""
        with self._lock:
            return bool(self._live or self._outbox)

    def step(self) -> list[Event]:
        """Take in what arrived, then run one pass: a round of every running request and pieces of prompts. One
        thread at a time; others may add and abort requests meanwhile. After an error for which there is no remedy,
        which is raised, the next step tells what this one would have."""
        with self._stepping:
            events = self._take_in()
            step, preempted = self.scheduler.plan()
            events += preempted
            batch = [*step.decodes, *(request for request, _ in step.prompts)]
            try:
                return [*events, *self._guarded(batch, step)] if batch else events
            except BaseException as error:
                self._retire(batch)
                self._leave([*events, *_failed(batch, f"{type(error).__name__}: {error}")])
                raise

    def _take_in(self) -> list[Event]:
        """What other threads left: new requests, aborted ones, and events nobody has fetched yet."""
        with self._lock:
            arrived, self._arrived = self._arrived, []
            aborted, self._aborted = self._aborted, []
            events, self._outbox = self._outbox, []
            gone = [request for request_id in aborted for request in self._live.pop(request_id, ())]
        for request in arrived:
            self.scheduler.add(request)
        for request in gone:
            if not request.done:
                self.scheduler.remove(request)
                events.append(RequestFinished(request.request_id, "abort", index=request.index))
        return events

    def _guarded(self, batch: Sequence[Request], step: Step) -> list[Event]:
        """Run a step; if it fails half-way its requests end, since their state is unknown. What has a remedy
        becomes an error event of theirs, anything else is raised."""
        try:
            events = self.loop.run(step)
        except (DraftproofError, MemoryError, torch.OutOfMemoryError) as error:
            events = _failed(batch, str(error) if isinstance(error, DraftproofError) else _OUT_OF_MEMORY)
        finished = {(e.request_id, e.index) for e in events if isinstance(e, RequestFinished)}
        if finished:
            self._retire([r for r in batch if (r.request_id, r.index) in finished])
        return events

    def abort(self, request_id: str) -> bool:
        """End a request, from any thread, and free what it holds: at once, or after the pass that is running. Its
        last event comes out of the next ``step``. False if the id is unknown or has finished: nothing is left to
        do."""
        with self._lock:
            if request_id not in self._live:
                return False
            self._aborted.append(request_id)
        if self._stepping.acquire(blocking=False):
            try:
                self._leave(self._take_in())
            finally:
                self._stepping.release()
        return True

    def _leave(self, events: list[Event]) -> None:
        """For the next step to tell."""
        with self._lock:
            self._outbox = events + self._outbox

    def _retire(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self.scheduler.remove(request)
            with self._lock:
                siblings = self._live.get(request.request_id, [])
                if all(r.done for r in siblings):
                    self._live.pop(request.request_id, None)


def _failed(requests: Sequence[Request], detail: str) -> list[Event]:
    return [RequestFinished(r.request_id, "error", detail=detail, index=r.index) for r in requests]
