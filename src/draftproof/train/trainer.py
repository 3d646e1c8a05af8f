"""The training loop: blocks in, steps out; nothing of files, engines or terminals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from draftproof.errors import DraftproofError
from draftproof.train.batches import AnswerSet, Labels, make_blocks
from draftproof.train.config import TrainConfig
from draftproof.train.losses import head_loss
from draftproof.train.module import Blocks, DrafterModule


class DivergedError(DraftproofError):
    """The loss or a gradient is no number; what was saved before is good."""


@dataclass(frozen=True)
class StepResult:
    """``hits``: mean number of leading right slots per block (teacher-forced, greedy): a stand-in for accepted
    tokens that costs nothing. ``drafted``: slots with a label."""

    step: int
    loss: float
    hits: float
    norm: float
    lr: float
    blocks: int
    drafted: int


class Vocabulary:
    """Which tokens compete in the loss: the draft vocabulary, plus other tokens drawn anew each step."""

    def __init__(self, head: Tensor, keep: Tensor | None) -> None:
        self.head = head  # [V, H]
        self.keep = keep  # [draft_vocab] target ids, ascending; None: all
        size = head.shape[0]
        self._place = torch.full((size + 1,), -1, dtype=torch.long)  # last entry: no label
        if keep is not None:
            self._place[keep] = torch.arange(len(keep))
            others = torch.ones(size, dtype=torch.bool)
            others[keep] = False
            self._others = others.nonzero().flatten()
            self._kept_head = head[keep.to(head.device)].contiguous()

    def at(self, labels: Tensor, negatives: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(head rows [C, H], labels as indices into them; -1 where there is none or it cannot be drafted)."""
        if self.keep is None:
            return self.head, labels
        count = min(negatives, len(self._others))
        drawn = self._others[torch.randperm(len(self._others), generator=generator)[:count]]
        rows = torch.cat([self._kept_head, self.head[drawn.to(self.head.device)]])
        return rows, self._place[labels]


class Trainer:
    """Owns module, optimiser and averaged weights. ``state`` and ``load`` are everything a resumed run needs."""

    def __init__(
        self,
        module: DrafterModule,
        vocabulary: Vocabulary,
        answers: AnswerSet,
        config: TrainConfig,
        device: torch.device,
    ) -> None:
        self.module, self.vocabulary, self.answers = module.to(device), vocabulary, answers
        self.config, self.device = config, device
        self.step = 0
        self.share: Callable[[], float] = lambda: 0.0  # of the time that was granted, if it was
        self.last_rows = self.last_context = 0  # of the last batch: block length, context tokens with padding
        matrices = [p for p in module.parameters() if p.dim() >= 2]
        vectors = [p for p in module.parameters() if p.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
            lr=config.lr,
            betas=(0.9, config.beta2),
            fused=device.type in ("cpu", "cuda"),
        )
        self.average = {n: p.detach().clone() for n, p in module.named_parameters()} if config.ema else {}

    def run(self, until: int) -> Iterator[StepResult]:
        """Steps up to number ``until``; a loss that is no number raises before it touches a weight."""
        while self.step < until:
            yield self._one()

    def _one(self) -> StepResult:
        config, step = self.config, self.step
        blocks, labels = self._batch(step)
        generator = torch.Generator().manual_seed(config.seed * 1_000_003 + step)
        head, ids = self.vocabulary.at(labels.ids, config.negatives, generator)
        lr = self._rate(step)
        self.module.train()
        loss, hits = self._loss(blocks, head, Labels(ids.to(self.device), labels.states))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), config.clip)
        self._check(float(loss.detach()), float(norm), step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self._follow()
        self.step += 1
        count = int(labels.ids.shape[0] * labels.ids.shape[1])
        accepted = float(hits.long().cumprod(-1).sum()) / count
        return StepResult(step, float(loss.detach()), accepted, float(norm), lr, count, int((labels.ids >= 0).sum()))

    def _batch(self, step: int) -> tuple[Blocks, Labels]:
        config = self.config
        rows = config.rows[step % len(config.rows)]
        chosen = self.answers.chosen(step, config.sequences, config.seed)
        blocks, labels = make_blocks(
            self.answers, chosen, anchors=config.anchors, rows=rows, key=f"{config.seed}:{step}"
        )
        self.last_rows, self.last_context = rows, blocks.taps.shape[0] * blocks.taps.shape[1]
        moved = Blocks(blocks.taps.to(self.device), blocks.anchors.to(self.device), blocks.tokens.to(self.device), rows)
        return moved, labels

    def _loss(self, blocks: Blocks, head: Tensor, labels: Labels) -> tuple[Tensor, Tensor]:
        config = self.config
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=config.autocast):
            hidden = self.module(blocks)
        kind = torch.bfloat16 if config.autocast else hidden.dtype
        hidden, head = hidden.to(kind), head.to(kind)
        states = None if labels.states is None else labels.states.to(self.device)
        return head_loss(
            hidden,
            head,
            labels.ids,
            kind=config.loss,
            alpha=config.alpha,
            gamma=config.gamma,
            states=states,
            soft=config.soft,
        )

    def _check(self, loss: float, norm: float, step: int) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            return
        indices = [s.index for s in self.answers.chosen(step, self.config.sequences, self.config.seed)]
        raise DivergedError(
            f"step {step}: loss={loss}, gradient norm={norm} on the answers to prompts {indices}; no weight was "
            "changed by it and the last checkpoint is good: resume with a lower lr in another folder, or look at them"
        )

    def _rate(self, step: int) -> float:
        """Linear warm-up, level, then half a cosine over the last ``decay_share`` of the steps."""
        config = self.config
        if step < config.warmup:
            return config.lr * (step + 1) / config.warmup
        fallen = min(max(1.0 - (1.0 - self.progress()) / config.decay_share, 0.0), 1.0)
        return config.lr * (config.lr_end + (1.0 - config.lr_end) * 0.5 * (1.0 + math.cos(math.pi * fallen)))

    def progress(self) -> float:
        """0 … 1: the larger of the shares of steps and of granted time that are used up."""
        return min(max(self.step / self.config.steps, self.share()), 1.0)

    def _follow(self) -> None:
        """Averaged weights: less noise than the last step's, above all while the rate is still high."""
        if not self.average:
            return
        decay = min(self.config.ema, (1 + self.step) / (10 + self.step))
        mine = [p.detach() for p in self.module.parameters()]
        torch._foreach_lerp_(list(self.average.values()), mine, 1.0 - decay)

    def weights(self) -> dict[str, Tensor]:
        """The weights to evaluate and export: averaged if averaging is on."""
        return self.average or {n: p.detach() for n, p in self.module.named_parameters()}

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.step = int(state["step"])
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average = {n: t.to(self.device) for n, t in state["average"].items()}
