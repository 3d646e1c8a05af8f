"""Position-weighted cross-entropy of a block's drafted slots, and D-PACE, whose weights follow the drafter's own
chance of getting that far."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

LossKind = Literal["dpace", "decay"]


def decay_weights(slots: int, gamma: float) -> Tensor:
    """[slots]: exp(-(k - 1) / gamma) for slot k = 1 …; a later slot counts only if the ones before stood."""
    return torch.exp(-torch.arange(slots).float() / gamma)


def dpace_weights(probability: Tensor, alpha: float) -> Tensor:
    """[..., slots] from the labels' probabilities: the smoothed chance that a slot is reached and everything that
    hangs on it, i.e. the suffix sums of the prefix products. Detached."""
    smooth = ((1.0 - alpha) * probability + alpha).detach()
    return smooth.cumprod(-1).flip(-1).cumsum(-1).flip(-1)


def block_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    kind: LossKind,
    alpha: float = 0.5,
    gamma: float = 4.0,
    teacher: Tensor | None = None,
    soft: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """(scalar loss, hits [..., slots] bool). ``logits`` [..., slots, V]; ``labels`` [..., slots], -1 where there is
    none: that slot and all after it do not count, since nothing could be accepted there. ``teacher`` [..., slots, V]:
    the target's logits; its distribution makes up the share ``soft`` of what a slot should say."""
    known = (labels >= 0).cummin(-1).values
    safe = labels.clamp(min=0)
    wide = logits.float()
    chances = F.log_softmax(wide, dim=-1)
    losses = -chances.gather(-1, safe[..., None])[..., 0]
    if kind == "dpace":
        weights = dpace_weights(torch.exp(-losses) * known, alpha)
    else:
        weights = decay_weights(labels.shape[-1], gamma).to(losses.device).expand_as(losses)
    if teacher is not None and soft > 0:
        wanted = torch.softmax(teacher.float(), dim=-1)
        losses = (1.0 - soft) * losses - soft * (wanted * chances).sum(-1)
    weights = weights * known
    with torch.no_grad():  # a maximum is found much faster than its place
        hits = (wide.gather(-1, safe[..., None])[..., 0] >= wide.amax(-1)) & known
    return (losses * weights).sum() / weights.sum().clamp(min=1e-6), hits


def head_loss(
    hidden: Tensor,
    head: Tensor,
    labels: Tensor,
    *,
    kind: LossKind,
    alpha: float = 0.5,
    gamma: float = 4.0,
    states: Tensor | None = None,
    soft: float = 0.0,
    blocks_at_once: int = 8,
) -> tuple[Tensor, Tensor]:
    """``block_loss`` of ``hidden @ head.T`` without ever holding all logits: a few blocks at a time go through the
    head, and their gradient is made while they are still in cache. ``hidden`` and ``states`` [..., slots, H], whose
    logits through the same ``head`` [V, H] are the teacher's; both stay as they are. Returns (loss, hits [...,
    slots])."""
    weigh = _Weigh(kind, alpha, gamma)
    slots, width = hidden.shape[-2:]
    teacher = None if states is None or soft == 0 else states.reshape(-1, slots, width).to(head.dtype)
    loss, hits = _HeadLoss.apply(
        hidden.reshape(-1, slots, width), head, labels.view(-1, slots), weigh, teacher, soft, blocks_at_once
    )
    return loss, hits.view(labels.shape)


class _Weigh:
    """Weights of slots from the labels' log-probabilities, whichever loss was asked for."""

    def __init__(self, kind: LossKind, alpha: float, gamma: float) -> None:
        self.kind, self.alpha, self.gamma = kind, alpha, gamma

    def __call__(self, losses: Tensor, known: Tensor) -> Tensor:
        if self.kind == "dpace":
            return dpace_weights(torch.exp(-losses) * known, self.alpha) * known
        return decay_weights(losses.shape[-1], self.gamma).to(losses.device) * known


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        labels: Tensor,
        weigh: _Weigh,
        teacher: Tensor | None,
        soft: float,
        at_once: int,
    ) -> Any:
        known = (labels >= 0).cummin(-1).values
        gradient = torch.empty_like(hidden)
        hits = torch.empty_like(known)
        total = weight = hidden.new_zeros((), dtype=torch.float32)
        for begin in range(0, len(hidden), at_once):
            part = slice(begin, begin + at_once)
            ids = labels[part].clamp(min=0)[..., None]
            chances = _logits(hidden[part], head)
            best, own = chances.amax(-1), chances.gather(-1, ids)[..., 0]
            hits[part] = (own >= best) & known[part]
            said = own
            if teacher is not None:
                wanted = _logits(teacher[part], head).softmax(-1)
                said = torch.lerp(own, torch.linalg.vecdot(wanted, chances), soft)
            chances.sub_(best[..., None]).exp_()
            mass = chances.sum(-1)
            weights = weigh(mass.log() + best - own, known[part])
            total, weight = total + ((mass.log() + best - said) * weights).sum(), weight + weights.sum()
            # d loss / d logits: the drafter's distribution minus what was wanted, times the slot's weight
            chances.mul_((weights / mass)[..., None])
            hard = weights
            if teacher is not None:
                chances.sub_(wanted.mul_((soft * weights)[..., None]))
                hard = (1.0 - soft) * weights
            chances.scatter_add_(-1, ids, -hard[..., None])
            gradient[part] = (chances.to(head.dtype).flatten(0, 1) @ head).view(hidden[part].shape).to(gradient.dtype)
        weight = weight.clamp(min=1e-6)
        ctx.save_for_backward(gradient, weight)
        ctx.mark_non_differentiable(hits)
        return total / weight, hits

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _hits: Any) -> Any:
        gradient, weight = ctx.saved_tensors
        return gradient * (upstream / weight).to(gradient.dtype), None, None, None, None, None, None


def _logits(rows: Tensor, head: Tensor) -> Tensor:
    """rows [n, slots, H] → [n, slots, V] float32."""
    return (rows.flatten(0, 1) @ head.T).float().view(*rows.shape[:2], -1)
