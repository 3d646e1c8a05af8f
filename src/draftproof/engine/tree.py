"""Draft trees: which continuations to have verified in one target forward.

A block drafter gives one distribution per depth, each independent of the tokens chosen before (DFlash,
arXiv 2602.06036). The probability of a prefix is then the product of its tokens' marginals, and the M
likeliest prefixes form a tree, found best-first (DDTree: Ringel et al., arXiv 2604.12989).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from math import inf

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

ROOT = -1


@dataclass
class Tree:
    """Drafted tokens in insertion order: a parent always precedes its children, the anchor is not a node.

    ``parents``: node index or −1 for the anchor; ``depths``: 1 for the anchor's children; ``logprobs``: the
    drafter's summed log-probability of the path from the anchor to the node (0 where unknown). Not to be
    changed once built: lookups are cached.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def depth(self) -> int:
        """Length of the longest continuation; 0 for an empty tree."""
        return max(self.depths, default=0)

    @cached_property
    def _child_of(self) -> dict[tuple[int, int], int]:
        return {(parent, token): i for i, (parent, token) in enumerate(zip(self.parents, self.tokens, strict=True))}

    def child(self, node: int, token: int) -> int | None:
        """The child of ``node`` (−1: of the anchor) that carries ``token``."""
        return self._child_of.get((node, token))

    def first(self, count: int) -> Tree:
        """The tree of the first ``count`` nodes."""
        return Tree(self.tokens[:count], self.parents[:count], self.depths[:count], self.logprobs[:count])


def chain(tokens: Sequence[int], logprobs: Sequence[float] | None = None) -> Tree:
    """A tree without branches. ``logprobs``: summed along the chain, as in ``Tree``."""
    n = len(tokens)
    return Tree(
        tokens=list(tokens),
        parents=list(range(-1, n - 1)),
        depths=list(range(1, n + 1)),
        logprobs=[0.0] * n if logprobs is None else list(logprobs),
    )


def ancestors(tree: Tree) -> list[list[int]]:
    """Per node the indices from the anchor's child down to the node itself: what it may attend to."""
    paths: list[list[int]] = []
    for i, parent in enumerate(tree.parents):
        paths.append([i] if parent == ROOT else [*paths[parent], i])
    return paths


def build_tree(logits: Tensor, budget: int, max_depth: int | None = None) -> Tree:
    """The ``budget`` likeliest prefixes under independent per-depth distributions ``softmax(logits[d])``.

    ``logits``: [N, V], row 0 is the first drafted token; ``budget``: nodes without the anchor; ``max_depth``:
    at most this many rows are used. Fewer nodes come back only if fewer have a probability above 0. The same
    logits give the same tree: equal tokens of a row rank by id, equal prefixes by the order they came into
    sight.
    """
    if budget < 0 or logits.dim() != 2:
        raise ValueError(f"need logits [N, V] and budget ≥ 0, not {tuple(logits.shape)} and {budget}")
    rows = logits.shape[0] if max_depth is None else min(logits.shape[0], max_depth)
    if rows <= 0 or budget == 0:
        return Tree()
    return _best_first(*_candidates(logits[:rows], budget), budget)


def _candidates(logits: Tensor, budget: int) -> tuple[list[list[int]], list[list[float]]]:
    """Per depth the ids and log-probabilities of the best ``budget`` tokens, as plain lists.

    A node of rank r needs its r better siblings in the tree first, so no rank beyond the budget can be used.
    """
    logits = logits.detach().float()
    norms = torch.logsumexp(logits, dim=1, keepdim=True)
    width = min(budget, logits.shape[1])
    values, ids = logits.topk(min(width + 1, logits.shape[1]), dim=1)  # one more shows ties at the cut
    host_values, host_ids = values.cpu().numpy(), ids.cpu().numpy()
    for row in np.flatnonzero(host_values[:, -1] == host_values[:, width - 1]) if width < ids.shape[1] else ():
        _settle_ties(logits[row], host_values[row], host_ids[row], width)
    host_values, host_ids = host_values[:, :width], host_ids[:, :width]
    order = np.lexsort((host_ids, -host_values), axis=1)  # topk leaves the order of equals open
    logprobs = (host_values - norms.cpu().numpy()).astype(np.float64)
    return (
        np.take_along_axis(host_ids, order, axis=1).tolist(),
        np.take_along_axis(logprobs, order, axis=1).tolist(),
    )


def _settle_ties(row: Tensor, values: npt.NDArray[np.float32], ids: npt.NDArray[np.int64], width: int) -> None:
    """Among tokens equal to the last one kept, keep the lowest ids, not ``topk``'s. Writes to ``ids``."""
    equal = np.flatnonzero(values[:width] == values[width - 1])
    ids[equal] = torch.nonzero(row == float(values[width - 1]))[: len(equal), 0].cpu().numpy()


def _best_first(ids: list[list[int]], logprobs: list[list[float]], budget: int) -> Tree:
    """Pop the likeliest prefix, then bring its next sibling and its first child into sight.

    Both are at most as likely as the popped one, and every prefix comes into sight through such steps, so the
    order of popping is the order of probability. Heap entries: (−log-probability, sequence number, parent,
    depth index, rank); the unique sequence number settles ties and keeps a parent before its child even at
    probability 1.
    """
    tree = Tree()
    width, deepest = len(ids[0]), len(ids) - 1
    heap: list[tuple[float, int, int, int, int]] = []
    pushed = 0

    def push(base: float, parent: int, level: int, rank: int) -> None:
        nonlocal pushed
        score = base + logprobs[level][rank]
        if score > -inf:  # also drops NaN
            heappush(heap, (-score, pushed, parent, level, rank))
            pushed += 1

    push(0.0, ROOT, 0, 0)
    while heap and len(tree.tokens) < budget:
        negative, _, parent, level, rank = heappop(heap)
        node = len(tree.tokens)
        tree.tokens.append(ids[level][rank])
        tree.parents.append(parent)
        tree.depths.append(level + 1)
        tree.logprobs.append(-negative)
        if rank + 1 < width:
            push(0.0 if parent == ROOT else tree.logprobs[parent], parent, level, rank + 1)
        if level < deepest:
            push(-negative, node, level + 1, 0)
    return tree
