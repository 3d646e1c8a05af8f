"""The target answers the prompts itself, many at once, and its hidden states are kept on the way.

Taking the taps while the answers are decoded costs nothing; running the finished answers through the target again
would cost as much as decoding them did. What is on disk is whole: a kill loses the answers of the open shard only.
"""

from __future__ import annotations

import hashlib
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftproof.bench.workloads import WorkloadPrompt, encode
from draftproof.engine.engine import Engine
from draftproof.engine.types import Event, RequestFinished, SamplingParams, TokensCommitted
from draftproof.errors import UsageError
from draftproof.train.loops import WINDOW, loop_start
from draftproof.train.shards import Answered, ShardWriter
from draftproof.train.sources import TrainPrompt
from draftproof.train.taps import TapCollector

log = logging.getLogger("draftproof")
LOOK_EVERY = 16  # tokens between two looks for a loop
SHORTEST = 4  # answers of fewer tokens teach nothing


@dataclass(frozen=True)
class AnswerOptions:
    """``sampled``: share of prompts answered at ``temperature``, the rest greedily. ``shard_tokens``: tokens (prompt
    and answer) that are written together. ``max_prompt``: longer prompts are left out. ``taps``: which hidden states
    to keep, empty: those the drafter reads; more of them let other drafters be trained on the same answers."""

    max_tokens: int = 256
    max_prompt: int = 1024
    sampled: float = 0.3
    temperature: float = 0.7
    batch: int = 32
    shard_tokens: int = 8192
    seed: int = 0
    taps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        rules = [
            ("max_tokens", self.max_tokens, self.max_tokens >= SHORTEST, f"at least {SHORTEST}"),
            ("max_prompt", self.max_prompt, self.max_prompt >= 1, "at least 1"),
            ("sampled", self.sampled, 0 <= self.sampled <= 1, "between 0 and 1"),
            ("temperature", self.temperature, self.temperature > 0, "above 0"),
            ("batch", self.batch, self.batch >= 1, "at least 1"),
            ("shard_tokens", self.shard_tokens, self.shard_tokens >= 1, "at least 1"),
        ]
        for name, value, good, allowed in rules:
            if not good:
                raise UsageError(f"answers.{name}={value!r} is out of range: it must be {allowed}")


@dataclass
class Progress:
    """What has been done so far, for whoever shows it."""

    answers: int = 0
    tokens: int = 0  # of answers, kept
    cut: int = 0  # of loops, removed
    looping: int = 0
    skipped: int = 0
    seconds: float = 0.0

    @property
    def share_cut(self) -> float:
        """Share of decoded answer tokens that were loops. Decoding stops when one shows, so more were avoided."""
        return self.cut / max(self.tokens + self.cut, 1)


@dataclass
class _Running:
    prompt: TrainPrompt
    ids: list[int]
    params: SamplingParams
    answer: list[int] = field(default_factory=list)
    seat: int = -1
    looped: int | None = None


def recording_engine(model: Any, tokenizer: Any, taps: Sequence[int], batch: int) -> tuple[Engine, TapCollector]:
    """An engine on a loaded model whose passes leave their taps (``output_hidden_states`` indices) behind."""
    collector = TapCollector(taps)
    # A prefix from the cache would come without its taps, and there is nothing to draft.
    options = {"max_num_seqs": batch, "enable_prefix_caching": False, "length_policy": "fixed"}
    return Engine.from_model(model, tokenizer, drafter=lambda target: collector, **options), collector


