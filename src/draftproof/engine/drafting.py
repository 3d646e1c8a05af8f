"""The drafter's part of a round: what it is asked for, what is taken into verification, what it learns afterwards.

A drafter can fail; the text must not. Whatever goes wrong here makes the request go on without drafts, with a
warning event.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import torch
from torch import Tensor

from draftproof import compat
from draftproof.drafters.base import Draft, Drafter, DraftRequest
from draftproof.engine.acceptance import EngineAcceptance
from draftproof.engine.backlog import join
from draftproof.engine.constraint import allowed_prefix, constrained_rows, greedy_chain, prune
from draftproof.engine.policy import AdaptiveLengths, Batch, Choice, FixedLengths
from draftproof.engine.pool import KVPool
from draftproof.engine.request import Request
from draftproof.engine.sampling import Distribution, peaks
from draftproof.engine.sizes import MOST_WAITING
from draftproof.engine.tree import ROOT, Tree, build_tree, chain
from draftproof.engine.types import DraftingStopped, Event, LengthChosen, Method
from draftproof.engine.verify import DraftMethod, Walk, draft_tokens
from draftproof.errors import DraftproofError
from draftproof.targets.base import Target

# Committed rows that may wait for their context K/V while nothing is drafted: in all, and of one request.
_WAITING_ROWS = 96
_ENOUGH_ROWS = 32  # rows of one pass that are not worth keeping back
_SPARE_NODES = 4  # a tree of so many times the nodes is made where a constraint will take some away


@dataclass(frozen=True)
class Proposal:
    """What one request takes into verification. ``q`` is set when the chain was sampled. ``confidence[i]``: the
    drafter's probability of node i given its parent (empty: unknown); ``whole``: everything that was drafted, of
    which ``tree`` is the part worth verifying."""

    tree: Tree = field(default_factory=Tree)
    q: list[Distribution] | None = None
    confidence: Sequence[float] = ()
    whole: Tree | None = None

    def cut(self, length: int) -> Proposal:
        if length >= len(self.tree):
            return self
        tree = self.tree.first(length)
        return replace(self, tree=tree, q=None if self.q is None else self.q[:length], whole=self.tree)


@dataclass
class Drafts:
    """One round's proposals, in the order of its requests."""

    proposals: list[Proposal]
    choice: Choice
    block_rows: int = 0
    seconds: float = 0.0
    events: list[Event] = field(default_factory=list)


