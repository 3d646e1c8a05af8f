"""Where two greedy answers part, and whether rounding is enough to explain it.

Two passes of different shapes add the same products in different orders, so their logits differ by rounding.
When two tokens' logits are closer than that, either may win, and no answer is wrong. When they are further
apart, something else decided, and that is an error. ``rounding_bound`` says where the line is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from draftproof.engine.engine import Engine
from draftproof.engine.memory import PoolSizes
from draftproof.engine.plan import Segment, build_pass
from draftproof.engine.pool import KVPool
from draftproof.errors import UsageError
from draftproof.targets.base import Target

LogitsOf = Callable[[Sequence[int]], Tensor]
Verdict = Literal["rounding", "error"]

SUMS_ROUND_TOO = 4.0  # see rounding_bound
_ROWS = 512  # rows per pass
_BLOCK = 16


@dataclass(frozen=True)
class Divergence:
    """The first place where an answer is not the expected one. ``None`` as a token: that answer had ended.

    ``gap``: how far the lower of the two tokens lies below the best logit there, in one pass over everything
    before; ``bound``: what rounding may shift it by. Both None where the answers differ in length only.
    """

    position: int
    expected: int | None
    got: int | None
    expected_logit: float | None
    got_logit: float | None
    gap: float | None
    bound: float | None
    verdict: Verdict
    explanation: str

    def __str__(self) -> str:
        return self.explanation

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def first_divergence(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Index of the first token that differs, the shorter length if one goes on, None when they are equal."""
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return None if len(a) == len(b) else min(len(a), len(b))


def rounding_bound(logits: Tensor, dtype: torch.dtype, depth: int) -> float:
    """How far the difference of two of these logits [V] may move when a pass is shaped differently.

    A · √depth · ε · max |logit|. Each of ``depth`` layers rounds the residual stream once more, by about one
    unit in the last place of ``dtype``; independent errors add up like a random walk, so √depth of them reach
    the logits, whose own last place is ε · max |logit|. A is 1 for 16-bit types, whose sums are kept in
    float32, and 4 for float32, where the sums round as well. Measured on SmolLM2-135M (30 layers, √30 = 5.5)
    in plain torch, passes of one row against passes of many: the gap of the two best logits moved by at most
    2.4 · ε · max |logit| in bfloat16 (bound: 5.5) and 9.0 in float32 (bound: 22).
    """
    scale = float(logits.detach().abs().max())
    sums = SUMS_ROUND_TOO if torch.finfo(dtype).bits >= 32 else 1.0
    return sums * math.sqrt(depth) * torch.finfo(dtype).eps * scale


def explain_difference(
    source: Engine | LogitsOf,
    prompt: str | Sequence[int],
    expected: Sequence[int],
    got: Sequence[int],
    dtype: torch.dtype | None = None,
    *,
    depth: int | None = None,
) -> Divergence:
    """Judge the first difference of two greedy answers to ``prompt``.

    ``source``: an engine (whose target is run once over everything before the difference; nothing else may be
    running on it), or a function from token ids to the next token's logits [V], which needs ``dtype`` and
    ``depth`` (layers), since nothing else tells them. ValueError if the answers are equal.
    """
    position = first_divergence(expected, got)
    if position is None:
        raise ValueError("the answers are equal: there is nothing to explain")
    ids = source.encode(prompt) if isinstance(source, Engine) else _token_ids(prompt)
    want = expected[position] if position < len(expected) else None
    have = got[position] if position < len(got) else None
    if want is None or have is None:
        return _length_difference(position, want, have)
    if isinstance(source, Engine):
        info = source.target.info
        dtype, depth = dtype or info.dtype, depth or info.num_layers
        logits_of = target_logits(source.target)
    else:
        logits_of = source
    if dtype is None or depth is None:
        raise UsageError("explain_difference: a function for logits needs dtype and depth beside it")
    row = logits_of([*ids, *expected[:position]]).float()
    return judge(row, position, want, have, rounding_bound(row, dtype, depth), dtype)


def judge(row: Tensor, position: int, expected: int, got: int, bound: float, dtype: torch.dtype) -> Divergence:
    """The verdict on two different tokens, given the logits [V] they were chosen from."""
    high, low = float(row[expected]), float(row[got])
    gap = float(row.max()) - min(high, low)  # both must be near the best, not only near each other
    kind = str(dtype).removeprefix("torch.")
    verdict: Verdict = "rounding" if gap <= bound else "error"
    if verdict == "rounding":
        said = f"tokens {expected} and {got} tie within {kind} rounding ({gap:.3g} apart, bound {bound:.3g})"
    else:
        said = (
            f"not rounding: token {got} instead of {expected}, {gap:.3g} below the best logit, "
            f"where {kind} rounding explains {bound:.3g}"
        )
    return Divergence(position, expected, got, high, low, gap, bound, verdict, said)


def target_logits(target: Target) -> LogitsOf:
    """A function from token ids to the next token's logits [V], by passes over a K/V pool of its own."""

    def logits_of(ids: Sequence[int]) -> Tensor:
        info = target.info
        pool = KVPool(
            target.kv_shapes,
            (),
            sizes=PoolSizes.whole(-(-len(ids) // _BLOCK), target.kv_shapes),
            block_size=_BLOCK,
            max_seqs=1,
            max_len=len(ids),
            dtype=info.dtype,
            device=info.device,
        )
        seq = pool.acquire()
        pool.reserve(seq, 0, len(ids))
        row = torch.empty(0)
        try:
            for begin in range(0, len(ids), _ROWS):
                piece = ids[begin : begin + _ROWS]
                work = build_pass(pool, [Segment(seq, begin, piece)])
                logits, _ = target.forward(work, pool.target_kv, logits=[len(piece) - 1])
                target.commit(seq, len(piece), len(piece))
                row = logits[0]
        finally:
            target.release(seq)
        return row

    return logits_of


def _token_ids(prompt: str | Sequence[int]) -> list[int]:
    if isinstance(prompt, str):
        raise UsageError("explain_difference: without an engine the prompt must be token ids")
    return [int(i) for i in prompt]


def _length_difference(position: int, expected: int | None, got: int | None) -> Divergence:
    who = "the expected answer" if expected is None else "this answer"
    said = f"not rounding: {who} ends after {position} tokens where the other goes on"
    return Divergence(position, expected, got, None, None, None, None, "error", said)
