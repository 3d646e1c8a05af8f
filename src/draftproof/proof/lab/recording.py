"""What a target says to a prompt, recorded once, so that every fault can be tried on it without the target.

The text does not depend on the drafter: greedy answers are the target's own, and sampled ones have its law. So one
run of the target alone gives everything that rounds with any drafter need: the answer, its probabilities and the
hidden states behind every token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from draftproof.engine.engine import Engine
from draftproof.engine.plan import Pass
from draftproof.engine.types import SamplingParams
from draftproof.targets.base import Target


@dataclass(frozen=True)
class Recording:
    """``answer`` goes on some tokens past what will be replayed, whatever ends it; ``logprobs``: of its tokens at
    temperature 1; ``taps``: layer → hidden states [prompt + answer - 1, H] of ``output_hidden_states``."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    logprobs: tuple[float, ...]
    taps: dict[int, Tensor]

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.prompt + self.answer


class _Heard:
    """One sequence while it is being recorded."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.taps: list[Tensor] = []
        self.logprobs: list[float] = []
        self.last: Tensor | None = None


class Recorder:
    """A target that keeps what it says. Sequences are told apart by number: use it for one batch at a time."""

    def __init__(self, target: Target, layers: Sequence[int]) -> None:
        self._target, self.layers = target, tuple(layers)
        self.heard: dict[int, _Heard] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def forward(
        self, batch: Pass, kv: Any, *, taps: Sequence[int] = (), logits: Sequence[int] | Tensor = ()
    ) -> tuple[Tensor, Tensor | None]:
        said, tapped = self._target.forward(batch, kv, taps=self.layers, logits=logits)
        assert tapped is not None
        rows = {int(row): i for i, row in enumerate(logits)}
        for i, segment in enumerate(batch.segments):
            heard = self.heard.setdefault(segment.seq, _Heard())
            if heard.last is not None:
                heard.logprobs.append(float(heard.last[segment.token_ids[0]] - heard.last.logsumexp(-1)))
            heard.tokens += segment.token_ids
            heard.taps.append(tapped[batch.rows(i)].clone())
            at = rows.get(batch.offsets[i] + len(segment) - 1)
            heard.last = None if at is None else said[at].clone()
        return said, None


def record(
    engine: Engine, prompts: Sequence[Sequence[int]], layers: Sequence[int], params: Sequence[SamplingParams]
) -> list[Recording]:
    """Answers of ``engine``'s target alone to ``prompts``; ``params`` should ignore the end of the text."""
    made: list[Recording] = []
    for first in range(0, len(prompts), engine.options.max_num_seqs):
        recorder = Recorder(engine.target, layers)
        alone = engine.around(recorder, enable_prefix_caching=False)
        part = slice(first, first + engine.options.max_num_seqs)
        outputs = alone.generate([list(ids) for ids in prompts[part]], list(params[part]))
        heard = {tuple(one.tokens): one for one in recorder.heard.values()}
        for output in outputs:
            ids = (*output.prompt_token_ids, *output.token_ids)
            made.append(_recording(heard[ids[:-1]], output.prompt_token_ids, output.token_ids, recorder.layers))
    return made


def _recording(heard: _Heard, prompt: Sequence[int], answer: Sequence[int], layers: tuple[int, ...]) -> Recording:
    rows = torch.cat(heard.taps)
    size = rows.shape[1] // len(layers)
    taps = {layer: rows[:, i * size : (i + 1) * size].contiguous() for i, layer in enumerate(layers)}
    # The last token was never run, so its probability was not heard; nothing is replayed up to there.
    return Recording(tuple(prompt), tuple(answer), (*heard.logprobs, 0.0)[: len(answer)], taps)