class Drafting:
    """Asks ``drafter`` for what ``policy`` chose, and keeps its context K/V up to date."""

    def __init__(
        self,
        drafter: Drafter,
        target: Target,
        pool: KVPool,
        policy: FixedLengths | AdaptiveLengths,
        acceptance: EngineAcceptance,
        *,
        method: Method,
        tree_budget: int,
        draft_method: DraftMethod | None,
    ) -> None:
        self.drafter = drafter
        self.policy = policy
        self._acceptance = acceptance
        self._pool = pool
        self._device = target.info.device
        self._vocab = target.info.vocab_size
        self._method = method
        self._tree_budget = tree_budget
        self._draft_method = draft_method

    # -- before verification ------------------------------------------------------------------------------

    def expected_rows(self, requests: Sequence[Request]) -> int:
        """Rows that drafts for these requests will want to add to the next pass."""
        if self.policy.adaptive:
            return sum(r.drafted_last for r in requests)
        return sum(map(self._most, requests))

    def draft(self, requests: Sequence[Request], prompt_rows: int, draft_rows: int) -> Drafts:
        """A proposal per request, empty where nothing is drafted."""
        began = perf_counter()
        batch = Batch(requests, [self._most(r) for r in requests], prompt_rows, draft_rows)
        choice = self.policy.choose(batch)
        lengths = [self._reserve(r, n) for r, n in zip(requests, choice.lengths, strict=True)]
        drafts = Drafts([Proposal()] * len(requests), choice, events=self._tell(requests, choice))
        if not any(lengths):
            return drafts
        self._flush([r for r, n in zip(requests, lengths, strict=True) if n], drafts.events)
        depths = [0 if r.no_drafts else self._depth(r, n) for r, n in zip(requests, lengths, strict=True)]
        asked = [DraftRequest(r.seq, r.token_ids, depth) for r, depth in zip(requests, depths, strict=True)]
        answers = self._propose(requests, asked, drafts.events)
        compat.synchronize(self._device)
        drafts.block_rows = sum(depth + 1 for depth in depths if depth)
        drafts.proposals = [
            self._proposal(r, d, n, drafts.events) for r, d, n in zip(requests, answers, lengths, strict=True)
        ]
        if isinstance(self.policy, AdaptiveLengths):
            worth = [self._worth(r, p) for r, p in zip(requests, drafts.proposals, strict=True)]
            cuts = self.policy.trim(batch, choice, worth)
            drafts.proposals = [p.cut(n) if p.confidence else p for p, n in zip(drafts.proposals, cuts, strict=True)]
        drafts.seconds = perf_counter() - began
        return drafts

    def _most(self, request: Request) -> int:
        """Ranks that may be drafted for a request: a single remaining token comes from the target anyway."""
        if request.no_drafts or request.remaining <= 1:
            return 0
        depth = min(self.drafter.num_draft_tokens, request.remaining, self._positions_left(request))
        return depth if self._method != "tree" or depth <= 0 else self._tree_budget

    def _depth(self, request: Request, length: int) -> int:
        if length == 0 or self._method != "tree":
            return length
        return min(self.drafter.num_draft_tokens, request.remaining, self._positions_left(request))

    def _positions_left(self, request: Request) -> int:
        """Tokens the drafter can still place before its own last position."""
        limit = self.drafter.max_position
        return request.remaining if limit is None else max(limit - len(request.token_ids), 0)

    def _reserve(self, request: Request, length: int) -> int:
        """Slots for the block and the drafted nodes, as far as there are any: drafts never pre-empt."""
        if length == 0:
            return 0
        start = request.computed
        rows = 1 + max(length, self._depth(request, length))
        room = self._pool.room(request.seq, start)
        if room < rows:
            if self._method == "tree":  # its block is as deep as ever
                return 0
            rows = room
        if rows < 2 or not self._pool.reserve(request.seq, start, start + rows):
            return 0
        return min(length, rows - 1)

    def _tell(self, requests: Sequence[Request], choice: Choice) -> list[Event]:
        """Events for requests whose length changes; a single try to learn something is not a change."""
        events: list[Event] = []
        if choice.plain_test:
            return events
        for i, (request, length) in enumerate(zip(requests, choice.lengths, strict=True)):
            if length != request.told_length and i != choice.exploring:
                request.told_length = length
                reason = request.no_drafts or choice.reason
                events.append(LengthChosen(request.request_id, length, reason, request.index))
        return events

    def _propose(
        self, requests: Sequence[Request], asked: Sequence[DraftRequest], events: list[Event]
    ) -> Sequence[Draft]:
        """All at once; if that fails, one by one, so that only those that fail lose their drafts."""
        try:
            answers = self.drafter.propose(self._pool, asked)
            if len(answers) != len(asked):
                raise DraftproofError(f"{len(answers)} drafts for {len(asked)} requests")
            return answers
        except Exception as error:  # whatever a drafter does must not end a request
            if len(requests) == 1:
                _stop(requests[0], error, events)
                return [Draft()]
        return [
            answer
            for request, each in zip(requests, asked, strict=True)
            for answer in (self._propose([request], [each], events) if each.count else [Draft()])
        ]

    def _proposal(self, request: Request, draft: Draft, length: int, events: list[Event]) -> Proposal:
        try:
            return self._build(request, draft, length)
        except Exception as error:  # numbers that overflowed, a wrong shape: no draft, but no wrong token either
            _stop(request, error, events)
            return Proposal()

    def _build(self, request: Request, draft: Draft, length: int) -> Proposal:
        if draft.logits is None:
            if any(not 0 <= token < self._vocab for token in draft.tokens):
                raise DraftproofError(f"drafted tokens {list(draft.tokens)} are outside the vocabulary")
            tokens = list(draft.tokens[:length])
            if request.constraint is not None:
                tokens = allowed_prefix(tokens, request.constraint, request.stop_ids)
            return Proposal(chain(tokens))
        method = "greedy" if request.params.greedy else self._draft_method_of(request)
        sampled = method != "greedy" and self._method != "tree"
        logits, names = self._rows(draft, whole=sampled or request.constraint is not None)
        if self._method == "tree":
            return self._build_tree(request, logits, length, names)
        logits = logits[:length]
        top = peaks(logits, with_lse=self.policy.adaptive)
        tokens, confidence = top.checked(), top.confidences() if self.policy.adaptive else []
        if sampled:
            mask = constrained_rows(logits, request.constraint, request.stop_ids) if request.constraint else None
            # The cut by confidence must not know the tokens drawn, so the constraint does not enter into it.
            tokens, q = draft_tokens(logits, request.params, request.rng, len(request.token_ids), method, mask)
            return Proposal(chain(tokens), q, confidence[: len(tokens)])
        if request.constraint is not None:
            tokens, confidence = greedy_chain(logits, top, request.constraint, request.stop_ids)
        return Proposal(chain(_named(tokens, names)), confidence=confidence)

    def _rows(self, draft: Draft, *, whole: bool) -> tuple[Tensor, Tensor | None]:
        """A draft's logits and what their columns stand for (None: the ids themselves, always if ``whole``)."""
        logits, names = draft.logits, draft.vocabulary
        columns = self._vocab if names is None else len(names)
        if logits is None or logits.dim() != 2 or logits.shape[1] != columns:
            got = None if logits is None else list(logits.shape)
            raise DraftproofError(f"draft logits have shape {got}, not [tokens, {columns}]")
        if names is None or not whole:
            return logits, names
        wide = draft.wide(self._vocab)
        assert wide is not None
        return wide, None

    def _build_tree(self, request: Request, logits: Tensor, length: int, names: Tensor | None) -> Proposal:
        if request.constraint is None:
            tree = build_tree(logits, length)
            tree = replace(tree, tokens=_named(tree.tokens, names))
        else:  # some of its nodes will go, so there are more to begin with
            tree = prune(build_tree(logits, _SPARE_NODES * length), request.constraint, request.stop_ids).first(length)
        return Proposal(tree, confidence=_tree_confidence(tree) if self.policy.adaptive else ())

    def _draft_method_of(self, request: Request) -> DraftMethod:
        """A seed must give one text however long the drafts are: then the target's own draws decide."""
        if self._draft_method is not None:
            return self._draft_method
        return "probabilistic" if request.params.seed is None or not self.policy.adaptive else "greedy"

    def _worth(self, request: Request, proposal: Proposal) -> list[float]:
        """Probability, by rank, that a node is accepted: its path's confidences as they turned out so far."""
        calibrated = self._acceptance.confidence[request.params.greedy]
        worth: list[float] = []
        for parent, confidence in zip(proposal.tree.parents, proposal.confidence, strict=False):
            worth.append(calibrated(confidence) * (1.0 if parent == ROOT else worth[parent]))
        return worth

    # -- after verification -------------------------------------------------------------------------------

    def learn(self, request: Request, proposal: Proposal, result: Walk) -> None:
        """Count which ranks were accepted; what was not verified counts as the bonus token or confidence tell."""
        if request.acceptance is None or not (proposal.tree or proposal.whole):
            return
        calibrated = self._acceptance.confidence[request.params.greedy]
        accepted, last = set(result.path), result.path[-1] if result.path else ROOT
        whole = proposal.whole or proposal.tree
        outcomes: list[float] = []
        for i, (token, parent) in enumerate(zip(whole.tokens, whole.parents, strict=True)):
            verified = i < len(proposal.tree)
            if verified:
                outcomes.append(float(i in accepted))
                if proposal.confidence and (parent == ROOT or parent in accepted):
                    calibrated.learn(proposal.confidence[i], i in accepted)
            elif parent == last:
                known = proposal.q is None  # a rejected draw's replacement says nothing about the draft
                outcomes.append(float(token == result.bonus) if known else calibrated(proposal.confidence[i]))
            else:
                above = outcomes[parent] if parent >= len(proposal.tree) else 0.0
                outcomes.append(above * calibrated(proposal.confidence[i]) if above else 0.0)
        self._acceptance.learn(request.acceptance, outcomes)

    def take_in(self, request: Request, rows: Sequence[int], taps: Tensor | None) -> None:
        """``rows`` of the pass are the request's next positions; their context K/V may wait (``settle``)."""
        if request.no_drafts:
            return
        if taps is None:
            request.observed = request.computed
        else:
            request.backlog.append((request.computed - len(rows), rows, taps))

    def settle(self, requests: Sequence[Request], at_once: Sequence[Request]) -> tuple[float, list[Event]]:
        """Make context K/V of ``at_once``, and of all ``requests`` when enough rows wait: many cost hardly more
        than one. Returns the seconds it took."""
        began = perf_counter()
        events: list[Event] = []
        waiting = [r.computed - r.observed for r in requests if not r.no_drafts]
        fresh = all(len(r.backlog) <= 1 for r in requests)  # of this pass alone, so nothing needs to be joined
        due = sum(waiting) >= (_ENOUGH_ROWS if fresh else _WAITING_ROWS) or max(waiting, default=0) >= MOST_WAITING
        self._flush(requests if due else at_once, events)
        compat.synchronize(self._device)
        return perf_counter() - began, events

    def _flush(self, requests: Sequence[Request], events: list[Event]) -> None:
        behind = [r for r in requests if r.backlog]
        if not behind:
            return
        try:
            committed, taps = join([(r.seq, *piece) for r in behind for piece in r.backlog])
            self.drafter.observe(self._pool, committed, taps)
        except Exception as error:
            if len(behind) > 1:  # one by one, so that only those that fail lose their drafts
                for request in behind:
                    self._flush([request], events)
                return
            _stop(behind[0], error, events)  # its context K/V has a gap now, so it cannot draft any more
        for request in behind:
            request.backlog.clear()
            if not request.no_drafts:
                request.observed = request.computed


def _stop(request: Request, error: Exception, events: list[Event]) -> None:
    """No more drafts for this request."""
    detail = f"the drafter failed ({error or type(error).__name__}); going on without drafts"
    request.no_drafts = detail
    request.backlog.clear()
    events.append(DraftingStopped(request.request_id, detail, request.index))


def _named(columns: list[int], names: Tensor | None) -> list[int]:
    """Token ids of columns."""
    if names is None:
        return columns
    ids: list[int] = names[torch.tensor(columns, dtype=torch.long, device=names.device)].tolist()
    return ids


def _tree_confidence(tree: Tree) -> list[float]:
    """Per node its probability given its parent, from the path's summed log-probabilities."""
    return [
        math.exp(score - (0.0 if parent == ROOT else tree.logprobs[parent]))
        for score, parent in zip(tree.logprobs, tree.parents, strict=True)
    ]
