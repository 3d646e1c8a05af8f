"""The round loop: draft, verify, commit — for however many requests run at once.

Verification is exact: greedy output equals the target's own token for token; sampled output follows the
target's distribution (rejection sampling with the drafter's true q for chains, Leviathan et al. and Chen et al.
2023; the target's own draw walked down the tree otherwise, as in DDTree, arXiv 2604.12989).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from torch import Tensor

from draftproof import compat
from draftproof.drafters.base import CommittedRows, Draft, Drafter, DraftRequest
from draftproof.engine.plan import Pass, Segment, build_pass
from draftproof.engine.pool import KVPool
from draftproof.engine.request import Request
from draftproof.engine.sampling import (
    Distribution,
    check_finite,
    distribution,
    greedy_tokens,
    needs_processing,
    process_logits,
    top_logprobs,
)
from draftproof.engine.tree import Tree, ancestors, build_tree, chain
from draftproof.engine.types import (
    Event,
    Method,
    PrefillFinished,
    RequestFinished,
    RoundFinished,
    RoundStats,
    TokenLogprob,
    TokensCommitted,
)
from draftproof.engine.verify import DraftMethod, Walk, draft_tokens, picker, reject, walk
from draftproof.errors import DraftproofError
from draftproof.targets.base import Target

PREFILL_ROWS = 512  # prompt rows per pass: enough to keep the matrix units busy, few enough to stay in cache


@dataclass(frozen=True)
class Proposal:
    """What one request takes into verification. ``q`` is set when the chain was sampled."""

    tree: Tree
    q: list[Distribution] | None = None


class RoundLoop:
    """Runs prefills and rounds over one pool. ``drafter`` None: every round is one plain token."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        pool: KVPool,
        *,
        method: Method,
        tree_budget: int,
        draft_method: DraftMethod,
    ) -> None:
        self.target = target
        self.drafter = drafter
        self.pool = pool
        self.method = method
        self.tree_budget = tree_budget
        self.draft_method = draft_method
        self._taps = tuple(drafter.tap_layers) if drafter else ()

    def slots_ahead(self) -> int:
        """Most rows beyond the committed tokens that one round puts into the pool."""
        if self.drafter is None:
            return 1
        tree = self.tree_budget if self.method == "tree" else 0
        return 1 + max(self.drafter.num_draft_tokens, tree)

    def round(self, batch: Sequence[Request]) -> list[Event]:
        """One draft → verify → commit over ``batch``."""
        began = perf_counter()
        proposals, draft_s = self._draft(batch)
        segments = [self._segment(r, p.tree) for r, p in zip(batch, proposals, strict=True)]
        work = build_pass(self.pool, segments)
        verify_began = perf_counter()
        logits, taps = self.target.forward(
            work, self.pool.target_kv, taps=self._taps, logits=range(len(work.token_ids))
        )
        compat.synchronize(self.target.info.device)
        verify_s = perf_counter() - verify_began
        rows = [logits[work.rows(i)] for i in range(len(batch))]
        walks = [self._guarded_verify(*each) for each in zip(batch, proposals, rows, strict=True)]
        results = [self._commit(*each) for each in zip(batch, walks, rows, strict=True)]
        draft_s += self._keep(work, batch, walks, taps)
        host_s = perf_counter() - began - draft_s - verify_s
        stats = [
            RoundStats(len(p.tree), p.tree.depth, w.accepted if w else 0, len(c.token_ids), draft_s, verify_s, host_s)
            for p, w, (c, _) in zip(proposals, walks, results, strict=True)
        ]
        return [e for s, (c, finished) in zip(stats, results, strict=True) for e in _events(c, s, finished)]

    def prefill(self, request: Request) -> list[Event]:
        """Run the prompt in pieces; the last row yields the first token, which no drafter had a part in."""
        began = perf_counter()
        prompt = request.token_ids[request.computed :]
        logits: Tensor | None = None
        for begin in range(0, len(prompt), PREFILL_ROWS):
            piece = prompt[begin : begin + PREFILL_ROWS]
            last = begin + len(piece) == len(prompt)
            work = build_pass(self.pool, [Segment(request.seq, request.computed, piece)])
            wanted = [len(piece) - 1] if last else []
            logits, taps = self.target.forward(work, self.pool.target_kv, taps=self._taps, logits=wanted)
            self.target.commit(request.seq, len(piece), len(piece))
            if self.drafter is not None:
                rows = CommittedRows(request.seq, range(len(piece)), request.computed)
                self.drafter.observe(self.pool, [rows], taps)
            request.computed += len(piece)
        assert logits is not None
        committed, finished = self._commit(request, self._verify(request, Proposal(Tree()), logits), logits)
        ready = PrefillFinished(request.request_id, request.prompt_length, perf_counter() - began)
        return [ready, committed, *finished]

    # -- draft --------------------------------------------------------------------------------------------

    def _draft(self, batch: Sequence[Request]) -> tuple[list[Proposal], float]:
        if self.drafter is None:
            return [Proposal(Tree())] * len(batch), 0.0
        began = perf_counter()
        most = self.drafter.num_draft_tokens
        # A single remaining token comes from the target anyway.
        counts = [min(most, r.remaining, self._positions_left(r)) if r.remaining > 1 else 0 for r in batch]
        asked = [DraftRequest(r.seq, r.token_ids, n) for r, n in zip(batch, counts, strict=True)]
        drafts = self.drafter.propose(self.pool, asked)
        compat.synchronize(self.target.info.device)
        proposals = [self._proposal(r, d) for r, d in zip(batch, drafts, strict=True)]
        return proposals, perf_counter() - began

    def _positions_left(self, request: Request) -> int:
        """Tokens the drafter can still place before its own last position."""
        assert self.drafter is not None
        limit = self.drafter.max_position
        return request.remaining if limit is None else max(limit - len(request.token_ids), 0)

    def _proposal(self, request: Request, draft: Draft) -> Proposal:
        if draft.logits is None:
            return Proposal(chain(draft.tokens))
        if self.method == "tree":
            return Proposal(build_tree(draft.logits, self.tree_budget))
        tokens, q = draft_tokens(draft.logits, request.params, request.rng, len(request.token_ids), self.draft_method)
        return Proposal(chain(tokens), q)

    def _segment(self, request: Request, tree: Tree) -> Segment:
        """The anchor and the drafted nodes as rows: node i is row i + 1."""
        rows = [request.token_ids[-1], *tree.tokens]
        linear = all(parent == i - 1 for i, parent in enumerate(tree.parents))
        above = None if linear else [[0], *([0, *(n + 1 for n in path)] for path in ancestors(tree))]
        return Segment(request.seq, request.computed, rows, above)

    # -- verify -------------------------------------------------------------------------------------------

    def _guarded_verify(self, request: Request, proposal: Proposal, logits: Tensor) -> Walk | None:
        """None if this request's numbers cannot be decided on; the others of the batch are not touched by that."""
        try:
            return self._verify(request, proposal, logits)
        except DraftproofError as error:
            request.failure = str(error)
            return None

    def _verify(self, request: Request, proposal: Proposal, logits: Tensor) -> Walk:
        """``logits`` [1 + nodes, V]: row 0 after the anchor, row i + 1 after node i."""
        params, position = request.params, len(request.token_ids)

        def row_logits(row: int, path: Sequence[int]) -> Tensor:
            if not needs_processing(params):
                return logits[row]
            assert request.history is not None
            return process_logits(
                logits[row], params, request.history, path, sorted(request.stop_ids), request.generated
            )

        if params.greedy and not needs_processing(params):
            best = greedy_tokens(logits)
            check_finite(logits, best)
            return walk(proposal.tree, lambda row, path: best[row])
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

    def _commit(self, request: Request, result: Walk | None, logits: Tensor) -> tuple[TokensCommitted, list[Event]]:
        if result is None:
            nothing = TokensCommitted(request.request_id, (), "", 0)
            return nothing, [RequestFinished(request.request_id, "error", detail=request.failure)]
        kept = request.commit(result.committed)
        logprobs: tuple[TokenLogprob, ...] | None = None
        if request.params.logprobs is not None:
            rows = [0, *(node + 1 for node in result.path)]
            logprobs = tuple(
                top_logprobs(logits[row], token, request.params.logprobs)
                for row, token in zip(rows, kept.token_ids, strict=False)
            )
        accepted = min(result.accepted, len(kept.token_ids))
        committed = TokensCommitted(request.request_id, tuple(kept.token_ids), kept.text, accepted, logprobs)
        if kept.reason is None:
            return committed, []
        # A stop string ends the text inside the detokenizer; otherwise what it still holds back is due now.
        rest = request.detokenizer.flush() if request.detokenizer else ""
        return committed, [RequestFinished(request.request_id, kept.reason, rest, kept.detail)]

    def _keep(self, work: Pass, batch: Sequence[Request], walks: Sequence[Walk | None], taps: Tensor | None) -> float:
        """Make the accepted rows the sequence's next positions, in the pool and for the drafter. Returns the
        seconds the drafter took to make context K/V: a part of the drafter's pass."""
        committed = []
        for i, (request, result) in enumerate(zip(batch, walks, strict=True)):
            if result is None:
                continue
            rows = [0, *(node + 1 for node in result.path)]
            start = work.segments[i].start
            self.pool.compact(request.seq, start, rows)
            self.target.commit(request.seq, len(work.segments[i]), len(rows))
            request.computed = start + len(rows)
            committed.append(CommittedRows(request.seq, [work.offsets[i] + row for row in rows], start))
        began = perf_counter()
        if self.drafter is not None:
            self.drafter.observe(self.pool, committed, taps)
            compat.synchronize(self.target.info.device)
        return perf_counter() - began


def _events(committed: TokensCommitted, stats: RoundStats, finished: list[Event]) -> list[Event]:
    if not committed.token_ids:  # the round failed
        return finished
    return [committed, RoundFinished(committed.request_id, stats), *finished]
