"""Two captures of the same prompts, from two engines or versions: where do they part?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from draftproof.proof.capture.manifest import CaptureError
from draftproof.proof.capture.reading import Capture, RequestTrace, read_capture
from draftproof.proof.capture.replay.stages import Stage, Status, listed
from draftproof.proof.capture.replay.taps import TOLERANCE

Pair = tuple[RequestTrace, RequestTrace]


def against(first: Path, second: Path) -> list[Stage]:
    """Weights, executed layers, taps and drafts of both; rows are compared as long as the tokens are the same."""
    a, b = read_capture(first), read_capture(second)
    pairs = _pairs(a, b)
    if not pairs:
        raise CaptureError(f"{second}: no request begins like one of {first}; capture both on the same prompts")
    return [_weights(a, b), _layers(a, b), _taps(a, b, pairs), _drafts(pairs)]


def _pairs(a: Capture, b: Capture) -> list[Pair]:
    """Requests whose first rows hold the same tokens; of redacted captures the n-th of each."""
    if a.manifest.redacted or b.manifest.redacted:
        return list(zip(a.requests, b.requests, strict=False))
    left = {tuple(r.steps[0].ids or ()): r for r in reversed(b.requests)}
    found = []
    for request in a.requests:
        other = left.pop(tuple(request.steps[0].ids or ()), None)
        if other is not None and other.first == request.first:
            found.append((request, other))
    return found


def _weights(a: Capture, b: Capture) -> Stage:
    mine, theirs = a.manifest.data["weights"], b.manifest.data["weights"]
    shared = [name for name in mine if name in theirs and mine[name].get("dtype") == theirs[name].get("dtype")]
    if not shared:
        return Stage("weights", "unknown", "The two recorded no weights in the same form.")
    other = [name for name in shared if mine[name]["sha256"] != theirs[name]["sha256"]]
    if other:
        return Stage("weights", "wrong", f"Different in memory: {listed(other)}.", figures={"differ": other})
    return Stage("weights", "ok", f"The {len(shared)} tensors recorded by both are the same.")


def _layers(a: Capture, b: Capture) -> Stage:
    mine, theirs = a.manifest.drafter, b.manifest.drafter
    differ: list[str] = []
    for key in ("layers", "mask_token_id", "tap_layers", "num_draft_tokens"):
        one, two = _comparable(mine.get(key)), _comparable(theirs.get(key))
        if one is not None and two is not None and one != two:
            differ.append(f"{key}: {one} and {two}")
    if differ:
        return Stage("config", "wrong", f"The engines execute different things: {listed(differ)}.")
    return Stage("config", "ok", "Windows, directions, mask token and taps are the same.")


def _comparable(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [(entry.get("window"), entry.get("causal")) for entry in value]
    return value


def _taps(a: Capture, b: Capture, pairs: list[Pair]) -> Stage:
    """Relative error per tap, over the rows before the tokens part."""
    if a.taps_width != b.taps_width:
        return Stage("taps", "wrong", f"Taps are {a.taps_width} and {b.taps_width} values wide.")
    mine, theirs = [], []
    for one, two in pairs:
        x, y = _rows(one), _rows(two)
        count = _same_tokens(one, two, min(len(x), len(y)))
        mine.append(x[:count])
        theirs.append(y[:count])
    x, y = torch.cat(mine).float(), torch.cat(theirs).float()
    error = float((x - y).norm() / y.norm().clamp(min=1e-12))
    dtype = getattr(torch, str(b.manifest.engine.get("dtype")), torch.bfloat16)
    status: Status = "ok" if error <= TOLERANCE.get(dtype, 6e-2) else "wrong"
    says = f"Taps of {len(x)} rows have a relative error of {error:.1e} to each other."
    return Stage("taps", status, says, figures={"rows": len(x), "error": error})


def _rows(request: RequestTrace) -> torch.Tensor:
    return torch.cat([step.taps for step in request.steps])


def _same_tokens(one: RequestTrace, two: RequestTrace, most: int) -> int:
    x, y = one.ids[len(one.prefix or []) :], two.ids[len(two.prefix or []) :]
    if not x or not y:
        return most
    return next((i for i in range(min(most, len(x), len(y))) if x[i] != y[i]), min(most, len(x), len(y)))


def _drafts(pairs: list[Pair]) -> Stage:
    """Blocks at the same position after the same anchor."""
    equal = total = 0
    for one, two in pairs:
        theirs = {(step.end, step.anchor): step.drafts for step in two.steps}
        for step in one.steps:
            other = theirs.get((step.end, step.anchor))
            if other is not None:
                total += min(len(other), len(step.drafts))
                equal += sum(x == y for x, y in zip(step.drafts, other, strict=False))
    if not total:
        return Stage("drafts", "unknown", "No block stands at the same place in both.")
    status: Status = "ok" if equal == total else "wrong"
    return Stage(
        "drafts", status, f"{equal} of {total} drafted tokens are the same.", figures={"equal": equal, "tokens": total}
    )
