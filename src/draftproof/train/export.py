"""A drafter's folder as it is published: configuration, weights, where they come from, and a card for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftproof.drafters.formats import read_spec
from draftproof.drafters.formats.writing import notes, write_config
from draftproof.drafters.spec import DrafterSpec
from draftproof.drafters.tensors import WeightsInfo, check_tensors, expected_tensors
from draftproof.errors import UsageError
from draftproof.train.card import model_card
from draftproof.train.shards import no_space, write_whole

WEIGHTS, CONFIG, PROVENANCE, CARD = "model.safetensors", "config.json", "provenance.json", "README.md"


def export_drafter(
    folder: Path,
    spec: DrafterSpec,
    weights: Mapping[str, Tensor],
    *,
    form: str = "zlab",
    keep: Tensor | None = None,
    head: Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
    provenance: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``spec`` and ``weights`` (checkpoint names) to ``folder``; read back and checked before it returns.

    ``keep`` [draft vocabulary] target ids and ``head`` [V, H]: a reduced vocabulary's map and its rows of the head.
    """
    tensors = {name: value.detach().to("cpu", dtype).contiguous() for name, value in weights.items()}
    if spec.draft_vocab_size is not None:
        if keep is None or head is None:
            raise ValueError("a reduced draft vocabulary needs keep and head")
        tensors |= reduced_head(keep.cpu(), head[keep.to(head.device)].to("cpu", dtype), spec.vocab_size)
    write_folder(folder, write_config(spec, form, dtype=str(dtype).removeprefix("torch.")), tensors)
    if provenance is not None:
        write_whole(folder / PROVENANCE, (json.dumps(provenance, indent=1) + "\n").encode())
        write_whole(folder / CARD, model_card(spec, form, provenance).encode())
    check_tensors(read_spec(folder), folder)
    return folder


def reduced_head(keep: Tensor, rows: Tensor, vocab: int) -> dict[str, Tensor]:
    """``lm_head.weight``, ``d2t`` (offsets: target id = i + d2t[i]) and ``t2d`` (which target ids can be drafted)."""
    return {
        "lm_head.weight": rows.contiguous(),
        "d2t": keep - torch.arange(len(keep)),
        "t2d": torch.zeros(vocab, dtype=torch.bool).index_fill(0, keep, True),
    }


def write_folder(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Weights first: a folder with a configuration is complete."""
    from safetensors.torch import save

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise no_space(folder, error) from error
    write_whole(folder / WEIGHTS, save(dict(tensors), metadata={"format": "pt"}))
    write_whole(folder / CONFIG, (json.dumps(config, indent=1) + "\n").encode())


def convert(source: Path, destination: Path, form: str) -> list[str]:
    """Write the drafter in ``source`` (any format that is read) to ``destination`` in format ``form``.

    Returns what to know about the result, one sentence each. Weights keep their type; nothing is overwritten.
    """
    if destination.exists() and any(destination.iterdir() if destination.is_dir() else [destination]):
        raise UsageError(f"{destination}: exists already; name a new folder")
    spec = read_spec(source)
    info = check_tensors(spec, source)
    origin = _origin(source)
    if not spec.target_name and "target" in origin:
        spec = replace(spec, target_name=origin["target"])
    config = write_config(spec, form, dtype={"F32": "float32", "F16": "float16"}.get(info.dtype, "bfloat16"))
    write_folder(destination, config, _wanted(spec, info, form))
    if origin:
        write_whole(destination / PROVENANCE, (json.dumps(origin, indent=1) + "\n").encode())
        write_whole(destination / CARD, model_card(spec, form, origin).encode())
    check_tensors(read_spec(destination), destination)
    said = notes(spec, form)
    if form == "speculators" and not spec.target_name:
        said.append("the source does not name its target: fill in speculators_config.verifier in config.json")
    return said


def _origin(source: Path) -> dict[str, Any]:
    """A folder's provenance, empty if it has none that can be read."""
    try:
        found = json.loads((source / PROVENANCE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _wanted(spec: DrafterSpec, info: WeightsInfo, form: str) -> dict[str, Tensor]:
    """Tensors under plain names. speculators leaves the embedding to the target."""
    from safetensors import safe_open

    names = [*expected_tensors(spec), *(n for n in ("t2d", "lm_head.weight", "mask_embedding") if n in info.tensors)]
    if form == "zlab" and "embed_tokens.weight" in info.tensors:
        names.append("embed_tokens.weight")
    found: dict[str, Tensor] = {}
    for name in dict.fromkeys(names):
        entry = info.tensors[name]
        with safe_open(str(entry.file), framework="pt") as handle:
            found[name] = handle.get_tensor(entry.name)
    if "d2t" in found and "t2d" not in found:
        keep = found["d2t"].long() + torch.arange(len(found["d2t"]))
        found["t2d"] = torch.zeros(spec.vocab_size, dtype=torch.bool).index_fill(0, keep, True)
    return found
