"""A whole training run in a folder: answers, training with saving and measuring on the way, export.

OUT/answers/      recorded answers (shards and manifest)
OUT/state/        checkpoints: last.pt, previous.pt, stable.pt (before the rate began to fall)
OUT/drafter/      the newest export, replaced at every evaluation
OUT/history.jsonl losses and measurements
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftproof import compat
from draftproof.errors import MismatchError, UsageError
from draftproof.targets.huggingface import target_info
from draftproof.train.answers import AnswerOptions, AnswerRun, Progress, cache_header, folder_of, recording_engine
from draftproof.train.batches import AnswerSet, Recorded
from draftproof.train.checkpoint import LAST, load_state, save_state
from draftproof.train.config import TrainConfig
from draftproof.train.evaluation import Measured, drafting_engine, measure
from draftproof.train.export import export_drafter
from draftproof.train.module import DrafterModule
from draftproof.train.record import Totals, training_record
from draftproof.train.shards import ShardWriter, no_space
from draftproof.train.sources import Source, TrainPrompt
from draftproof.train.start import initial_weights, make_spec
from draftproof.train.throughput import step_flops
from draftproof.train.tokens import retap
from draftproof.train.trainer import StepResult, Trainer, Vocabulary

log = logging.getLogger("draftproof")
REPORT_EVERY = 20


@dataclass
class TrainRun:
    """``model``, ``tokenizer``: the target. ``report`` is called with one line's worth of plain data."""

    target: str
    model: Any
    tokenizer: Any
    out: Path
    config: TrainConfig
    answer_options: AnswerOptions
    device: torch.device
    sources: Sequence[Source] = ()
    report: Callable[[dict[str, Any]], None] = lambda line: None
    totals: Totals = field(default_factory=Totals)
    began: float = 0.0  # seconds and progress when this process took over
    first_progress: float = 0.0

    def __post_init__(self) -> None:
        self.spec = make_spec(self.config, self.model)
        self.embedding = self.model.get_input_embeddings().weight.detach()
        head = self.model.get_output_embeddings()
        self.head = head.weight.detach()
        if self.head.shape[0] != self.spec.vocab_size:
            raise MismatchError(
                f"{self.target}: its head has {self.head.shape[0]} rows, its embedding {self.spec.vocab_size}; "
                "such targets cannot be trained for yet"
            )

    # -- answers ------------------------------------------------------------------------------------------

    def writer(self) -> ShardWriter:
        header = cache_header(self.target, self.recorded, self.spec.target_width)
        return ShardWriter(folder_of(self.out), header)

    @property
    def recorded(self) -> tuple[int, ...]:
        """Hidden states kept while answering."""
        return self.answer_options.taps or self.spec.tap_layers

    def answer(self, prompts: Iterable[TrainPrompt], total: int, minutes: float | None = None) -> Progress:
        """Let the target answer what is not answered yet of ``total`` prompts, no longer than ``minutes``."""
        writer = self.writer()
        engine, collector = recording_engine(self.model, self.tokenizer, self.recorded, self.answer_options.batch)
        run = AnswerRun(engine, collector, writer, self.answer_options)
        before, limit = len(writer.done), float("inf") if minutes is None else 60 * minutes

        def report(progress: Progress) -> None:
            handled = progress.answers + progress.skipped
            share = max(handled / max(total - before, 1), progress.seconds / limit)
            left = progress.seconds * (1.0 - share) / share / 60 if 0 < share < 1 else 0.0
            self.report({"kind": "answers", **vars(progress), "progress": min(share, 1.0), "minutes_left": left})

        return run.run(prompts, until=lambda: run.progress.seconds > limit, report=report)

    def take_answers(self, file: Path) -> None:
        """Answers recorded elsewhere (see ``tokens.pack``): their taps are computed here."""
        said = {"kind": "taps"}
        retap(
            file,
            self.model,
            self.recorded,
            self.writer(),
            report=lambda n, of: self.report(said | {"done": n, "of": of}),
        )

    # -- training -----------------------------------------------------------------------------------------

    def train(self, *, max_minutes: float | None = None, resume: bool = False) -> Path:
        """Train to the last step or minute; returns the folder of the exported drafter."""
        state = self._earlier(resume)
        columns, final = self._columns()
        answers = AnswerSet(
            folder_of(self.out), columns, final=final, skip=self.config.held_out, greedy=self.config.greedy_only
        )
        keep = self._vocabulary(answers, state)
        module = DrafterModule(self.spec, self.embedding)
        if state is None:
            initial_weights(module, self.config, self.model)
        trainer = Trainer(module, Vocabulary(self.head.to(self.device), keep), answers, self.config, self.device)
        if state is not None:
            trainer.load(state["trainer"])
            self.totals = Totals(**state["totals"])
        self.began = self.totals.seconds
        if max_minutes is not None:
            trainer.share = lambda: (self.totals.seconds - self.began) / (60.0 * max_minutes)
        self.first_progress = trainer.progress()
        self._loop(trainer, keep)
        self._save(trainer, keep)
        return self._export(trainer, keep, self._measure(trainer, keep))

    def _earlier(self, resume: bool) -> dict[str, Any] | None:
        folder = self.out / "state"
        state = load_state(folder)
        if state is None:
            return None
        if not resume:
            raise UsageError(f"{folder / LAST}: a run is there already; add --resume to go on, or name another --out")
        self.config.same_run(state["config"])
        return state

    def _columns(self) -> tuple[list[slice], slice | None]:
        """Where the drafter's taps stand among the recorded ones, and the target's last hidden state if wanted."""
        header = json.loads((folder_of(self.out) / "cache.json").read_text())
        width, recorded = header["hidden_size"], header["taps"]
        final = [self.spec.num_target_layers] if self.config.soft > 0 else []
        missing = [t for t in [*self.spec.tap_layers, *final] if t not in recorded]
        if missing:
            raise MismatchError(
                f"{folder_of(self.out)}: recorded with taps {recorded}, {missing} are needed too; record them again "
                "with answers.taps"
            )
        places = {t: slice(i * width, (i + 1) * width) for i, t in enumerate(recorded)}
        return [places[t] for t in self.spec.tap_layers], places[final[0]] if final else None

    def _vocabulary(self, answers: AnswerSet, state: dict[str, Any] | None) -> Tensor | None:
        """The draft vocabulary: most frequent in the answers, ties by id; a resumed run keeps its own."""
        if state is not None:
            kept: Tensor | None = state["keep"]
            return kept
        size = self.spec.draft_vocab_size
        if size is None:
            return None
        counts = answers.token_counts(self.spec.vocab_size)
        for token in target_info(self.model, compat.text_config(self.model.config)).eos_token_ids:
            counts[token] = counts.max() + 1
        return torch.sort(counts, descending=True, stable=True).indices[:size].sort().values

    def _loop(self, trainer: Trainer, keep: Tensor | None) -> None:
        config, last, window = self.config, time.monotonic(), []
        stable = config.decay_share >= 1.0 or trainer.progress() >= 1.0 - config.decay_share
        for result in trainer.run(config.steps):
            now = time.monotonic()
            self.totals.add(now - last, result, self._flops(trainer))
            last = now
            window.append(result)
            if len(window) == REPORT_EVERY:
                self._note(trainer, window)
                window = []
            if not stable and trainer.progress() >= 1.0 - config.decay_share:
                stable = True
                self._save(trainer, keep, stable=True)
            if trainer.step % config.save_every == 0:
                self._save(trainer, keep)
            if trainer.step % config.eval_every == 0 and config.eval_prompts:
                self._export(trainer, keep, self._measure(trainer, keep))
            if trainer.progress() >= 1.0:
                return
            last = time.monotonic()

    def _flops(self, trainer: Trainer) -> float:
        config, rows = self.config, trainer.last_rows
        blocks = config.sequences * config.anchors
        head = self.spec.draft_vocab_size
        size = self.spec.vocab_size if head is None else head + config.negatives
        return step_flops(
            self.spec, context=trainer.last_context, slots=blocks * rows, drafted=blocks * (rows - 1), head_rows=size
        )

    def _note(self, trainer: Trainer, window: Sequence[StepResult]) -> None:
        count = len(window)
        self._history(
            {
                "kind": "train",
                "step": trainer.step,
                "of": self.config.steps,
                "loss": sum(r.loss for r in window) / count,
                "hits": sum(r.hits for r in window) / count,
                "norm": max(r.norm for r in window),
                "lr": window[-1].lr,
                "minutes": self.totals.seconds / 60,
                "minutes_left": self._left(trainer.progress()),
                "progress": trainer.progress(),
                "draft_tokens_per_s": self.totals.draft_tokens / max(self.totals.seconds, 1e-9),
            }
        )

    def _left(self, progress: float) -> float:
        """Minutes to the end at the pace of this process."""
        done = max(progress - self.first_progress, 1e-9)
        return (self.totals.seconds - self.began) * (1.0 - progress) / done / 60

    def _history(self, line: dict[str, Any]) -> None:
        self.report(line)
        file = self.out / "history.jsonl"
        try:
            with file.open("a") as handle:
                handle.write(json.dumps(line) + "\n")
        except OSError as error:
            raise no_space(file, error) from error

    def _save(self, trainer: Trainer, keep: Tensor | None, *, stable: bool = False) -> None:
        state = {
            "trainer": trainer.state(),
            "config": self.config.to_dict(),
            "keep": keep,
            "totals": vars(self.totals),
            "shards": trainer.answers.shards,
        }
        file = save_state(self.out / "state", state)
        if stable:
            shutil.copyfile(file, file.with_name("stable.pt"))

    # -- what it is worth ---------------------------------------------------------------------------------

    def held_out(self) -> list[tuple[str, list[int]]]:
        """Prompts of answers that training never sees."""
        if not self.config.held_out:
            return []
        everything = AnswerSet(folder_of(self.out), [])
        kept: list[Recorded] = [s for s in everything.sequences if s.index % self.config.held_out == 0]
        return [(f"prompt {s.index}", s.tokens[: s.prompt_length].tolist()) for s in kept[: self.config.eval_prompts]]

    def _measure(self, trainer: Trainer, keep: Tensor | None) -> Measured | None:
        prompts = self.held_out()
        if not prompts:
            return None
        folder = export_drafter(
            self.out / "state" / "measured", self.spec, trainer.weights(), keep=keep, head=self.head
        )
        engine = drafting_engine(
            self.model, self.tokenizer, folder, max_num_seqs=self.answer_options.batch, length_policy="fixed"
        )
        found = measure(engine, prompts, self.config.eval_tokens)
        counts = found.counts
        self._history(
            {
                "kind": "evaluation",
                "step": trainer.step,
                "tau": counts.tau,
                "tau_ci95": counts.tau_ci95(),
                "rates": [p.rate for p in counts.positions()],
                "rounds": counts.rounds,
            }
        )
        return found

    def _export(self, trainer: Trainer, keep: Tensor | None, measured: Measured | None) -> Path:
        metrics: dict[str, Any] = {}
        if measured is not None:
            how = f"greedy, up to {self.config.eval_tokens} tokens, loops left out"
            metrics = {"how": how, "workloads": {"held-out prompts": measured.to_dict()}}
        return export_drafter(
            self.out / "drafter",
            self.spec,
            trainer.weights(),
            keep=keep,
            head=self.head,
            provenance=training_record(
                self.target,
                self.config,
                self.sources,
                folder_of(self.out),
                self.totals,
                trainer.step,
                metrics,
                self.device,
            ),
        )

    def _record(self, trainer: Trainer, metrics: dict[str, Any]) -> dict[str, Any]:
        folder = folder_of(self.out)
        return training_record(
            self.target, self.config, self.sources, folder, self.totals, trainer.step, metrics, self.device
        )
