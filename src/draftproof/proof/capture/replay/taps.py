"""What the drafter was given against the target's hidden states: which index fits, in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from draftproof.proof.capture.reading import Capture
from draftproof.proof.capture.replay.stages import Stage
from draftproof.proof.capture.replay.truth import Truth

SAMPLE_ROWS = 512
# Relative errors up to which a tap counts as the hidden state itself.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 6e-2, torch.float16: 1e-2}


@dataclass(frozen=True)
class Fit:
    """One slot of the concatenation. ``best``: index that fits best, ``normed``: only after the final norm."""

    expected: int
    error: float
    best: int
    best_error: float
    normed: bool = False


def taps_stage(capture: Capture, truth: Truth) -> tuple[Stage, tuple[Fit, ...]]:
    """Errors over all rows at the expected indices; the search for a better one on a sample."""
    spec = truth.healthy.spec
    if not truth.hidden:
        why = "token ids are redacted" if capture.manifest.redacted else "no request is known from its first token on"
        return Stage("taps", "unknown", f"Taps were not recomputed: {why}."), ()
    width = truth.target.info.hidden_size
    count = capture.taps_width // width
    if count != len(spec.tap_layers):
        says = f"The drafter is given {count} taps, its file names {len(spec.tap_layers)}."
        return Stage("taps", "wrong", says, ("other:DRAFT_PATH_DEFECT",)), ()
    given, states = _rows(capture, truth)
    fits = tuple(_fit(given[:, i], states, spec.tap_layers[i], truth) for i in range(count))
    return _judge(fits, len(given), truth, states.shape[0] - 1), fits


def _rows(capture: Capture, truth: Truth) -> tuple[Tensor, Tensor]:
    """Given taps [R, k, H] and hidden states [L + 1, R, H] of the rows whose tokens are known."""
    given, states = [], []
    for request in capture.requests:
        known = truth.hidden.get(request.name)
        if known is None:
            continue
        taps = torch.cat([step.taps for step in request.steps]).to(known.device)
        given.append(taps.unflatten(-1, (-1, known.shape[-1])))
        states.append(known[:, request.first :])
    return torch.cat(given), torch.cat(states, dim=1)


def _error(given: Tensor, right: Tensor) -> float:
    return float((given.float() - right.float()).norm() / right.float().norm().clamp(min=1e-12))


def _fit(given: Tensor, states: Tensor, expected: int, truth: Truth) -> Fit:
    error = _error(given, states[expected])
    if error <= tolerance(truth):
        return Fit(expected, error, expected, error)
    some = torch.linspace(0, len(given) - 1, min(SAMPLE_ROWS, len(given)), device=given.device).long()
    errors = [(_error(given[some], states[j][some]), j, False) for j in range(len(states))]
    if truth.final_norm is not None:
        with torch.inference_mode():  # the last state is normed already
            errors += [
                (_error(given[some], truth.final_norm(states[j][some])), j, True) for j in range(len(states) - 1)
            ]
    best_error, best, normed = min(errors)
    return Fit(expected, error, best, best_error, normed)


def tolerance(truth: Truth) -> float:
    return TOLERANCE.get(truth.target.info.dtype, 6e-2)


def _judge(fits: tuple[Fit, ...], rows: int, truth: Truth, last: int) -> Stage:
    worst = max(fit.error for fit in fits)
    figures: dict[str, Any] = {"rows": rows, "fits": [vars(fit) for fit in fits], "worst_error": worst}
    if all(fit.error <= tolerance(truth) for fit in fits):
        places = [f.expected for f in fits]
        says = f"Taps are the target's hidden states {places} (relative error {worst:.1e}, {rows} rows)."
        return Stage("taps", "ok", says, figures=figures)
    expected, best = [f.expected for f in fits], [f.best for f in fits]
    strays = [f for f in fits if f.best_error > tolerance(truth)]
    if strays:
        one = strays[0]
        says = (
            f"Slot of index {one.expected} holds no hidden state of this target: the nearest is {one.best}, "
            f"relative error {one.best_error:.2g}."
        )
        return Stage("taps", "wrong", says, ("other:DRAFT_PATH_DEFECT",), figures)
    if any(f.normed for f in fits):
        says = f"Index {next(f.best for f in fits if f.normed)} is read after the final norm."
        return Stage("taps", "wrong", says, ("other:DRAFT_PATH_DEFECT",), figures)
    how, fault = _named(expected, best, last)
    there = max(f.best_error for f in fits)
    says = f"The engine reads {best} instead of {expected}: {how} "
    says += f"(relative error there {there:.1e}, at the right ones {worst:.2g})."
    return Stage("taps", "wrong", says, (fault,), figures)


def _named(expected: list[int], best: list[int], last: int) -> tuple[str, str]:
    steps = {b - e for b, e in zip(best, expected, strict=True)}
    if steps == {-1}:
        return "each one early", "taps-one-early"
    if steps == {1}:
        return "each one late", "taps-one-late"
    if sorted(best) == sorted(expected):
        return "their order is changed", "taps-reordered" if best == expected[::-1] else "other:DRAFT_PATH_DEFECT"
    if best[:-1] == expected[:-1] and best[-1] == last:
        return "the last one is the target's output after the final norm", "last-tap-post-norm"
    return "other layers", "other:AUX_LAYER_OFFSET"
