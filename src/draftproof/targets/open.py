"""From a name to a running target: loads it and picks what will compute its passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from draftproof import compat, native
from draftproof.engine.options import EngineOptions
from draftproof.errors import CapabilityError
from draftproof.targets.base import Target
from draftproof.targets.huggingface import HuggingFaceTarget
from draftproof.targets.loading import load_target, pick_device, pick_dtype
from draftproof.targets.native import NativeTarget, why_not_native
from draftproof.targets.recurrent import RECURRENT, RecurrentTarget


@dataclass
class OpenedTarget:
    target: Target
    tokenizer: Any
    notes: list[str] = field(default_factory=list)


def open_target(name: str, options: EngineOptions) -> OpenedTarget:
    """Load ``name`` and wrap it. ``notes`` tell what was decided and why."""
    notes: list[str] = []
    device = pick_device(options.device)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if device.type == "cpu":
        native.set_threads(torch.get_num_threads())
    loaded = load_target(
        name,
        device=device,
        dtype=pick_dtype(options.dtype, device),
        revision=options.revision,
        trust_remote_code=options.trust_remote_code,
    )
    return OpenedTarget(wrap_model(loaded.model, options, notes), loaded.tokenizer, notes)


def wrap_model(model: Any, options: EngineOptions, notes: list[str] | None = None) -> Target:
    """A loaded transformers model as a target: native passes where its family has them, its own modules else."""
    notes = [] if notes is None else notes
    config = compat.text_config(model.config)
    obstacle = why_not_native(model, config) if options.native is not False else "native=False"
    if not obstacle:
        return NativeTarget(model, config)
    if options.native:
        raise CapabilityError(f"native=True is not possible: {obstacle}")
    notes.append(f"decoding through torch modules: {obstacle}")
    if RECURRENT in (getattr(config, "layer_types", None) or []):
        target: HuggingFaceTarget = RecurrentTarget(model, use_native=options.native is not False)
    else:
        target = HuggingFaceTarget(model, invariant=bool(options.invariant), use_native=options.native is not False)
    if options.invariant and not target.capabilities.row_invariant:
        raise CapabilityError(
            f"invariant=True is not possible for {target.info.family} targets: {target.capabilities.why_not_invariant}"
        )
    return target
