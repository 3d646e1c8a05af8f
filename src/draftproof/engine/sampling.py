"""From a row of target logits to a token: logits processors, the truncated distribution, log-probabilities.

Meanings and order are vLLM's and Hugging Face's: logit bias, ``min_tokens``, penalties; then temperature,
``min_p``, ``top_k``, ``top_p``. A row is a float tensor [V] on any device; what comes out lives on the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from draftproof import native
from draftproof.engine.distribution import Distribution
from draftproof.engine.types import SamplingParams, TokenLogprob
from draftproof.errors import DraftproofError, UsageError

__all__ = [
    "Distribution",
    "TokenHistory",
    "distribution",
    "greedy_token",
    "needs_processing",
    "peaks",
    "process_logits",
    "top_logprobs",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_TIE_SLACK = 8  # extra candidates fetched to see ties at a cut without another pass over the vocabulary
_FIRST_TOP_P = 64  # candidates tried first for top-p; most rows need fewer


class TokenHistory:
    """Which tokens a request has seen: the prompt as a set, the output with counts.

    Costs grow with the number of distinct tokens, not with the vocabulary. ``append`` is O(1).
    """

    def __init__(self, prompt_ids: Iterable[int], vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._slot: dict[int, int] = {}
        self._ids: Ints = np.empty(64, dtype=np.int64)
        self._counts: Floats = np.zeros(64, dtype=np.float64)
        for token in prompt_ids:
            self._slot_of(int(token))

    def _slot_of(self, token: int) -> int:
        slot = self._slot.get(token)
        if slot is not None:
            return slot
        if not 0 <= token < self.vocab_size:
            raise ValueError(f"token id {token} is outside the vocabulary of {self.vocab_size}")
        slot = len(self._slot)
        if slot == len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._ids[slot] = token
        self._slot[token] = slot
        return slot

    def append(self, token: int) -> None:
        """Count one committed output token."""
        slot = self._slot_of(token)  # first, since it may replace the arrays
        self._counts[slot] += 1.0

    def count(self, token: int) -> int:
        """How often ``token`` was committed as output."""
        slot = self._slot.get(token)
        return 0 if slot is None else int(self._counts[slot])

    def seen(self, path: Sequence[int] = ()) -> tuple[Ints, Floats]:
        """Distinct ids in prompt, output and ``path``; their output counts, ``path`` being output."""
        n = len(self._slot)
        if not path:
            return self._ids[:n], self._counts[:n]
        counts = self._counts[:n].copy()
        extra: dict[int, float] = {}
        for token in path:
            slot = self._slot.get(token)
            if slot is None:
                extra[token] = extra.get(token, 0.0) + 1.0
            else:
                counts[slot] += 1.0
        ids = np.concatenate([self._ids[:n], np.fromiter(extra, dtype=np.int64, count=len(extra))])
        return ids, np.concatenate([counts, np.fromiter(extra.values(), dtype=np.float64, count=len(extra))])


def needs_processing(params: SamplingParams) -> bool:
    """False when ``process_logits`` would hand back every row as it is."""
    return params.penalised or bool(params.logit_bias) or params.min_tokens > 0


def process_logits(
    row: Tensor,
    params: SamplingParams,
    history: TokenHistory,
    path: Sequence[int],
    stop_ids: Sequence[int],
    generated: int,
) -> Tensor:
    """Apply logit bias, ``min_tokens`` and penalties to one row [V]; never writes to ``row``.

    ``path``: drafted tokens between the committed text and this row; they count as output. ``stop_ids``:
    every id that would end the answer (end-of-sequence and the request's own). ``generated``: committed
    output tokens. Returns ``row`` itself when nothing applies. Raises ``UsageError`` for a biased id outside
    the vocabulary.
    """
    masked = bool(stop_ids) and generated + len(path) < params.min_tokens
    if not (masked or params.logit_bias or params.penalised):
        return row
    row = row.clone()
    if params.logit_bias:
        _add_bias(row, params.logit_bias)
    if masked:
        row[torch.tensor(list(stop_ids), device=row.device)] = -math.inf
    if params.penalised:
        _penalise(row, params, *history.seen(path))
    return row


def _add_bias(row: Tensor, bias: dict[int, float]) -> None:
    ids = list(bias)
    if min(ids) < 0 or max(ids) >= row.shape[0]:
        bad = min(ids) if min(ids) < 0 else max(ids)
        raise UsageError(f"logit_bias names token {bad}: this vocabulary has ids 0 to {row.shape[0] - 1}")
    row[torch.tensor(ids, device=row.device)] += torch.tensor(list(bias.values()), dtype=row.dtype, device=row.device)


def _penalise(row: Tensor, params: SamplingParams, ids: Ints, counts: Floats) -> None:
    """Repetition first, then frequency and presence, as vLLM does. −inf stays −inf."""
    index = torch.from_numpy(ids).to(row.device)
    values = row[index]
    if params.repetition_penalty != 1.0:
        penalty = params.repetition_penalty
        values = torch.where(values > 0, values / penalty, values * penalty)
    if params.frequency_penalty != 0.0 or params.presence_penalty != 0.0:
        n = torch.from_numpy(counts).to(row.device, row.dtype)
        values = values - params.frequency_penalty * n - params.presence_penalty * (n > 0)
    row[index] = values


@dataclass(frozen=True)
class Peaks:
    """Per row of logits: the largest value (NaN if there is one in the row), its token (the lowest id among
    equals), and the log of the sum of exponentials where it was asked for."""

    largest: list[float]
    tokens: list[int]
    lse: list[float]

    def part(self, rows: slice) -> Peaks:
        return Peaks(self.largest[rows], self.tokens[rows], self.lse[rows])

    def checked(self) -> list[int]:
        """The tokens. Raises if a row's largest logit is NaN or infinite: its argmax would mean nothing."""
        for value in self.largest:
            if not math.isfinite(value):
                raise _overflowed(value)
        return self.tokens

    def confidences(self) -> list[float]:
        """Probability of each row's likeliest token; needs ``lse``."""
        return [math.exp(value - lse) for value, lse in zip(self.largest, self.lse, strict=True)]


def peaks(rows: Tensor, *, with_lse: bool = False) -> Peaks:
    """Of logits [R, V], by the compiled kernel where there is one: torch takes many times as long on a CPU."""
    if rows.device.type == "cpu" and rows.dtype == torch.float32 and native.available():
        return Peaks(*native.row_stats(rows.detach().contiguous(), with_lse=with_lse))
    best = rows.detach().cpu().numpy().argmax(axis=-1) if rows.device.type == "cpu" else rows.argmax(dim=-1).cpu()
    tokens = torch.as_tensor(best, device=rows.device)
    lse = torch.logsumexp(rows.float(), dim=-1).tolist() if with_lse else []
    return Peaks(rows.gather(1, tokens[:, None])[:, 0].tolist(), tokens.tolist(), lse)


def greedy_token(row: Tensor) -> int:
    """Id of the largest logit of a row [V]; the lowest id among equals. Raises ``DraftproofError`` if that logit is
    NaN or infinite."""
    return peaks(row[None]).checked()[0]


def _overflowed(largest: float) -> DraftproofError:
    return DraftproofError(
        f"largest logit is {largest}: the model's numbers overflowed; load it in bfloat16 or float32"
    )


def distribution(row: Tensor, params: SamplingParams) -> Distribution:
    """The distribution a row [V] is sampled from under ``params``; a point mass at temperature 0.

    ``min_p`` keeps tokens with at least that share of the largest probability; ``top_k`` keeps the k largest
    and, like vLLM and Hugging Face, everything equal to the k-th; ``top_p``, on what is left and
    renormalised, keeps a token while the mass before it is below ``top_p`` (equals in order of id). Truncated
    results are sorted by falling probability, then id; without truncation they are dense and unsorted, since
    a sort would cost more than everything else. Raises ``DraftproofError`` if the row holds NaN or nothing
    finite.
    """
    if params.greedy:
        return Distribution.point(greedy_token(row))
    row = row.detach().float()
    if row.device.type == "mps":
        row = row.cpu()  # no float64 there
    largest = float(row.max())  # NaN if any entry is
    if not math.isfinite(largest):
        raise _overflowed(largest)
    temperature, min_p, top_p = params.temperature, params.min_p, params.top_p
    if 0 < params.top_k < row.shape[0]:
        values, ids = _top_with_ties(row, params.top_k)
    elif min_p > 0.0:
        values, ids = _sorted(row, _reaching(row, largest + temperature * math.log(min_p)))
    elif top_p < 1.0:
        return _nucleus(row, largest, temperature, top_p)
    else:
        weights = _weights(row, largest, temperature)
        return Distribution(None, weights / weights.sum())
    weights = _weights(torch.from_numpy(values), largest, temperature)
    keep = int(np.count_nonzero(weights >= min_p))
    if top_p < 1.0:
        keep = _nucleus_size(weights[:keep] / weights[:keep].sum(), top_p)
    return _cut(ids, weights, keep)


def _weights(values: Tensor, largest: float, temperature: float) -> Floats:
    """exp((value − largest) / temperature) in float64, on the host."""
    scaled = (values.double() - largest) / temperature
    result: Floats = torch.exp(scaled).cpu().numpy()
    return result


def _cut(ids: Ints, weights: Floats, keep: int) -> Distribution:
    """The first ``keep`` entries, renormalised, without those whose probability is 0."""
    keep = min(keep, int(np.count_nonzero(weights)))  # sorted: zeros are at the end
    return Distribution(ids[:keep], weights[:keep] / weights[:keep].sum())


def _sorted(row: Tensor, ids: Tensor) -> tuple[npt.NDArray[np.float32], Ints]:
    """Values and ids on the host, by falling value, then rising id."""
    values = row[ids].cpu().numpy()
    host = ids.cpu().numpy()
    order = np.lexsort((host, -values))
    return values[order], host[order]


def _reaching(row: Tensor, bound: float) -> Tensor:
    """Ids whose logit reaches ``bound``, and a hair more: the caller settles the edge in float64."""
    return torch.nonzero(row >= bound - 1e-5 * max(1.0, abs(bound))).squeeze(1)


def _top_with_ties(row: Tensor, k: int) -> tuple[npt.NDArray[np.float32], Ints]:
    """The k largest of a row and all that equal the k-th, sorted."""
    n = min(k + _TIE_SLACK, row.shape[0])
    values, ids = _sorted(row, row.topk(n, sorted=False).indices)
    kth = float(values[k - 1])
    if n < row.shape[0] and values[-1] == kth:  # the ties may go on beyond what was fetched
        values, ids = _sorted(row, torch.nonzero(row >= kth).squeeze(1))
    keep = int(np.count_nonzero(values >= kth))
    return values[:keep], ids[:keep]


def _nucleus_size(probs: Floats, top_p: float) -> int:
    """How many leading entries of sorted ``probs`` have less than ``top_p`` before them; at least 1."""
    return 1 + int(np.count_nonzero(np.cumsum(probs)[:-1] < top_p))


def _nucleus(row: Tensor, largest: float, temperature: float, top_p: float) -> Distribution:
    """Top-p alone: fetch a growing number of candidates, since a full sort is rarely needed."""
    vocab = row.shape[0]
    total = float(torch.exp((row.double() - largest) / temperature).sum())
    size = _FIRST_TOP_P
    while size * 8 <= vocab:
        values, ids = _sorted(row, row.topk(size, sorted=False).indices)
        weights = _weights(torch.from_numpy(values), largest, temperature)
        keep = _nucleus_size(weights / total, top_p)
        # Usable only if the cut lies inside and no equal of the last kept token may be missing.
        if keep < size and values[-1] < values[keep - 1]:
            return _cut(ids, weights, keep)
        size *= 8
    ordered = row.sort(descending=True, stable=True)
    weights = _weights(ordered.values, largest, temperature)
    return _cut(ordered.indices.cpu().numpy(), weights, _nucleus_size(weights / total, top_p))


def top_logprobs(row: Tensor, token: int, k: int) -> TokenLogprob:
    """Log-probability of ``token`` and the ``k`` likeliest tokens under a raw row [V], in float32.

    Raw means before bias, penalties and temperature. Alternatives are sorted by falling value, then id.
    """
    row = row.detach().float()
    norm = float(torch.logsumexp(row, dim=0))
    top: tuple[tuple[int, float], ...] = ()
    if k > 0:
        values, ids = _top_with_ties(row, min(k, row.shape[0]))
        top = tuple((int(i), float(v) - norm) for i, v in zip(ids[:k], values[:k], strict=True))
    return TokenLogprob(token, float(row[token]) - norm, top)
