"""Saving a training run so that a kill at any moment loses no more than the last interval."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from draftproof.errors import CheckpointError
from draftproof.train.shards import write_whole

LAST, PREVIOUS = "last.pt", "previous.pt"


def save_state(folder: Path, state: dict[str, Any]) -> Path:
    """Replace the last checkpoint; the one before is kept. Either is whole at every moment."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    last = folder / LAST
    if last.exists():
        last.replace(folder / PREVIOUS)
    write_whole(last, buffer.getvalue())
    return last


def load_state(folder: Path) -> dict[str, Any] | None:
    """The newest readable checkpoint, None if there is none. A damaged one is skipped if there is one before it."""
    files = [folder / name for name in (LAST, PREVIOUS) if (folder / name).exists()]
    for file in files:
        try:
            state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
            return state
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile):
            continue
    if files:
        raise CheckpointError(f"{files[0]}: damaged, and no earlier checkpoint is whole; start in another --out folder")
    return None
