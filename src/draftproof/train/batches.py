"""From recorded answers to batches: which sequences, which anchors, which labels. A pure function of seed and step,
so a run that was killed goes on exactly where it was."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from draftproof.errors import UsageError
from draftproof.train.module import Blocks
from draftproof.train.shards import read_manifest, read_shards


@dataclass(frozen=True)
class Recorded:
    """One recorded conversation; ``taps`` is a view into a mapped file."""

    tokens: Tensor  # [L] int32
    taps: Tensor  # [L, width]
    prompt_length: int
    index: int

    def __len__(self) -> int:
        return len(self.tokens)


class AnswerSet:
    """All sequences of a cache that have room for an anchor and a label. ``columns``: which taps of the recorded
    ones to use, as slices of the last axis in order; ``final``: where the target's last hidden state stands, if it
    is wanted and was recorded; ``greedy``: leave sampled answers out."""

    def __init__(
        self,
        folder: Path,
        columns: Sequence[slice],
        *,
        final: slice | None = None,
        shards: int | None = None,
        skip: int = 0,
        greedy: bool = False,
    ) -> None:
        entries = read_manifest(folder)[:shards]
        self.shards = len(entries)
        self.columns, self.final = list(columns), final
        self.sequences = [s for part in read_shards(folder, entries) for s in _sequences(part)]
        if greedy:
            sampled = {a["index"] for e in entries for a in e.answers if a["temperature"] > 0}
            self.sequences = [s for s in self.sequences if s.index not in sampled]
        if skip:
            self.sequences = [s for s in self.sequences if s.index % skip]
        if not self.sequences:
            raise UsageError(f"{folder}: holds no answers long enough to train on; let the target answer more prompts")

    @property
    def answer_tokens(self) -> int:
        return sum(len(s) - s.prompt_length for s in self.sequences)

    def token_counts(self, vocab: int) -> Tensor:
        """[vocab] how often each token occurs in answers."""
        counts = torch.zeros(vocab, dtype=torch.long)
        for s in self.sequences:
            counts += torch.bincount(s.tokens[s.prompt_length :].long(), minlength=vocab)
        return counts

    def chosen(self, step: int, count: int, seed: int) -> list[Recorded]:
        """The sequences of a step: every epoch visits all once, those of similar length together."""
        per_epoch = max(len(self.sequences) // count, 1)
        order = _order([len(s) for s in self.sequences], count, f"{seed}:{step // per_epoch}")
        begin = (step % per_epoch) * count
        return [self.sequences[i] for i in order[begin : begin + count]]

    def taps_of(self, sequence: Recorded, length: int) -> Tensor:
        """[length, used taps]."""
        return torch.cat([sequence.taps[:length, c] for c in self.columns], dim=-1)


_orders: dict[str, list[int]] = {}


def _order(lengths: list[int], count: int, key: str) -> list[int]:
    """A shuffled order in which batches hold similar lengths: shuffled, sorted within stretches, batches shuffled."""
    name = f"{key}:{len(lengths)}:{count}"
    if name not in _orders:
        _orders.clear()
        rng = random.Random(name)
        order = list(range(len(lengths)))
        rng.shuffle(order)
        stretch = 16 * count
        parts = [sorted(order[i : i + stretch], key=lengths.__getitem__) for i in range(0, len(order), stretch)]
        batches = [part[i : i + count] for part in parts for i in range(0, len(part), count)]
        whole = [b for b in batches if len(b) == count]
        rest = [b for b in batches if len(b) < count]
        rng.shuffle(whole)
        _orders[name] = [i for batch in [*whole, *rest] for i in batch]
    return _orders[name]


def _sequences(shard: dict[str, Tensor]) -> list[Recorded]:
    found, begin = [], 0
    parts = (shard[name].tolist() for name in ("lengths", "prompts", "indices"))
    for length, prompt, index in zip(*parts, strict=True):
        if length - prompt >= 2:
            end = begin + length
            found.append(Recorded(shard["tokens"][begin:end], shard["taps"][begin:end], prompt, index))
        begin += length
    return found


@dataclass(frozen=True)
class Labels:
    """``ids`` [S, n, slots]: target token ids, -1 past the answer's end. ``states`` [S, n, slots, Ht]: the target's
    last hidden state one position before each label, from which its head makes the distribution of that token."""

    ids: Tensor
    states: Tensor | None = None


def make_blocks(
    answers: AnswerSet, chosen: Sequence[Recorded], *, anchors: int, rows: int, key: str
) -> tuple[Blocks, Labels]:
    """Blocks with random anchors in the answers, and what their slots should say.

    Slot k of a block learns the token at its own position, anchor + k. The first anchor
    may be the answer's first token, which prefill yields; the last one has a token after it. A short answer repeats
    anchors, which weighs its tokens like those of the others.
    """
    rng = random.Random(key)
    places = [sorted(_pick(rng, s.prompt_length, len(s) - 1, anchors)) for s in chosen]
    length = max(line[-1] for line in places)
    first = answers.taps_of(chosen[0], 1)
    taps = first.new_zeros(len(chosen), length, first.shape[1])
    tokens = torch.zeros(len(chosen), anchors, dtype=torch.long)
    labels = torch.full((len(chosen), anchors, rows - 1), -1, dtype=torch.long)
    states: Tensor | None = None
    if answers.final is not None:
        states = first.new_zeros(*labels.shape, answers.final.stop - answers.final.start)
    for i, (sequence, line) in enumerate(zip(chosen, places, strict=True)):
        taps[i, : line[-1]] = answers.taps_of(sequence, line[-1])
        ids = sequence.tokens.long()
        tokens[i] = ids[line]
        for j, anchor in enumerate(line):
            known = ids[anchor + 1 : anchor + rows]
            labels[i, j, : len(known)] = known
            if states is not None:
                states[i, j, : len(known)] = sequence.taps[anchor : anchor + len(known), answers.final]
    return Blocks(taps, torch.tensor(places), tokens, rows), Labels(labels, states)


def _pick(rng: random.Random, low: int, high: int, count: int) -> list[int]:
    """``count`` of low … high - 1, different ones as far as there are enough."""
    everything = range(low, high)
    if len(everything) >= count:
        return rng.sample(everything, count)
    return list(everything) + rng.choices(everything, k=count - len(everything))
