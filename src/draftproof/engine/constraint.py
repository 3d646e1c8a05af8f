"""Constraints on the text: which tokens may come next, decided by whoever asks for an answer.

A grammar, a schema or anything else with a state. The engine knows no grammar library: it masks the target's
logits after every committed and every drafted token, and lets the drafter propose nothing that is not allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from torch import Tensor

from draftproof.engine.sampling import Peaks, greedy_token
from draftproof.engine.tree import ROOT, Tree, ancestors


class Constraint(Protocol):
    """One answer's state. ``path``: tokens that may follow the committed ones; asking about a path changes nothing,
    so a rejected draft leaves no trace. Errors are raised as ``DraftproofError`` and end the answer.

    Tokens that end an answer are allowed like any other, but the constraint is never told of them.
    """

    def allowed(self, path: Sequence[int]) -> Tensor:
        """Bool [V] on the CPU: the tokens that may come after ``path``. At least one must be true."""
        ...

    def accepts(self, path: Sequence[int], token: int) -> bool:
        """Is ``token`` one of them? The same answer as ``allowed``, without computing all others."""
        ...

    def advance(self, token: int) -> None:
        """``token`` is committed."""
        ...


ConstraintMaker = Callable[[], Constraint]


def masked(row: Tensor, constraint: Constraint, path: Sequence[int], stop_ids: Collection[int]) -> Tensor:
    """A row [V] of logits after ``path`` in which what is not allowed is −inf; never writes to ``row``. After the end
    of the answer anything goes: nobody will read it."""
    if any(token in stop_ids for token in path):
        return row
    return row.masked_fill(~constraint.allowed(path).to(row.device), -math.inf)


def greedy_picker(
    logits: Tensor, best: Sequence[int], constraint: Constraint, stop_ids: Collection[int]
) -> Callable[[int, Sequence[int]], int]:
    """A ``pick`` for ``walk``: the likeliest allowed token. ``best``: each row's likeliest of all, which is nearly
    always allowed, so that no mask is needed."""

    def pick(row: int, path: Sequence[int]) -> int:
        if any(token in stop_ids for token in path) or constraint.accepts(path, best[row]):
            return best[row]
        return greedy_token(masked(logits[row], constraint, path, stop_ids))

    return pick


def allowed_prefix(tokens: Sequence[int], constraint: Constraint, stop_ids: Collection[int]) -> list[int]:
    """The drafted chain up to the first token that is not allowed, or to the end of the answer."""
    path: list[int] = []
    for token in tokens:
        if not constraint.accepts(path, token):
            break
        path.append(token)
        if token in stop_ids:
            break
    return path


def greedy_chain(
    logits: Tensor, top: Peaks, constraint: Constraint, stop_ids: Collection[int]
) -> tuple[list[int], list[float]]:
    """The likeliest allowed token of each row of a draft [N, V] after those before it, and its probability (where
    ``top`` has ``lse``). Ends where nothing that the drafter knows is allowed."""
    path: list[int] = []
    confidence: list[float] = []
    for i, token in enumerate(top.checked()):
        lse = top.lse[i] if top.lse else math.nan
        value = top.largest[i]
        if not constraint.accepts(path, token):
            row = masked(logits[i], constraint, path, ())
            value = float(row.max())
            if value == -math.inf:  # a drafter may know few of the target's tokens, and none that may come here
                break
            token = greedy_token(row)
            lse = float(row.float().logsumexp(0))
        path.append(token)
        confidence.append(math.exp(value - lse))
        if token in stop_ids:
            break
    return path, confidence if top.lse else []


def constrained_rows(
    logits: Tensor, constraint: Constraint, stop_ids: Collection[int]
) -> Callable[[int, Sequence[int]], Tensor | None]:
    """A ``mask`` for ``draft_tokens``: rows of a sampled draft without what is not allowed; None where nothing is left
    to draw from."""

    def rows(row: int, path: Sequence[int]) -> Tensor | None:
        if path and path[-1] in stop_ids:
            return None
        left = masked(logits[row], constraint, path, ())
        return left if float(left.max()) > -math.inf else None

    return rows


def prune(tree: Tree, constraint: Constraint, stop_ids: Collection[int]) -> Tree:
    """The tree without the nodes that are not allowed and what hangs on them."""
    kept: dict[int, int] = {ROOT: ROOT}
    out = Tree()
    for node, path in enumerate(ancestors(tree)):
        parent, token = tree.parents[node], tree.tokens[node]
        above = [tree.tokens[i] for i in path[:-1]]
        if parent not in kept or (above and above[-1] in stop_ids) or not constraint.accepts(above, token):
            continue
        kept[node] = len(out)
        out.tokens.append(token)
        out.parents.append(kept[parent])
        out.depths.append(tree.depths[node])
        out.logprobs.append(tree.logprobs[node])
    return out
