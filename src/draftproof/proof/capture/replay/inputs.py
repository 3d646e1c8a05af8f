"""Anchor, masks and positions of the blocks as they were run."""

from __future__ import annotations

from collections import Counter
from typing import Any

from draftproof.proof.capture.reading import Capture, RequestTrace, Step
from draftproof.proof.capture.replay.stages import Stage, listed
from draftproof.proof.capture.replay.truth import Truth


def inputs_stage(capture: Capture, truth: Truth) -> Stage:
    """Against the committed tokens: the anchor first, masks after it, each at its own position."""
    mask, seen = truth.healthy.spec.mask_token_id, Counter[tuple[str, str]]()
    blocks = 0
    for request in capture.requests:
        for i, step in enumerate(request.steps):
            if step.block_ids is None:
                continue
            blocks += 1
            seen.update(_block(step, mask))
            seen.update(_follows(request, i))
    if not blocks:
        return Stage("inputs", "unknown", "The engine does not tell what its blocks were made of.")
    figures: dict[str, Any] = {"blocks": blocks, "wrong": {what: count for (what, _), count in seen.items()}}
    if not seen:
        return Stage("inputs", "ok", f"Anchor, masks and positions of all {blocks} blocks are right.", figures=figures)
    parts = [f"{what} ({count} of {blocks} blocks)" for (what, _), count in seen.most_common()]
    return Stage("inputs", "wrong", f"{listed(parts)}.", tuple(dict.fromkeys(f for _, f in seen)), figures)


def _block(step: Step, mask: int) -> list[tuple[str, str]]:
    assert step.block_ids is not None
    found = []
    first, rest = step.block_ids[0], set(step.block_ids[1:])
    if first != step.anchor:
        masked = first in rest
        what = "The block begins with a mask, not with the anchor" if masked else "Another token stands for the anchor"
        found.append((what, "anchor-masked" if masked else "other:DRAFT_PATH_DEFECT"))
    if rest and rest != {mask}:
        other = ", ".join(map(str, sorted(rest - {mask})[:3]))
        found.append((f"Token {other} stands for the mask {mask}", "mask-token-wrong"))
    right = list(range(step.end, step.end + len(step.block_ids)))
    if step.block_positions is not None and step.block_positions != right:
        shift = step.block_positions[0] - right[0]
        even = step.block_positions == [p + shift for p in right]
        what = f"Block rows stand {abs(shift)} position{'s' * (abs(shift) > 1)} {'late' if shift > 0 else 'early'}"
        fault = "positions-shifted" if even and shift == 1 else "other:DRAFT_PATH_DEFECT"
        found.append((what if even else "Block rows are not one after the other", fault))
    if step.context_positions is not None and step.context_positions != step.positions:
        found.append(("Context keys are made for other positions than their rows have", "other:DRAFT_PATH_DEFECT"))
    return found


def _follows(request: RequestTrace, i: int) -> list[tuple[str, str]]:
    """The anchor must be the token that the next row of the request has."""
    if i + 1 >= len(request.steps):
        return []
    step, after = request.steps[i], request.steps[i + 1]
    if after.ids is None or after.start != step.end or after.ids[0] == step.anchor:
        return []
    return [("The anchor is not the token that was committed", "other:DRAFT_PATH_DEFECT")]
