"""Weights in the engine's memory against the files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.native import LayerWeights
from draftproof.proof.capture.reading import Capture
from draftproof.proof.capture.recorder.folder import digest
from draftproof.proof.capture.recorder.weights import probe_rows, sample_ids
from draftproof.proof.capture.replay.stages import Stage, listed
from draftproof.proof.capture.replay.truth import Truth
from draftproof.proof.lab.faults import BITS, rounded

PROBE_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}
FEW_BITS = ("int", "uint", "float8", "float4")  # how names of quantised number formats begin
Make = Callable[[], Tensor]


def weights_stage(capture: Capture, truth: Truth) -> Stage:
    """Hash by hash; packed matrices by what they make of the probe rows."""
    if int(capture.manifest.engine.get("tensor_parallel") or 1) > 1:
        return Stage("weights", "unknown", "Weights are split over several devices, so hashes say nothing.")
    mine, recorded = expected(truth), capture.manifest.data["weights"]
    wrong: list[tuple[str, str, str]] = []
    checked = 0
    for name, make in mine.items():
        if name in recorded:
            checked += 1
            wrong += _hashed(name, recorded[name], make(), truth, capture.manifest.drafter.get("mask_token_id"))
        elif name in capture.probes:
            checked += 1
            wrong += _probed(name, capture.probes[name], make())
    absent = [name for name in mine if name not in recorded and name not in capture.probes]
    figures: dict[str, Any] = {"checked": checked, "wrong": [name for name, _, _ in wrong], "not_recorded": absent}
    if not checked:
        return Stage("weights", "unknown", "The engine recorded no weights.", figures=figures)
    if wrong:
        says = f"{len(wrong)} of {checked} tensors differ from the files: {listed([what for _, what, _ in wrong])}."
        return Stage("weights", "wrong", says, tuple(dict.fromkeys(f for _, _, f in wrong)), figures)
    says = f"All {checked} tensors in memory are the files' own"
    return Stage("weights", "ok", says + (f" ({len(absent)} were not recorded)." if absent else "."), figures=figures)


def expected(truth: Truth) -> dict[str, Make]:
    """What each recorded name must hold, made when it is asked for."""
    w, spec = truth.healthy.weights, truth.healthy.spec
    table = truth.target.embedding if w.embedding is None else w.embedding
    found: dict[str, Make] = {
        "fc.weight": lambda: w.fc,
        "hidden_norm.weight": lambda: w.hidden_norm,
        "norm.weight": lambda: w.norm,
        "lm_head.weight": lambda: w.head if w.head is not None else _target_head(truth),
        "mask_row": lambda: table[spec.mask_token_id] if w.mask_embedding is None else w.mask_embedding,
        "embedding_sample": lambda: table[torch.tensor(sample_ids(len(table)), device=table.device)],
    }
    for i, layer in enumerate(w.layers):
        found |= {f"layers.{i}.{name}.weight": make for name, make in _of_layer(layer).items()}
    ids = w.draft_to_target
    if ids is not None:
        found["d2t"] = lambda: ids - torch.arange(len(ids), device=ids.device)
    return found


def _of_layer(layer: LayerWeights) -> dict[str, Make]:
    q_norm, k_norm = layer.q_norm, layer.k_norm
    found: dict[str, Make] = {
        "self_attn.qkv_proj": lambda: torch.cat([layer.q, layer.k, layer.v]),
        "self_attn.o_proj": lambda: layer.o,
        "mlp.gate_up_proj": lambda: torch.cat([layer.gate, layer.up]),
        "mlp.down_proj": lambda: layer.down,
        "input_layernorm": lambda: layer.input_norm,
        "post_attention_layernorm": lambda: layer.post_norm,
    }
    if q_norm is not None:
        found["self_attn.q_norm"] = lambda: q_norm
    if k_norm is not None:
        found["self_attn.k_norm"] = lambda: k_norm
    return found


def _target_head(truth: Truth) -> Tensor:
    model = getattr(truth.target, "model", None)
    head = model.get_output_embeddings() if model is not None else None
    return truth.target.embedding if head is None else head.weight


def _hashed(
    name: str, entry: dict[str, Any], mine: Tensor, truth: Truth, their_mask: int | None
) -> list[tuple[str, str, str]]:
    shape = list(mine.shape)
    if entry.get("sha256") == digest(mine):
        return []
    theirs = list(entry.get("shape") or [])
    if theirs[1:] == shape[1:] and theirs and theirs[0] > shape[0]:  # rows that kernels want for their own sake
        padded = torch.cat([mine, mine.new_zeros(theirs[0] - shape[0], *shape[1:])])
        if entry.get("sha256") == digest(padded):
            return []
    if theirs != shape:
        return [(name, f"{name} has shape {theirs} instead of {shape}", _fault(name, "shape"))]
    if entry.get("dtype") != str(mine.dtype).removeprefix("torch."):
        fault = "quantised-badly" if str(entry.get("dtype")).startswith(FEW_BITS) else _fault(name, "dtype")
        return [(name, f"{name} is kept as {entry.get('dtype')}, not {mine.dtype}", fault)]
    kind = _what(name, entry["sha256"], mine, truth, their_mask)
    return [(name, f"{name} is {kind[0]}", kind[1])]


def _what(name: str, theirs: str, mine: Tensor, truth: Truth, their_mask: int | None) -> tuple[str, str]:
    """What is there instead, as far as a hash can tell."""
    if theirs == digest(torch.zeros_like(mine)):
        return "all zeros", _fault(name, "zeros")
    if name == "lm_head.weight":
        for label, table in (("embedding", truth.target.embedding), ("head", _target_head(truth))):
            if table.shape[1] == mine.shape[1] and len(table) >= len(mine) and theirs == digest(table[: len(mine)]):
                return f"the target's {label}, its first {len(mine)} rows", "head-overwritten"
    table, mask = truth.target.embedding, truth.healthy.spec.mask_token_id
    if name == "mask_row" and their_mask not in (None, mask) and theirs == digest(table[their_mask]):
        return f"the row of token {their_mask}, not that of the mask token {mask}", "mask-token-wrong"
    if name == "mask_row" and theirs == digest(table[mask]):
        return "the table's row, not the released mask vector", "other:MASK_EMBEDDING_NOT_LOADED"
    if mine.dim() == 2 and theirs == digest(rounded(mine)):
        return f"the file's, rounded to {BITS} bits a row", "quantised-badly"
    return "neither the file's nor zeros", _fault(name, "other")


def _fault(name: str, kind: str) -> str:
    if name == "lm_head.weight":
        return "head-random"
    if name == "mask_row":
        return "mask-row-zero" if kind == "zeros" else "embedding-scaled"
    if name == "embedding_sample":
        return "embedding-scaled"
    if name == "d2t":
        return "vocabulary-unmapped"
    return "other:DRAFT_PATH_DEFECT"


def _probed(name: str, theirs: Tensor, mine: Tensor) -> list[tuple[str, str, str]]:
    rows = probe_rows(mine.shape[1]).to(mine.device, mine.dtype)
    if theirs.shape[-1] != mine.shape[0]:
        return [(name, f"{name} gives {theirs.shape[-1]} values instead of {mine.shape[0]}", _fault(name, "shape"))]
    right = F.linear(rows, mine).float().cpu()
    error = float((theirs - right).norm() / right.norm().clamp(min=1e-12))
    if error <= PROBE_TOLERANCE.get(mine.dtype, 3e-2):
        return []
    return [(name, f"{name} computes something else (relative error {error:.1e})", "other:DRAFT_PATH_DEFECT")]
