"""The effective configuration, as the engine sees and executes it, against the drafter's file."""

from __future__ import annotations

from typing import Any

from draftproof.proof.capture.reading import Capture
from draftproof.proof.capture.replay.stages import Stage, listed
from draftproof.proof.capture.replay.truth import Truth

# Fields that change what is computed; others (dtype, architectures, transformers_version …) may differ freely.
FIELDS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "rms_norm_eps",
    "vocab_size",
    "draft_vocab_size",
    "layer_types",
    "sliding_window",
    "is_causal",
    "dflash_config",
    "attention_bias",
)


def config_stage(capture: Capture, truth: Truth, file_config: dict[str, Any]) -> Stage:
    """Field by field, then layer by layer as executed."""
    drafter, spec = capture.manifest.drafter, truth.healthy.spec
    effective = drafter.get("config")
    if not effective and not drafter.get("layers"):
        return Stage("config", "unknown", "The engine recorded no configuration.")
    found = [*_layers(drafter.get("layers"), spec), *_values(drafter, spec)]
    fields = _fields(effective or {}, file_config)
    figures: dict[str, Any] = {"fields": fields, "layers": drafter.get("layers")}
    if found:
        says = f"The engine executes something else than the file says: {listed([what for what, _ in found])}."
        return Stage("config", "wrong", says, tuple(dict.fromkeys(fault for _, fault in found)), figures)
    says = "Windows, directions, mask token and RoPE are the file's"
    if fields:
        says += f"; seen differently, without effect on a layer: {listed(fields)}"
    return Stage("config", "ok", says + ".", figures=figures)


def _layers(layers: list[dict[str, Any]] | None, spec: Any) -> list[tuple[str, str]]:
    if layers is None:
        return []
    if len(layers) != spec.num_layers:
        return [(f"{len(layers)} layers instead of {spec.num_layers}", "other:DRAFT_PATH_DEFECT")]
    by: dict[tuple[str, str], list[int]] = {}
    for i, (theirs, mine) in enumerate(zip(layers, spec.layers, strict=True)):
        window = theirs.get("window")
        if window not in (mine.window, spec.reach(i)):
            fault = "window-off-by-one" if window and mine.window and abs(window - mine.window) == 1 else None
            fault = fault or ("window-ignored" if window is None else "other:ENGINE_SWA_IGNORED")
            by.setdefault((f"window {window or 'none'} instead of {mine.window or 'none'}", fault), []).append(i)
        causal = theirs.get("causal")
        if causal is not None and bool(causal) != mine.causal:
            fault = "causality-flipped-sliding" if mine.sliding else "causality-flipped-full"
            way = "causal" if causal else "bidirectional"
            by.setdefault((f"{way} in the block, against the file", fault), []).append(i)
    return [(f"layers {', '.join(map(str, where))}: {what}", fault) for (what, fault), where in by.items()]


def _values(drafter: dict[str, Any], spec: Any) -> list[tuple[str, str]]:
    found = []
    mask = drafter.get("mask_token_id")
    if mask is not None and int(mask) != spec.mask_token_id:
        found.append((f"mask token {mask} instead of {spec.mask_token_id}", "mask-token-wrong"))
    rope = drafter.get("rope") or {}
    theta, width = rope.get("theta"), rope.get("rotary_dim")
    if theta is not None and abs(theta / spec.rope.theta - 1) > 1e-6:
        found.append((f"RoPE base {theta:g} instead of {spec.rope.theta:g}", "rope-base-wrong"))
    mine = int(spec.head_dim * spec.rope.partial_rotary_factor)
    if width is not None and int(width) != mine:
        found.append((f"{width} rotated values per head instead of {mine}", "rope-partial"))
    return found


def _fields(effective: dict[str, Any], file_config: dict[str, Any]) -> list[str]:
    """Fields of the file that the engine sees otherwise."""
    return [
        f"{name} {effective.get(name)!r} (file: {file_config[name]!r})"
        for name in FIELDS
        if name in file_config and name in effective and effective[name] != file_config[name]
    ]
