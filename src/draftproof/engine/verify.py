"""Deciding which drafted tokens stand. Pure functions: no model, no cache, no clock.

Two ways, both leaving the law of the output exactly the target's:

* ``walk``: the target picks its own token at each node (greedy or sampled) and the draft counts only where it
  guessed that token. Works for chains and trees, and with ``RequestRng`` gives the very text of plain
  decoding.
* ``reject``: speculative sampling (Leviathan et al., ICML 2023; Chen et al., arXiv 2302.01318). Accepts a
  drafted token with probability min(1, p/q), which is more often, but the text differs from plain sampling's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from draftproof.engine.distribution import Distribution
from draftproof.engine.rng import Purpose, RequestRng
from draftproof.engine.sampling import distribution, greedy_token, peaks
from draftproof.engine.tree import ROOT, Tree
from draftproof.engine.types import SamplingParams

DraftMethod = Literal["greedy", "probabilistic"]


@dataclass(frozen=True)
class Walk:
    """What one round decided. ``path``: accepted nodes of the tree (chain: 0, 1, …), from the anchor down;
    ``tokens``: their tokens; ``bonus``: the token after them, always the target's own.
    """

    path: list[int]
    tokens: list[int]
    bonus: int

    @property
    def accepted(self) -> int:
        return len(self.tokens)

    @property
    def committed(self) -> list[int]:
        """The round's tokens in order: accepted drafts, then the bonus. Never empty."""
        return [*self.tokens, self.bonus]


def walk(tree: Tree, pick: Callable[[int, Sequence[int]], int]) -> Walk:
    """Follow the target's own tokens down the tree until one was not drafted; that one is the bonus.

    ``pick(row, path_tokens)`` gives the target's token after the anchor and ``path_tokens``; ``row`` is 0 for
    the anchor and i + 1 for node i. It is called once per committed token, in order. A picker that samples
    must use the number of position ``position + len(path_tokens)`` for the text to equal plain sampling's.
    """
    node = ROOT
    path: list[int] = []
    tokens: list[int] = []
    while True:
        token = pick(node + 1, tokens)
        child = tree.child(node, token)
        if child is None:
            return Walk(path, tokens, token)
        node = child
        path.append(child)
        tokens.append(token)


def reject(
    tokens: Sequence[int],
    q: Sequence[Distribution] | None,
    p: Callable[[int, Sequence[int]], Distribution],
    rng: RequestRng,
    position: int,
) -> Walk:
    """Chain rejection sampling: accept x ~ q iff u·q(x) < p(x), else draw from normalised max(p − q, 0).

    ``tokens``: the drafted chain, its first at sequence index ``position``; ``q``: the distributions it was
    really drawn from, one per token, or None if it was chosen deterministically (then q is a point mass).
    ``p(row, path)``: the target's distribution after the anchor and ``path``; asked only for rows reached.
    With nothing drafted or all accepted the bonus is drawn from p with plain sampling's number.
    Raises ``ValueError`` if a token cannot have come from its q: the law would silently change.
    """
    if q is not None and len(q) != len(tokens):
        raise ValueError(f"{len(tokens)} drafted tokens, but {len(q)} distributions")
    accepted: list[int] = []
    for i, token in enumerate(tokens):
        target = p(i, accepted)
        draft = Distribution.point(token) if q is None else q[i]
        q_token = draft.prob_of(token)
        if q_token <= 0.0:
            raise ValueError(f"drafted token {token} at {position + i} has probability 0 under its own q")
        if rng.uniform(position + i, Purpose.ACCEPT) * q_token < target.prob_of(token):
            accepted.append(token)
            continue
        bonus = target.residual(draft).sample(rng.uniform(position + i, Purpose.RESIDUAL))
        return Walk(list(range(i)), accepted, bonus)
    n = len(tokens)
    return Walk(list(range(n)), accepted, p(n, accepted).sample(rng.uniform(position + n, Purpose.TARGET)))


def draft_tokens(
    logits: Tensor,
    params: SamplingParams,
    rng: RequestRng,
    position: int,
    method: DraftMethod,
    mask: Callable[[int, Sequence[int]], Tensor | None] | None = None,
) -> tuple[list[int], list[Distribution] | None]:
    """Choose a chain from a drafter's block logits [N, V]; row i drafts sequence index ``position + i``.

    Returns the tokens and, if they were sampled, the distributions they came from (``reject`` needs these
    very ones). "greedy" takes the likeliest token of each row; "probabilistic" samples under the request's
    temperature, ``min_p``, ``top_k`` and ``top_p``. Any proposal is exact; a closer one is accepted more
    often. ``mask(row, path)``: the row [V] to sample from after ``path``, or None to end the chain there; it must
    not look at what is drawn later.
    """
    if method == "greedy" or params.greedy:
        return peaks(logits).tokens, None
    dists: list[Distribution] = []
    tokens: list[int] = []
    for i, row in enumerate(logits):
        allowed = row if mask is None else mask(i, tokens)
        if allowed is None:
            break
        dists.append(distribution(allowed, params))
        tokens.append(dists[-1].sample(rng.uniform(position + i, Purpose.DRAFT)))
    return tokens, dists


def picker(
    rows: Callable[[int, Sequence[int]], Tensor], params: SamplingParams, rng: RequestRng, position: int
) -> Callable[[int, Sequence[int]], int]:
    """A ``pick`` for ``walk`` from processed target rows: greedy at temperature 0, else sampled.

    ``rows(row, path)`` gives the logits [V] after all processors; ``position``: index of the next token.
    """

    def pick(row: int, path: Sequence[int]) -> int:
        logits = rows(row, path)
        if params.greedy:
            return greedy_token(logits)
        return distribution(logits, params).sample(rng.uniform(position + len(path), Purpose.TARGET))

    return pick
