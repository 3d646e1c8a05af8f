"""The facts of a drafter: from a folder, one config.json, a GGUF file or a hub repository."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftproof.drafters.formats.safetensors_header import INDEX, SINGLE, read_folder
from draftproof.errors import UsageError
from draftproof.proof.case import Drafter
from draftproof.proof.files import gguf
from draftproof.proof.files.hub import Snapshot, looks_like_id, snapshot
from draftproof.proof.files.json_file import JsonFile, printable, read_json

MAX_LISTED = 2000
# Metadata that can be of use to a rule; texts of chat templates and the like are left out of cases.
_KEPT_TEXTS = ("general.architecture", "general.name", "general.basename", "general.type", "general.file_type")


@dataclass(frozen=True)
class Found:
    """``kind``: "folder", "config", "gguf" or "hub"; ``notes``: what could not be read, one line each."""

    drafter: Drafter
    kind: str
    origins: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    folder: Path | None = None


def read_drafter(name: str, revision: str | None = None) -> Found:
    """The drafter that a user named. Raises one-line errors for what is neither file, folder nor hub id."""
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            return _from_folder(path)
        if path.exists():
            return _from_file(path)
    except (OSError, ValueError, RuntimeError):  # a name too long, a null byte, a loop of links
        raise UsageError(f"{printable(name)}: not a usable path") from None
    if looks_like_id(name):
        return _from_hub(snapshot(name, revision))
    raise UsageError(f"{printable(name)}: no such file or folder, and not a hub id of the form owner/name")


def _from_file(path: Path) -> Found:
    if gguf.is_gguf(path):
        return from_gguf(path)
    if path.suffix == ".gguf":
        gguf.read_header(path)  # says what is wrong with it
    if path.suffix == ".safetensors":
        raise UsageError(f"{printable(path)}: give the folder, its config.json is needed as well")
    config = read_json(path)
    drafter = Drafter(name=_own_name(config.data) or None, config=config.data)
    return Found(drafter, "config", config.origins("drafter.config"))


def _from_folder(folder: Path) -> Found:
    config = read_json(_config_of(folder))
    files = list_files(folder)
    tensors, notes = _tensors(folder, files)
    origins = config.origins("drafter.config") | {"drafter.files": printable(folder)}
    if tensors is not None:
        origins["drafter.tensors"] = f"{printable(folder)}: safetensors headers"
    drafter = Drafter(name=printable(folder.resolve().name), config=config.data, tensors=tensors, files=files)
    return Found(drafter, "folder", origins, notes, folder)


def _config_of(folder: Path) -> Path:
    config = folder / "config.json"
    if config.exists() or config.is_symlink():
        return config
    models = sorted(p.name for p in folder.glob("*.gguf"))[:3]
    hint = f"; for a GGUF give the file itself: {printable(models[0])}" if models else ""
    raise UsageError(f"{printable(folder)} has no config.json{hint}")


def _tensors(folder: Path, files: tuple[str, ...]) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Names, shapes and types from the headers; None where only the config is there."""
    if not any(name.endswith(".safetensors") or name == INDEX for name in files):
        return None, (f"{printable(folder)} has no {SINGLE}: statements about tensors are left out",)
    found = read_folder(folder)
    return {name: {"shape": list(info.shape), "dtype": info.dtype} for name, info in found.items()}, ()


def list_files(folder: Path) -> tuple[str, ...]:
    """Names of the files directly in the folder; links are listed, not followed."""
    try:
        names = sorted(entry.name for entry in folder.iterdir() if not entry.is_dir())
    except OSError as error:
        raise UsageError(f"{printable(folder)} cannot be listed: {error.strerror}") from None
    return tuple(names[:MAX_LISTED])


def from_gguf(path: Path) -> Found:
    header = gguf.read_header(path)
    drafter = Drafter(
        name=printable(header.metadata.get("general.name") or path.name),
        config={"gguf": kept_metadata(header)},
        tensors=header.tensors,
        files=(path.name,),
    )
    where = printable(path)
    return Found(drafter, "gguf", {"drafter.config": f"{where}: metadata", "drafter.tensors": f"{where}: header"})


def kept_metadata(header: gguf.GgufHeader) -> dict[str, Any]:
    """Numbers, flags and short lists; long texts and vocabularies only as their length."""
    kept: dict[str, Any] = {}
    for key, value in header.metadata.items():
        short_list = isinstance(value, list) and len(value) <= 512 and not any(isinstance(v, str) for v in value)
        if key in _KEPT_TEXTS or isinstance(value, bool | int | float) or short_list:
            kept[key] = _plain(value)
    tokens = header.lengths.get("tokenizer.ggml.tokens")
    architecture = str(header.metadata.get("general.architecture"))
    if tokens and f"{architecture}.vocab_size" not in kept:
        kept[f"{architecture}.vocab_size"] = tokens
    kept["n_tensors"] = len(header.tensors)
    return kept


def _plain(value: Any) -> Any:
    """NaN and infinities, which no case can hold, become None."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _from_hub(found: Snapshot) -> Found:
    config = read_json(found.config)
    where = f"{found.name}@{found.revision[:12]}" if found.revision else found.name
    origins = {
        key: value.replace(printable(found.config), f"{where}/config.json")
        for key, value in config.origins("drafter.config").items()
    }
    drafter = Drafter(
        name=found.name, revision=found.revision, config=config.data, tensors=found.tensors, files=found.files
    )
    return Found(drafter, "hub", {**origins, "drafter.tensors": where, "drafter.files": where}, found.notes)


def _own_name(config: Mapping[str, Any]) -> str:
    name = config.get("_name_or_path")
    return name if isinstance(name, str) and len(name) < 200 and "/" in name and not name.startswith("/") else ""


__all__ = ["Found", "JsonFile", "from_gguf", "kept_metadata", "list_files", "read_drafter"]
