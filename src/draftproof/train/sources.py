"""Where training prompts come from, and in which order: files and templates, mixed so that any prefix has the mix."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftproof.bench.workloads import Message, WorkloadPrompt, load_workload
from draftproof.errors import UsageError
from draftproof.train.prompts import template_prompts

TEMPLATES = "templates"


@dataclass(frozen=True)
class TrainPrompt:
    """``index``: place in the whole stream, stable for the same sources and seed; ``source``: for statistics."""

    index: int
    source: str
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Source:
    """A named list of conversations and its weight in the mix."""

    name: str
    prompts: tuple[tuple[str, tuple[Message, ...]], ...]
    weight: float
    sha256: str


def open_source(text: str, seed: int) -> Source:
    """``FILE[=weight]`` (JSON Lines, as for benchmarks) or ``templates:COUNT[=weight]`` (built in)."""
    name, _, weight = text.rpartition("=") if "=" in text else (text, "", "1")
    try:
        share = float(weight)
    except ValueError:
        raise UsageError(f"prompts {text!r}: the weight {weight!r} is no number") from None
    if not share > 0:
        raise UsageError(f"prompts {text!r}: the weight must be above 0")
    if name.partition(":")[0] == TEMPLATES:
        return _templates(name, share, seed)
    loaded = load_workload(name)
    rows: list[WorkloadPrompt] = list(loaded.prompts)
    random.Random(seed).shuffle(rows)
    label = Path(name).stem
    return Source(label, tuple((label, prompt.messages) for prompt in rows), share, loaded.sha256)


def _templates(name: str, share: float, seed: int) -> Source:
    count = name.partition(":")[2] or "10000"
    if not count.isdecimal() or int(count) < 1:
        raise UsageError(f"prompts {name!r}: the count must be a whole number of at least 1, as in templates:5000")
    made = [(kind, ({"role": "user", "content": text},)) for kind, text in template_prompts(int(count), seed)]
    digest = hashlib.sha256(repr(made).encode()).hexdigest()
    return Source(TEMPLATES, tuple(made), share, digest)


def mix(sources: Sequence[Source], seed: int) -> Iterator[TrainPrompt]:
    """All prompts of all sources once, interleaved at random by weight; a source that is used up drops out."""
    rng = random.Random(seed)
    left = {i: iter(source.prompts) for i, source in enumerate(sources)}
    index = 0
    while left:
        keys = list(left)
        chosen = rng.choices(keys, [sources[k].weight for k in keys])[0]
        following = next(left[chosen], None)
        if following is None:
            del left[chosen]
            continue
        yield TrainPrompt(index, *following)
        index += 1
