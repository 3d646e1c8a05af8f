"""Position-weighted cross-entropy of a block's drafted slots, and D-PACE, whose weights follow the drafter's own
chance of getting that far."""

from __future__ import annotations

from typing import Literal

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
