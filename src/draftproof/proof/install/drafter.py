"""A drafter's config.json, to be sent through an engine's shipped functions: a folder, the file itself, or a hub id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from draftproof.errors import CheckpointError, UnavailableError

MAX_BYTES = 1 << 20  # a config.json of more is none


def read_config(name: str) -> dict[str, Any]:
    """The object in it. Raises with one line: what is wrong, where, what is allowed."""
    file = _file(name)
    try:
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise CheckpointError(f"{file}: {size} bytes; a drafter's config.json has at most {MAX_BYTES}")
        value = json.loads(file.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{file}: not UTF-8 text at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{file}: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise CheckpointError(f"{file}: nested too deeply for a config.json") from None
    except ValueError as error:
        raise CheckpointError(f"{file}: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{file}: a config.json is an object, this is a {type(value).__name__}")
    return value


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def _file(name: str) -> Path:
    path = Path(name)
    if path.is_file():
        return path
    if path.is_dir():
        return path / "config.json"
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise CheckpointError(f"{name}: no such folder or config.json (a hub id has the form owner/name)")
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(name, "config.json"))
    except Exception as error:
        raise UnavailableError(f"{name}: config.json did not come from the hub ({type(error).__name__})") from None
