"""Reading a drafter's configuration, whichever of the known formats it is in.

Works on the raw JSON: a Hugging Face config object forgets ``sliding_window`` and moves RoPE values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from draftproof.drafters.formats import modelopt, speculators, zlab
from draftproof.drafters.formats.zlab import build_target_layer_ids
from draftproof.drafters.spec import DrafterSpec
from draftproof.drafters.values import show
from draftproof.errors import CheckpointError, SpecError, UsageError

__all__ = ["build_target_layer_ids", "detect_format", "read_config", "read_spec"]

MAX_CONFIG_BYTES = 4 << 20  # real ones are a few kilobytes
_KNOWN_ARCHITECTURES = ("DFlash", "DSpark", "Domino", "LiLiCorr", "XPress")
_READERS = {"z-lab": zlab.read, "modelopt": modelopt.read, "speculators": speculators.read}


def read_spec(source: str | PathLike[str] | Mapping[str, Any]) -> DrafterSpec:
    """The drafter described by a folder with a ``config.json``, by that file, or by its parsed content."""
    if isinstance(source, Mapping):
        return _read(source)
    if not isinstance(source, str | PathLike):
        raise UsageError(f"{show(source)} is not a drafter: give a folder, a config.json or its parsed content")
    path = config_path(source)
    config = read_config(path)
    try:
        return _read(config)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


def detect_format(config: Mapping[str, Any]) -> str:
    """ "z-lab", "modelopt" or "speculators"; an error if this is no drafter at all."""
    if speculators.looks_like(config):
        return "speculators"
    if modelopt.looks_like(config):
        return "modelopt"
    architectures = config.get("architectures")
    names = architectures if isinstance(architectures, list | tuple) else []
    if "dflash_config" in config or any(k in str(n) for n in names[:8] for k in _KNOWN_ARCHITECTURES):
        return "z-lab"
    if "target_layer_ids" in config and "mask_token_id" in config:
        return "z-lab"  # older files have everything at top level
    what = f"architectures={show(list(names))}" if names else f"keys {show(sorted(map(str, config))[:8])}"
    raise SpecError(
        f"not a DFlash drafter ({what}): its config.json would have dflash_config (z-lab, modelopt) or "
        "speculators_model_type; a target model's config does not"
    )


def config_path(source: str | PathLike[str]) -> Path:
    """The ``config.json`` meant by a folder or file name."""
    path = Path(source)
    try:
        if path.is_dir():
            path = path / "config.json"
            if not path.is_file():
                raise CheckpointError(
                    f"{path.parent} has no config.json: a drafter folder holds one beside its weights"
                )
        elif not path.exists():
            raise UsageError(f"{show(str(path), 200)}: no such file or folder")
    except (OSError, ValueError) as error:  # a name too long, or with a null byte
        raise UsageError(f"{show(str(path))} is not a usable path: {error.__class__.__name__}") from None
    return path


def read_config(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``; every way of being unreadable is one line with the place in the file."""
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_CONFIG_BYTES else b""
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
    if size > MAX_CONFIG_BYTES:
        raise SpecError(f"{path}: {size} bytes is too large for a drafter's config.json")
    config = _parse(path, data)
    if not isinstance(config, dict) or not config:
        raise SpecError(f"{path}: a drafter's config is a JSON object with settings, not {show(config)}")
    return config


def _parse(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        reason = f"not JSON: {error.msg}" if data.strip() else "is empty"
        raise SpecError(f"{path}, line {error.lineno}, column {error.colno}: {reason}") from None
    except SpecError as error:  # a repeated key
        raise SpecError(f"{path}: {error}") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number of thousands of digits
        raise SpecError(f"{path}: not a usable config ({error.__class__.__name__})") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise SpecError(f"key {show(key)} appears twice in one object")
        found[key] = value
    return found


def _read(config: Mapping[str, Any]) -> DrafterSpec:
    if not config:
        raise SpecError("the config is empty")
    try:
        return _READERS[detect_format(config)](config)
    except RecursionError:
        raise SpecError("the config is nested too deeply") from None
