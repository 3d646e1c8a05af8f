"""The round loop: draft → verify → commit — for however many requests run at once, prompts being read beside them.

Verification is exact: greedy output equals the target's own token for token; sampled output follows the
target's distribution (rejection sampling with the drafter's true q for chains, Leviathan et al. and Chen et al.
2023; the target's own draw walked down the tree otherwise, as in DDTree, arXiv 2604.12989).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from torch import Tensor

from draftproof import compat
from draftproof.engine.constraint import greedy_picker, masked
from draftproof.engine.drafting import Drafting, Drafts, Proposal
from draftproof.engine.plan import Pass, Segment, build_pass
from draftproof.engine.policy import AdaptiveLengths, Choice, Costs
from draftproof.engine.pool import KVPool
from draftproof.engine.prefix_cache import PrefixCache
from draftproof.engine.request import Request
from draftproof.engine.sampling import Peaks, distribution, needs_processing, peaks, process_logits, top_logprobs
from draftproof.engine.scheduler import Step
from draftproof.engine.tree import Tree, ancestors
from draftproof.engine.types import (
    Event,
    PrefillFinished,
    RequestFinished,
    RoundFinished,
    RoundStats,
    TokenLogprob,
    TokensCommitted,
)
from draftproof.engine.verify import Walk, picker, reject, walk
from draftproof.errors import DraftproofError
from draftproof.targets.base import Target


@dataclass
class _Turn:
    """One request's part of a pass: its rows, those of the logits among them, and what came of them."""

    request: Request
    proposal: Proposal
    rows: int
    logit_rows: slice
    prompt: bool = False
    result: Walk | None = None
    events: list[Event] | None = None
    produced: int = 0


