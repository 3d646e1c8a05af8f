"""The whole walk, and what follows from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftproof.drafters.loading import _locate
from draftproof.proof.capture.manifest import Manifest
from draftproof.proof.capture.reading import Capture, read_capture
from draftproof.proof.capture.replay.config import config_stage
from draftproof.proof.capture.replay.inputs import inputs_stage
from draftproof.proof.capture.replay.reference import agreement, replayable, shortened
from draftproof.proof.capture.replay.search import SAMPLE, TAP_FAULTS, Search, search, wired
from draftproof.proof.capture.replay.stages import Stage
from draftproof.proof.capture.replay.taps import taps_stage
from draftproof.proof.capture.replay.truth import Truth, load_truth
from draftproof.proof.capture.replay.weights import weights_stage
from draftproof.proof.capture.verdict import SCHEMA, Proven, proven

Report = Callable[[str], None]
WITNESS = 0.1  # share of drafts that a flipped direction must change, or the capture proves little


@dataclass(frozen=True)
class Replay:
    """What one capture shows. ``first``: the first step that is wrong, None if none is."""

    manifest: Manifest
    stages: tuple[Stage, ...]
    search: Search | None
    proven: Proven
    requests: int
    drafted: int
    notes: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def first(self) -> Stage | None:
        return next((stage for stage in self.stages if stage.status == "wrong"), None)

    def to_dict(self) -> dict[str, Any]:
        first = self.first
        return {
            "schema_version": SCHEMA,
            "capture": str(self.manifest.path),
            "engine": self.manifest.engine,
            "requests": self.requests,
            "drafted_tokens": self.drafted,
            **self.proven.to_dict(),
            "first_wrong": first.name if first is not None else None,
            "stages": [stage.to_dict() for stage in self.stages],
            "search": self.search.to_dict() if self.search is not None else None,
            "notes": list(self.notes),
            **self.extra,
        }


def replay(
    path: Path, drafter: str, target: str, *, recompute: bool = True, report: Report = lambda line: None
) -> Replay:
    """Raises CaptureError for captures that cannot be used, and DraftproofError for a pair that cannot be loaded."""
    capture = read_capture(path)
    report(f"{capture.manifest.engine_name}: {len(capture.requests)} requests, {capture.drafted} drafted tokens")
    truth = load_truth(capture, drafter, target, recompute=recompute)
    stages = [
        weights_stage(capture, truth),
        config_stage(capture, truth, _file_config(drafter)),
        taps_stage(capture, truth)[0],
        inputs_stage(capture, truth),
    ]
    for stage in stages:
        report(f"{stage.name}: {stage.status}")
    found, witness = _drafts(capture, truth, stages, report)
    stages.append(_drafts_stage(capture, found, witness))
    verdict = proven(stages, found.restoring if found else [], found.healthy if found else None, capture.manifest)
    return Replay(
        capture.manifest,
        tuple(stages),
        found,
        verdict,
        len(capture.requests),
        capture.drafted,
        tuple(_notes(capture, truth)),
        {"witness": witness},
    )


def _file_config(drafter: str) -> dict[str, Any]:
    data = json.loads((_locate(drafter) / "config.json").read_text(encoding="utf-8"))
    return dict(data)


def _drafts(capture: Capture, truth: Truth, stages: list[Stage], report: Report) -> tuple[Search | None, float | None]:
    """The reference on the taps as they were given: what is wrong with them is said already."""
    requests = replayable(capture.requests, truth)
    width = len(truth.healthy.spec.tap_layers) * truth.target.info.hidden_size
    if not requests or capture.taps_width != width:
        return None, None
    suspected = [name for stage in stages for name in stage.faults if name not in TAP_FAULTS]
    if any(name.startswith("other:") or name == "head-random" for name in suspected):
        return Search(agreement(truth.healthy, truth, requests)), None  # values that nothing here can bring back
    found = search(truth, requests, suspected, _seen_mask(capture, truth), report)
    return found, _witness(truth, requests) if found.healthy.full else None


def _seen_mask(capture: Capture, truth: Truth) -> int | None:
    """The token that was run in the mask's place, if it was another."""
    for request in capture.requests:
        for step in request.steps:
            if step.block_ids is not None and step.block_ids[-1] != truth.healthy.spec.mask_token_id:
                return step.block_ids[-1]
    return None


def _witness(truth: Truth, requests: list[Any]) -> float:
    """Share of drafts that change when every layer looks the other way: a drafter that does not care proves little."""
    sliding = [layer.sliding for layer in truth.healthy.spec.layers]
    names = ["causality-flipped-sliding"] * any(sliding) + ["causality-flipped-full"] * (not all(sliding))
    flipped = agreement(wired(truth, names), truth, shortened(requests, SAMPLE))
    return 1.0 - flipped.share


def _drafts_stage(capture: Capture, found: Search | None, witness: float | None) -> Stage:
    if found is None:
        return Stage("drafts", "unknown", "No request's context is known from its first token on.")
    left_out = capture.drafted - found.healthy.tokens
    aside = f" ({left_out} more belong to requests whose context is not known)" if left_out else ""
    if found.healthy.full:
        says = f"The reference drafts the same: {found.healthy} tokens{aside}"
        weak = witness is not None and witness < WITNESS
        says += (
            f", but this drafter hardly depends on its wiring ({witness:.0%} change with the direction)" if weak else ""
        )
        return Stage("drafts", "ok", f"{says}.", figures={**found.healthy.to_dict(), "witness": witness})
    says = f"Given the engine's own inputs, the reference drafts the same in {found.healthy} tokens{aside}"
    faults: tuple[str, ...] = ()
    if found.restoring:
        best = found.restoring[0]
        faults = best.faults
        says += f"; with {' and '.join(best.faults)} in {best.agreement}"
    return Stage("drafts", "wrong", f"{says}.", faults, found.healthy.to_dict())


def _notes(capture: Capture, truth: Truth) -> list[str]:
    notes = [f"drafter: {note}" for note in truth.notes]
    if not capture.manifest.complete:
        notes.append("the capture is not complete: the engine ended, or still runs")
    window = max((layer.window or 0 for layer in truth.healthy.spec.layers), default=0)
    longest = max(step.end for request in capture.requests for step in request.steps)
    if window and longest <= window:
        notes.append(f"no context is longer than the window ({longest} of {window}): faults of the window cannot show")
    if all(request.first == 0 for request in capture.requests):
        notes.append("no prefix-cache hit is among the requests")
    return notes