class AnswerRun:
    """Feeds prompts to an engine and writes what comes out. ``run`` may be stopped by ``until`` between steps."""

    def __init__(self, engine: Engine, collector: TapCollector, writer: ShardWriter, options: AnswerOptions) -> None:
        self.engine, self.collector, self.writer, self.options = engine, collector, writer, options
        self.progress = Progress()
        self._running: dict[str, _Running] = {}
        self._kept: list[Answered] = []

    def run(
        self,
        prompts: Iterable[TrainPrompt],
        *,
        until: Callable[[], bool] = lambda: False,
        report: Callable[[Progress], None] = lambda progress: None,
    ) -> Progress:
        """Answer all prompts that the cache does not hold yet."""
        done = self.writer.done
        waiting = (p for p in prompts if p.index not in done)
        began = time.monotonic()
        while not until():
            self._admit(waiting)
            if not self._running:
                break
            self._seat()
            for event in self.engine.step():
                self._take(event)
            self._stop_loops()
            self.progress.seconds = time.monotonic() - began
            if sum(len(a.ids) for a in self._kept) >= self.options.shard_tokens:
                self._flush()
                report(self.progress)
        for name in list(self._running):
            self.engine.abort(name)
        self._running.clear()
        self._flush()
        report(self.progress)
        return self.progress

    def _admit(self, waiting: Iterator[TrainPrompt]) -> None:
        while len(self._running) < self.options.batch:
            prompt = next(waiting, None)
            if prompt is None:
                return
            ids = encode(self.engine, WorkloadPrompt(prompt.source, prompt.messages))
            if len(ids) > self.options.max_prompt:
                self.progress.skipped += 1
                continue
            params = answer_params(self.options, prompt.index)
            name = self.engine.add_request(ids, params)
            self._running[name] = _Running(prompt, ids, params)

    def _seat(self) -> None:
        """Remember which row of the pool a request holds: it is gone by the time the request's last event comes."""
        for request in self.engine.scheduler.running:
            if request.request_id in self._running and request.seq >= 0:  # else it was aborted, or has to wait
                self._running[request.request_id].seat = request.seq

    def _take(self, event: Event) -> None:
        running = self._running.get(event.request_id)
        if running is None:
            return
        if isinstance(event, TokensCommitted):
            running.answer.extend(event.token_ids)
        elif isinstance(event, RequestFinished):
            self._finish(event.request_id, event.reason)

    def _stop_loops(self) -> None:
        for name, running in list(self._running.items()):
            count = len(running.answer)
            if count < WINDOW or count % LOOK_EVERY:
                continue
            running.looped = loop_start(running.answer)
            if running.looped is not None:
                self.engine.abort(name)
                self._finish(name, "loop")

    def _finish(self, name: str, reason: str) -> None:
        running = self._running.pop(name)
        start = running.looped if running.looped is not None else loop_start(running.answer)
        kept = running.answer if start is None else running.answer[:start]
        self.progress.cut += len(running.answer) - len(kept)
        self.progress.looping += start is not None
        if running.seat < 0 or len(kept) < SHORTEST or reason == "error":
            self.progress.skipped += 1
            return
        ids = [*running.ids, *kept]
        self._kept.append(
            Answered(
                index=running.prompt.index,
                source=running.prompt.source,
                ids=ids,
                prompt_length=len(running.ids),
                taps=self.collector.take(running.seat, len(ids) - 1),
                temperature=running.params.temperature,
                seed=running.params.seed or 0,
                finish=reason if start is None else "loop",
                cut=len(running.answer) - len(kept),
            )
        )
        self.progress.answers += 1
        self.progress.tokens += len(kept)

    def _flush(self) -> None:
        if self._kept:
            self.writer.write(self._kept)
            self._kept = []


def answer_params(options: AnswerOptions, index: int) -> SamplingParams:
    """How prompt ``index`` is answered: the same in every run, whatever was done before."""
    rng = random.Random(f"{options.seed}:{index}")
    sampled = rng.random() < options.sampled
    seed = int.from_bytes(hashlib.sha256(f"{options.seed}:{index}".encode()).digest()[:6], "little")
    return SamplingParams(temperature=options.temperature if sampled else 0.0, max_tokens=options.max_tokens, seed=seed)


def cache_header(target: str, taps: Sequence[int], hidden: int) -> dict[str, Any]:
    """What must be equal for two runs to write into one cache; how an answer was drawn stands beside each."""
    return {"format": "draftproof.train-cache/1", "target": target, "taps": list(taps), "hidden_size": hidden}


def folder_of(out: Path) -> Path:
    """Where a training run keeps its recorded answers."""
    return out / "answers"