class RoundLoop:
    """Runs steps over one pool. ``drafting`` None: every round is one plain token."""

    def __init__(
        self, target: Target, pool: KVPool, cache: PrefixCache | None, drafting: Drafting | None, costs: Costs
    ) -> None:
        self.target = target
        self.pool = pool
        self.cache = cache
        self.drafting = drafting
        self.costs = costs
        self._taps = tuple(drafting.drafter.tap_layers) if drafting else ()

    def run(self, step: Step) -> list[Event]:
        """One pass over ``step``: a round of every request that decodes, a piece of every prompt that is read."""
        began = perf_counter()
        prompt_rows = sum(count for _, count in step.prompts)
        drafts = self._draft(step, prompt_rows)
        turns, segments = self._lay_out(step, drafts)
        work = build_pass(self.pool, segments)
        wanted = _logit_rows(work, turns)
        verify_began = perf_counter()
        logits, taps = self.target.forward(work, self.pool.target_kv, taps=self._taps, logits=wanted)
        best = peaks(logits) if len(logits) else None
        compat.synchronize(self.target.info.device)
        verify_s = perf_counter() - verify_began
        for turn in turns:
            if turn.logit_rows.stop > turn.logit_rows.start and best is not None:
                self._decide(turn, logits, best.part(turn.logit_rows))
        observe_s, commit_s, warnings = self._keep(work, turns, taps)
        draft_s, verify_s = drafts.seconds + observe_s, verify_s + commit_s
        host_s = perf_counter() - began - draft_s - verify_s
        self._learn(step, drafts, len(work.token_ids), draft_s, verify_s, host_s)
        return [*drafts.events, *warnings, *self._told(turns, (draft_s, verify_s, host_s))]

    # -- draft --------------------------------------------------------------------------------------------

    def _draft(self, step: Step, prompt_rows: int) -> Drafts:
        if self.drafting is None or not step.decodes:
            return Drafts([Proposal()] * len(step.decodes), Choice([], ""))
        return self.drafting.draft(step.decodes, prompt_rows, step.draft_rows)

    def _lay_out(self, step: Step, drafts: Drafts) -> tuple[list[_Turn], list[Segment]]:
        """Rounds first, whose logits are all needed, then prompts, of which at most the last row's are."""
        turns: list[_Turn] = []
        segments: list[Segment] = []
        at = 0
        for request, proposal in zip(step.decodes, drafts.proposals, strict=True):
            segments.append(_round_segment(request, proposal.tree))
            rows = len(segments[-1])
            turns.append(_Turn(request, proposal, rows, slice(at, at + rows)))
            at += rows
        for request, count in step.prompts:
            request.began = request.began or perf_counter()
            piece = request.token_ids[request.computed : request.computed + count]
            segments.append(Segment(request.seq, request.computed, piece))
            yields = request.generated == 0 and request.computed + count == request.prompt_length
            turns.append(_Turn(request, Proposal(), count, slice(at, at + yields), prompt=True))
            at += yields
        return turns, segments

    # -- verify -------------------------------------------------------------------------------------------

    def _decide(self, turn: _Turn, logits: Tensor, best: Peaks) -> None:
        """What this request commits, by the pass's ``logits`` and the peaks of its own rows. Whatever fails here ends
        this request alone, the others are not touched."""

        def rows() -> Tensor:
            """[1 + nodes, V]: row 0 after the anchor, row i + 1 after node i. Most greedy rounds never look."""
            return logits[turn.logit_rows]

        try:
            turn.result = self._verify(turn.request, turn.proposal, rows, best)
            turn.events = self._commit(turn, turn.result, rows)
        except Exception as error:
            turn.result = None
            turn.request.failure = str(error) if isinstance(error, DraftproofError) else f"{error!r}"
            turn.events = [_finished(turn.request, "error", detail=turn.request.failure)]

    def _verify(self, request: Request, proposal: Proposal, rows: Callable[[], Tensor], best: Peaks) -> Walk:
        params, position = request.params, len(request.token_ids)
        if params.greedy and not needs_processing(params):
            tokens = best.checked()
            if request.constraint is None:
                return walk(proposal.tree, lambda row, path: tokens[row])
            return walk(proposal.tree, greedy_picker(rows(), tokens, request.constraint, request.stop_ids))
        logits = rows()

        def row_logits(row: int, path: Sequence[int]) -> Tensor:
            out = logits[row]
            if needs_processing(params):
                assert request.history is not None
                out = process_logits(out, params, request.history, path, sorted(request.stop_ids), request.generated)
            if request.constraint is not None:
                out = masked(out, request.constraint, path, request.stop_ids)
            return out

        if proposal.q is None or params.greedy:
            return walk(proposal.tree, picker(row_logits, params, request.rng, position))
        return reject(
            proposal.tree.tokens,
            proposal.q,
            lambda row, path: distribution(row_logits(row, path), params),
            request.rng,
            position,
        )

    # -- commit -------------------------------------------------------------------------------------------

    def _commit(self, turn: _Turn, result: Walk, logits: Callable[[], Tensor]) -> list[Event]:
        request = turn.request
        kept = request.commit(result.committed)
        logprobs: tuple[TokenLogprob, ...] | None = None
        if request.params.logprobs is not None:
            own = logits()
            logprobs = tuple(
                top_logprobs(own[row], token, request.params.logprobs)
                for row, token in zip(_path_rows(result), kept.token_ids, strict=False)
            )
        turn.produced = len(kept.token_ids)
        accepted = min(result.accepted, turn.produced)
        tokens = tuple(kept.token_ids)
        events: list[Event] = [
            TokensCommitted(request.request_id, tokens, kept.text, accepted, logprobs, request.index)
        ]
        if kept.reason is not None:
            # A stop string ends the text inside the detokenizer; otherwise what it still holds back is due now.
            rest = request.detokenizer.flush() if request.detokenizer else ""
            events.append(_finished(request, kept.reason, rest, kept.detail))
        return events

    def _keep(self, work: Pass, turns: Sequence[_Turn], taps: Tensor | None) -> tuple[float, float, list[Event]]:
        """Make the accepted rows the sequence's next positions, in the pool and for the drafter; then let the
        prefix cache find the blocks that are full. Returns the seconds the drafter took, those that taking rows back
        took (recurrent layers run again: a price of drafting), and the drafter's warnings."""
        commit_s = 0.0
        alive: list[Request] = []
        at_once: list[Request] = []  # whose context K/V the drafter needs soon, or the cache at the end
        for i, turn in enumerate(turns):
            request, segment = turn.request, work.segments[i]
            if turn.result is None and not (turn.prompt and not request.failure):
                continue
            rows = range(turn.rows) if turn.prompt or turn.result is None else _path_rows(turn.result)
            began = perf_counter()
            self.pool.compact(request.seq, segment.start, rows)
            self.target.commit(request.seq, len(segment), len(rows))
            commit_s += perf_counter() - began
            request.computed = segment.start + len(rows)
            if self.drafting is None:
                request.observed = request.computed
            else:
                self.drafting.take_in(request, [work.offsets[i] + row for row in rows], taps)
            alive.append(request)
            if turn.prompt or turn.proposal.tree or not self._adaptive or _ends(turn):
                at_once.append(request)
        seconds, warnings = self.drafting.settle(alive, at_once) if self.drafting else (0.0, [])
        for request in alive:
            self._publish(request)
            self.pool.slide(request.seq, request.needed_from)
        return seconds, commit_s, warnings

    @property
    def _adaptive(self) -> bool:
        return self.drafting is not None and self.drafting.policy.adaptive

    def _publish(self, request: Request) -> None:
        """Blocks that are full and that target and drafter have both written."""
        size = self.pool.block_size
        full = min(request.computed, request.observed, len(request.token_ids)) // size
        if self.cache is None or full <= request.published:
            return
        names = request.block_names(full, size)
        for index in range(request.published, full):
            before = names[index - 1] if index else request.root
            tokens = request.token_ids[index * size : (index + 1) * size]
            self.cache.publish(self.pool.block(request.seq, index), names[index], before, tokens)
        request.published = full
        if self.cache.wants_snapshots and request.computed == full * size:
            snapshot = self.target.snapshot(request.seq)
            if snapshot is not None:
                self.cache.keep_snapshot(names[-1], snapshot)

    # -- afterwards ---------------------------------------------------------------------------------------

    def _learn(self, step: Step, drafts: Drafts, rows: int, draft_s: float, verify_s: float, host_s: float) -> None:
        policy = self.drafting.policy if self.drafting else None
        if not isinstance(policy, AdaptiveLengths):
            return
        self.costs.target.learn(rows, verify_s)
        if drafts.block_rows:
            self.costs.draft.learn(drafts.block_rows, draft_s)
        if not step.prompts:
            self.costs.learn_host(host_s, len(step.decodes))
        policy.spent(draft_s + verify_s + host_s)

    def _told(self, turns: Sequence[_Turn], seconds: tuple[float, float, float]) -> list[Event]:
        events: list[Event] = []
        same: dict[tuple[int, int, int, int], RoundStats] = {}  # without drafts all have the same
        for turn in turns:
            request = turn.request
            if turn.events is None:  # a piece of a prompt
                continue
            committed, *finished = turn.events
            if isinstance(committed, RequestFinished):  # the round failed
                events.append(committed)
                continue
            if turn.prompt:
                took = perf_counter() - request.began
                events.append(
                    PrefillFinished(request.request_id, request.prompt_length, took, request.cached, request.index)
                )
                events += turn.events
                continue
            tree, result = turn.proposal.tree, turn.result
            counts = (len(tree), tree.depth, result.accepted if result else 0, turn.produced)
            stats = same.get(counts) or same.setdefault(counts, RoundStats(*counts, *seconds))
            events += [committed, RoundFinished(request.request_id, stats, request.index), *finished]
            if self.drafting is not None and result is not None:
                self.drafting.learn(request, turn.proposal, result)
        return events


