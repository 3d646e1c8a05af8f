"""The pair as its files say: the target with its hidden states, the drafter's healthy parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from draftproof.drafters.loading import load_weights
from draftproof.engine.options import EngineOptions
from draftproof.errors import DraftproofError, UsageError
from draftproof.proof.capture.manifest import CaptureError
from draftproof.proof.capture.reading import Capture, RequestTrace, same_dtype
from draftproof.proof.lab.wiring import Wiring
from draftproof.targets.base import Target
from draftproof.targets.loading import load_target, pick_device
from draftproof.targets.open import wrap_model

MOST_BYTES = 4 << 30  # of hidden states


@dataclass
class Truth:
    """``hidden``: request name → ``output_hidden_states`` [L + 1, T, H] of its tokens; empty where the ids are not
    known. ``final_norm`` turns a hidden state into what the head reads."""

    target: Target
    healthy: Wiring
    hidden: dict[str, Tensor]
    final_norm: Any
    config: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def taps(self, request: RequestTrace, layers: Sequence[int]) -> Tensor:
        """[T, k × H] in the order of ``layers``."""
        states = self.hidden[request.name]
        return torch.cat([states[i] for i in layers], dim=-1)


def load_truth(capture: Capture, drafter: str, target: str, *, recompute: bool = True, device: str = "auto") -> Truth:
    """In the engine's own number format. Raises CaptureError where the capture is of another pair."""
    place = pick_device(device)
    loaded = load_target(target, device=place, dtype=same_dtype(capture))
    hidden: dict[str, Tensor] = {}
    if recompute:
        hidden = hidden_states(loaded.model, _affordable(loaded.model, capture))
    norm = getattr(loaded.model.base_model, "norm", None)
    wrapped = wrap_model(loaded.model, EngineOptions(native=False))
    notes: list[str] = []
    try:
        healthy = Wiring(*load_weights(drafter, wrapped, notes))
    except DraftproofError as error:
        raise type(error)(f"{error} (while loading the pair that is to explain the capture)") from None
    if healthy.spec.unsupported():
        raise UsageError(f"{drafter}: {healthy.spec.unsupported()[0]}")
    _same_pair(capture, healthy, wrapped)
    return Truth(wrapped, healthy, hidden, norm, notes=notes)


def _affordable(model: Any, capture: Capture) -> list[RequestTrace]:
    """Requests whose tokens are all known, as many as there is room for."""
    config = getattr(model.config, "text_config", None) or model.config
    row = (config.num_hidden_layers + 1) * config.hidden_size * model.dtype.itemsize
    chosen, left = [], MOST_BYTES
    vocabulary = config.vocab_size
    for request in capture.requests:
        if not request.whole:
            continue
        if max(request.ids) >= vocabulary or min(request.ids) < 0:
            raise CaptureError(
                f"{capture.manifest.path}: token {max(request.ids)} lies outside the target's {vocabulary} tokens; "
                "this capture is of another target"
            )
        left -= len(request.ids) * row
        if left < 0:
            break
        chosen.append(request)
    return chosen


@torch.inference_mode()
def hidden_states(model: Any, requests: list[RequestTrace]) -> dict[str, Tensor]:
    """By the model's own forward, before the engine touches it: an outside witness."""
    found: dict[str, Tensor] = {}
    for request in requests:
        ids = torch.tensor([request.ids], device=model.device)
        out = model(input_ids=ids, output_hidden_states=True, use_cache=False, logits_to_keep=1)
        found[request.name] = torch.stack([state[0] for state in out.hidden_states])
    return found


def _same_pair(capture: Capture, healthy: Wiring, target: Target) -> None:
    """Gross contradictions; finer ones are what the replay is for."""
    theirs = capture.manifest.drafter.get("config") or {}
    for key, mine in (
        ("num_hidden_layers", healthy.spec.num_layers),
        ("hidden_size", healthy.spec.hidden_size),
        ("vocab_size", healthy.spec.vocab_size),
    ):
        if key in theirs and theirs[key] is not None and int(theirs[key]) != mine:
            raise CaptureError(
                f"{capture.manifest.path}: its drafter has {key}={theirs[key]}, the one given has {mine}; "
                "give the drafter that was captured"
            )
    if capture.taps_width % target.info.hidden_size:
        raise CaptureError(
            f"{capture.manifest.path}: taps are {capture.taps_width} wide, no multiple of the target's "
            f"{target.info.hidden_size}; give the target that was captured"
        )
