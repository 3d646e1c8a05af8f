"""A capture with its tensors: rounds as they were, and requests as one sequence of rows each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from draftproof.proof.capture.manifest import TENSORS, CaptureError, Manifest, read_manifest, verify


@dataclass(frozen=True)
class Step:
    """One request's part of a round: ``rows`` committed rows (ids None in redacted captures), then a block.

    ``start``: position of the first row. ``block_ids``, ``block_positions`` [N + 1], ``context_positions`` [rows]:
    as the engine ran them, None where it does not tell. ``top_ids``, ``top_logits`` [N, t].
    """

    round: int
    ids: list[int] | None
    start: int
    taps: Tensor
    anchor: int
    drafts: list[int]
    positions: list[int]
    block_ids: list[int] | None = None
    block_positions: list[int] | None = None
    context_positions: list[int] | None = None
    top_ids: Tensor | None = None
    top_logits: Tensor | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.positions)


@dataclass
class RequestTrace:
    """A request's steps in order. ``prefix``: ids of the positions before the first row, None where not known."""

    name: str
    prefix: list[int] | None = None
    steps: list[Step] = field(default_factory=list)

    @property
    def first(self) -> int:
        return self.steps[0].start

    @property
    def whole(self) -> bool:
        """Are all tokens from position 0 known, in order and without a gap?"""
        if self.first and (self.prefix is None or len(self.prefix) != self.first):
            return False
        at = self.first
        for step in self.steps:
            if step.start != at or step.ids is None or step.positions != list(range(at, step.end)):
                return False
            at = step.end
        return True

    @property
    def ids(self) -> list[int]:
        """All committed tokens that rows were seen of."""
        return [*(self.prefix or []), *(i for step in self.steps for i in step.ids or [])]


@dataclass
class Capture:
    manifest: Manifest
    requests: list[RequestTrace]
    probes: dict[str, Tensor]

    @property
    def drafted(self) -> int:
        return sum(len(step.drafts) for request in self.requests for step in request.steps)

    @property
    def taps_width(self) -> int:
        return int(self.requests[0].steps[0].taps.shape[1])


def read_capture(path: Path) -> Capture:
    """Everything, checked. Raises CaptureError: another schema, truncated, damaged, empty, contradictory."""
    manifest = read_manifest(path)
    verify(manifest)
    requests: dict[str, RequestTrace] = {}
    handles: dict[str, Any] = {}
    for number, entry in enumerate(manifest.data["rounds"]):
        file = str(entry["file"])
        if file not in handles:
            handles[file] = _open(manifest.path / file)
        names = [str(name) for name in entry["requests"]]
        tensors, prefixes = _tensors(handles[file], number, manifest.path / file)
        _check(tensors, len(names), number, manifest.path / file)
        for i, name in enumerate(names):
            step = _step(tensors, i, number)
            trace = requests.setdefault(name, RequestTrace(name))
            if not trace.steps:
                trace.prefix = prefixes.get(i)
            trace.steps.append(step)
    if not requests:
        raise CaptureError(f"{manifest.path}: no round in it; send the engine requests while it captures")
    probes = _probes(manifest)
    return Capture(manifest, list(requests.values()), probes)


def _open(file: Path) -> Any:
    try:
        return safe_open(str(file), framework="pt")
    except (SafetensorError, OSError) as error:
        raise CaptureError(f"{file}: not a safetensors file ({error}); capture again") from None


def _probes(manifest: Manifest) -> dict[str, Tensor]:
    file = manifest.path / "probes.safetensors"
    if not any(entry["name"] == file.name for entry in manifest.data["files"]):
        return {}
    with _open(file) as handle:
        return {name.removeprefix("probe."): handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118


def _tensors(handle: Any, number: int, file: Path) -> tuple[dict[str, Tensor], dict[int, list[int]]]:
    mark, found, prefixes = f"{number:06d}.", {}, {}
    for key in handle.keys():  # noqa: SIM118 - not a dict
        if not key.startswith(mark):
            continue
        name = key[len(mark) :]
        if name.startswith("prefix."):
            prefixes[int(name.removeprefix("prefix."))] = handle.get_tensor(key).tolist()
        elif name in TENSORS:
            found[name] = handle.get_tensor(key)
    missing = [name for name, (needed, _) in TENSORS.items() if needed and name not in found]
    if missing:
        raise CaptureError(f"{file}: round {number} has no {missing[0]}; capture again")
    return found, prefixes


def _check(tensors: dict[str, Tensor], batch: int, number: int, file: Path) -> None:
    """Shapes agree with each other."""
    rows = int(tensors["positions"].numel())
    starts = tensors["query_start"].tolist()
    sound = len(starts) == batch + 1 and starts[0] == 0 and starts[-1] <= rows and starts == sorted(starts)
    sound = sound and tensors["taps"].dim() == 2 and tensors["taps"].shape[0] == rows
    sound = sound and all(tensors[name].shape[0] == batch for name in ("rejected", "anchors", "drafts"))
    sound = sound and all(
        0 <= r < b - a for a, b, r in zip(starts, starts[1:], tensors["rejected"].tolist(), strict=False)
    )
    if not sound:
        shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
        raise CaptureError(f"{file}: round {number} contradicts itself ({batch} requests, {shapes}); capture again")


def _step(tensors: dict[str, Tensor], i: int, number: int) -> Step:
    first, last = tensors["query_start"][i : i + 2].tolist()
    last -= int(tensors["rejected"][i])
    rows = slice(first, last)

    def ids(name: str, where: Any) -> list[int] | None:
        return tensors[name][where].tolist() if name in tensors else None

    positions = tensors["positions"][rows].tolist()
    return Step(
        round=number,
        ids=ids("token_ids", rows),
        start=positions[0],
        taps=tensors["taps"][rows],
        anchor=int(tensors["anchors"][i]),
        drafts=tensors["drafts"][i].tolist(),
        positions=positions,
        block_ids=ids("block_ids", i),
        block_positions=ids("block_positions", i),
        context_positions=ids("context_positions", rows),
        top_ids=tensors["top_ids"][i] if "top_ids" in tensors else None,
        top_logits=tensors["top_logits"][i] if "top_logits" in tensors else None,
    )


def same_dtype(capture: Capture) -> torch.dtype:
    """The engine's number format. Raises CaptureError for one that torch does not know."""
    name = str(capture.manifest.engine.get("dtype", ""))
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise CaptureError(f"{capture.manifest.path}: engine.dtype is {name!r}, which is no number format")
    return found