def _round_segment(request: Request, tree: Tree) -> Segment:
    """The anchor and the drafted nodes as rows: node i is row i + 1."""
    rows = [request.token_ids[-1], *tree.tokens]
    linear = all(parent == i - 1 for i, parent in enumerate(tree.parents))
    above = None if linear else [[0], *([0, *(n + 1 for n in path)] for path in ancestors(tree))]
    return Segment(request.seq, request.computed, rows, above)


def _logit_rows(work: Pass, turns: Sequence[_Turn]) -> range | list[int]:
    """Rows of the pass whose logits are needed, in the order of the turns."""
    wanted: list[int] = []
    for i, turn in enumerate(turns):
        count = turn.logit_rows.stop - turn.logit_rows.start
        end = work.offsets[i] + turn.rows
        wanted += range(end - count, end)
    return range(len(wanted)) if len(wanted) == len(work.token_ids) else wanted


def _path_rows(result: Walk) -> list[int]:
    return [0, *(node + 1 for node in result.path)]


def _ends(turn: _Turn) -> bool:
    return bool(turn.events) and isinstance(turn.events[-1], RequestFinished)  # type: ignore[index]


def _finished(request: Request, reason: str, text: str = "", detail: str = "") -> RequestFinished:
    return RequestFinished(request.request_id, reason, text, detail, request.index)  # type: ignore[arg-type]
