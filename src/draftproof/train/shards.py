"""The cache on disk: shards of recorded answers, written whole or not at all, and a manifest that lists them.

A shard is a safetensors file: ``tokens`` [T] int32 and ``taps`` [T, taps × H] bfloat16 of whole sequences one after
the other, ``lengths`` and ``prompts`` [S] int32 (tokens in all, tokens of the prompt), ``indices`` [S] int64 (which
prompt). The last token of a sequence was never run through the target; its row of taps is zero and nobody reads it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftproof.errors import CheckpointError, UnavailableError, UsageError

MANIFEST = "manifest.jsonl"
HEADER = "cache.json"


@dataclass(frozen=True)
class Answered:
    """One conversation with the target's answer: ids in all, how many are the prompt's, taps [len(ids) - 1, W]."""

    index: int
    source: str
    ids: list[int]
    prompt_length: int
    taps: Tensor
    temperature: float
    seed: int
    finish: str
    cut: int = 0  # tokens of a loop that were removed


@dataclass(frozen=True)
class ShardEntry:
    """A line of the manifest."""

    file: str
    sha256: str
    tokens: int
    answers: list[dict[str, Any]] = field(default_factory=list)


def no_space(path: Path, error: OSError) -> UnavailableError:
    """The one line for a disk that is full or cannot be written to."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UnavailableError(f"{path}: the disk is full; what was written before is whole: free space and run again")
    return UnavailableError(f"{path}: cannot be written ({error.strerror})")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there in full or not at all, also after a kill or a power cut."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise no_space(path, error) from error


class ShardWriter:
    """Appends shards to a folder. ``header`` says what the cache holds; another one in the folder is refused."""

    def __init__(self, folder: Path, header: dict[str, Any]) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise no_space(folder, error) from error
        check_header(folder, header)
        write_whole(folder / HEADER, json.dumps(header, indent=1, sort_keys=True).encode())
        self.entries = read_manifest(folder)

    @property
    def done(self) -> set[int]:
        """Indices of the prompts that are answered."""
        return {int(a["index"]) for entry in self.entries for a in entry.answers}

    def write(self, answers: Sequence[Answered]) -> ShardEntry:
        """One shard; only after it is on the disk the manifest names it."""
        from safetensors.torch import save

        data = save(_tensors(answers))
        entry = ShardEntry(
            f"shard-{len(self.entries):05d}.safetensors",
            hashlib.sha256(data).hexdigest(),
            sum(len(a.ids) for a in answers),
            [_line(a) for a in answers],
        )
        write_whole(self.folder / entry.file, data)
        lines = [json.dumps(asdict(e), separators=(",", ":")) for e in [*self.entries, entry]]
        write_whole(self.folder / MANIFEST, ("\n".join(lines) + "\n").encode())
        self.entries.append(entry)
        return entry


def _tensors(answers: Sequence[Answered]) -> dict[str, Tensor]:
    width = answers[0].taps.shape[1]
    nothing = torch.zeros(1, width, dtype=torch.bfloat16)
    for a in answers:
        if len(a.taps) != len(a.ids) - 1:
            raise ValueError(f"{len(a.ids)} tokens, but taps of {len(a.taps)}: all but the last are needed")
    return {
        "tokens": torch.tensor([t for a in answers for t in a.ids], dtype=torch.int32),
        "taps": torch.cat([part for a in answers for part in (a.taps, nothing)]).contiguous(),
        "lengths": torch.tensor([len(a.ids) for a in answers], dtype=torch.int32),
        "prompts": torch.tensor([a.prompt_length for a in answers], dtype=torch.int32),
        "indices": torch.tensor([a.index for a in answers], dtype=torch.int64),
    }


def _line(answer: Answered) -> dict[str, Any]:
    plain = {k: getattr(answer, k) for k in ("index", "source", "temperature", "seed", "finish", "cut")}
    return plain | {"tokens": len(answer.ids) - answer.prompt_length}


def read_manifest(folder: Path) -> list[ShardEntry]:
    """Shards in the order they were written; empty if there is no manifest."""
    file = folder / MANIFEST
    if not file.exists():
        return []
    try:
        return [ShardEntry(**json.loads(line)) for line in file.read_text().splitlines() if line]
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{file}: not a manifest of recorded answers ({error}); use another folder") from None


def check_header(folder: Path, header: dict[str, Any]) -> None:
    """A cache made from another target or with other taps must not be mixed with this one."""
    file = folder / HEADER
    if not file.exists():
        return
    try:
        old = json.loads(file.read_text())
    except (OSError, ValueError):
        raise CheckpointError(f"{file}: unreadable; use another folder") from None
    for name in sorted({*old, *header}):
        if old.get(name) != header.get(name):
            raise UsageError(
                f"{folder}: its answers were recorded with {name}={old.get(name)!r}, now {header.get(name)!r}; "
                "use another --out folder or the same settings"
            )


def read_shards(folder: Path, entries: Iterable[ShardEntry], *, verify: bool = False) -> Iterator[dict[str, Tensor]]:
    """Each shard's tensors, memory-mapped. ``verify`` compares the checksums first."""
    from safetensors import SafetensorError, safe_open

    for entry in entries:
        file = folder / entry.file
        try:
            if verify and hashlib.sha256(file.read_bytes()).hexdigest() != entry.sha256:
                raise CheckpointError(f"{file}: its checksum is not the manifest's; delete the folder's cache")
            with safe_open(str(file), framework="pt") as handle:
                yield {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{file}: cannot be read ({' '.join(str(error).split())[:120]})") from None
