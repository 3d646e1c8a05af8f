"""Result files: one JSON object with a schema version, written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from draftproof.bench.provenance import short_path
from draftproof.errors import UnavailableError, UsageError

_DIGITS = 6  # significant digits of a measurement; more would be noise


def write_result(path: Path, document: dict[str, Any]) -> Path:
    """Write ``document`` to ``path`` in one step: a reader sees the old file or the new one, never a half."""
    if not str(document.get("schema_version", "")).startswith("draftproof."):
        raise ValueError("a result needs a schema_version such as draftproof.speed/1")
    text = to_text(_publishable(document))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(part, 0o644)  # mkstemp's 0600 is for secrets
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be written ({error.strerror})") from None
    return path


def _publishable(value: Any) -> Any:
    """Plain data whose paths outside the working folder are cut to their last part: results are meant to be shown."""
    if isinstance(value, str):
        return short_path(value)
    if isinstance(value, dict):
        return {key: _publishable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_publishable(entry) for entry in value]
    return value


def read_result(path: Path) -> dict[str, Any]:
    """A result file's object. One line says what is wrong with a file that is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not a result file ({error})") from None
    if not isinstance(document, dict) or "schema_version" not in document:
        raise UsageError(f"{path}: not a result file (no schema_version)")
    return document


def to_text(document: dict[str, Any], *, indent: int | None = 1) -> str:
    return json.dumps(rounded(document), ensure_ascii=False, indent=indent, allow_nan=False) + "\n"


def rounded(value: Any) -> Any:
    """Plain data with floats cut to a few significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {str(key): rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(entry) for entry in value]
    return value
