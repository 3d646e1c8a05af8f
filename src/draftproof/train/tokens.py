"""Answers without their hidden states: a few bytes a token instead of thousands, to carry them to another machine,
where the taps are computed again. Worth it where a pass over finished text is cheap, as on a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftproof.errors import CheckpointError
from draftproof.train.shards import Answered, ShardWriter, read_manifest, read_shards, write_whole

_NAMES = ("tokens", "lengths", "prompts", "indices")


def pack(folder: Path, file: Path) -> int:
    """Write the tokens of all recorded answers in ``folder`` to one safetensors ``file``; returns how many answers."""
    from safetensors.torch import save

    entries = read_manifest(folder)
    parts: dict[str, list[Tensor]] = {name: [] for name in _NAMES}
    for shard in read_shards(folder, entries):
        for name in _NAMES:
            parts[name].append(shard[name])
    if not entries:
        raise CheckpointError(f"{folder}: holds no recorded answers")
    facts = json.dumps([a for entry in entries for a in entry.answers], separators=(",", ":"))
    write_whole(file, save({n: torch.cat(p) for n, p in parts.items()}, metadata={"answers": facts}))
    return len(torch.cat(parts["lengths"]))


def unpack(file: Path) -> list[tuple[list[int], int, dict[str, Any]]]:
    """(ids, tokens of the prompt, facts) of every answer in a packed file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), framework="pt") as handle:
            facts = json.loads((handle.metadata() or {})["answers"])
            found = {name: handle.get_tensor(name).tolist() for name in _NAMES}
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"{file}: not a file of packed answers ({type(error).__name__})") from None
    answers, begin = [], 0
    for length, prompt, fact in zip(found["lengths"], found["prompts"], facts, strict=True):
        answers.append((found["tokens"][begin : begin + length], prompt, fact))
        begin += length
    return answers


@torch.inference_mode()
def retap(
    file: Path,
    model: Any,
    taps: Sequence[int],
    writer: ShardWriter,
    *,
    batch_tokens: int = 32768,
    shard_tokens: int = 65536,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> None:
    """Run packed answers through a transformers model and record their taps. What ``writer`` has is left out.

    Causal attention: padding on the right changes nothing before it, so it needs no mask.
    """
    done = writer.done
    waiting = [a for a in unpack(file) if int(a[2]["index"]) not in done]
    waiting.sort(key=lambda a: len(a[0]))
    kept: list[Answered] = []
    finished = 0
    while waiting:
        count = max(1, batch_tokens // len(waiting[0][0]))
        batch, waiting = waiting[:count], waiting[count:]
        while len(batch) > 1 and len(batch) * len(batch[-1][0]) > batch_tokens:
            waiting.insert(0, batch.pop())
        kept += _tapped(batch, model, taps)
        finished += len(batch)
        if sum(len(a.ids) for a in kept) >= shard_tokens or not waiting:
            writer.write(kept)
            kept = []
            report(finished, finished + len(waiting))


def _tapped(batch: Sequence[tuple[list[int], int, dict[str, Any]]], model: Any, taps: Sequence[int]) -> list[Answered]:
    longest = max(len(ids) for ids, _, _ in batch)
    padded = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _, _ in batch], device=model.device)
    states = model.base_model(padded, use_cache=False, output_hidden_states=True).hidden_states
    rows = torch.cat([states[j] for j in taps], dim=-1).to("cpu", torch.bfloat16)
    fields = ("index", "source", "temperature", "seed", "finish", "cut")
    return [
        Answered(ids=ids, prompt_length=prompt, taps=rows[i, : len(ids) - 1], **{k: fact[k] for k in fields})
        for i, (ids, prompt, fact) in enumerate(batch)
    ]
