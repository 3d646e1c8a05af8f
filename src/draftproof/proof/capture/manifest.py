"""The manifest of a capture, read and checked without torch. The format: docs/capture.md."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.errors import DraftproofError

SCHEMA = "draftproof.capture/1"
MANIFEST = "manifest.json"
MAX_BYTES = 64 << 20
# Tensors of a round: name → (needed, what it holds). R rows, B requests, N drafted tokens, k taps of width H.
TENSORS = {
    "positions": (True, "[R] positions of the target's rows"),
    "query_start": (True, "[B + 1] first row of every request"),
    "rejected": (True, "[B] last rows of a request that were not committed"),
    "taps": (True, "[R, k × H] as given to the drafter"),
    "anchors": (True, "[B] last committed token"),
    "drafts": (True, "[B, N] drafted tokens"),
    "token_ids": (False, "[R] ids of the rows; left out of redacted captures"),
    "token_hashes": (False, "[R] keyed hashes of them instead"),
    "block_ids": (False, "[B, N + 1] the block's inputs as they were run"),
    "block_positions": (False, "[B, N + 1] and their positions"),
    "context_positions": (False, "[R] positions that context keys were made for"),
    "top_ids": (False, "[B, N, t] tokens of the largest draft logits"),
    "top_logits": (False, "[B, N, t] those logits"),
}
_NEEDED = {"engine": dict, "target": dict, "drafter": dict, "weights": dict, "files": list, "rounds": list}


class CaptureError(DraftproofError):
    """A capture that cannot be used: names file, value and remedy."""


@dataclass(frozen=True)
class Manifest:
    """``path``: the folder; ``data``: the checked JSON."""

    path: Path
    data: dict[str, Any]

    @property
    def engine(self) -> dict[str, Any]:
        return dict(self.data["engine"])

    @property
    def engine_name(self) -> str:
        engine = self.engine
        return " ".join(str(engine[key]) for key in ("name", "version") if engine.get(key)) or "an unnamed engine"

    @property
    def drafter(self) -> dict[str, Any]:
        return dict(self.data["drafter"])

    @property
    def redacted(self) -> bool:
        return bool(self.data.get("redacted"))

    @property
    def complete(self) -> bool:
        return bool(self.data.get("complete"))

    @property
    def rounds(self) -> int:
        return len(self.data["rounds"])


def find(path: Path) -> Path:
    """The folder with the manifest: ``path`` itself or the only capture in it."""
    if not path.is_dir():
        raise CaptureError(f"{path}: no such folder; give the one that draftproof capture printed")
    if (path / MANIFEST).is_file():
        return path
    inside = sorted(folder.parent for folder in path.glob(f"*/{MANIFEST}"))
    if len(inside) == 1:
        return inside[0]
    if not inside:
        raise CaptureError(f"{path}: no {MANIFEST} in it; the engine drafted nothing, or is not done with round one")
    names = ", ".join(folder.name for folder in inside[:4])
    raise CaptureError(f"{path}: {len(inside)} captures in it ({names} …); name one of them")


def read_manifest(path: Path) -> Manifest:
    """Checked as far as it goes without opening a tensor. Raises CaptureError."""
    folder = find(path)
    file = folder / MANIFEST
    try:
        if file.stat().st_size > MAX_BYTES:
            raise CaptureError(f"{file}: {file.stat().st_size} bytes are no manifest")
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CaptureError(f"{file}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise CaptureError(f"{file}: not JSON, so it is damaged; capture again") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        schema = data.get("schema") if isinstance(data, dict) else None
        raise CaptureError(f"{file}: schema is {schema!r}, this draftproof reads {SCHEMA}; use the one that wrote it")
    for key, kind in _NEEDED.items():
        if not isinstance(data.get(key), kind):
            raise CaptureError(f"{file}: {key!r} is missing or of another kind; capture again")
    _check_files(folder, data)
    return Manifest(folder, data)


def _check_files(folder: Path, data: dict[str, Any]) -> None:
    names = {entry.get("name") for entry in data["files"] if isinstance(entry, dict)}
    for entry in data["files"]:
        name, size = entry.get("name"), entry.get("bytes")
        if not isinstance(name, str) or Path(name).name != name:
            raise CaptureError(f"{folder / MANIFEST}: {name!r} is no file name of a capture")
        file = folder / name
        if not file.is_file():
            raise CaptureError(f"{file}: missing; the capture was not copied whole")
        if file.stat().st_size != size:
            raise CaptureError(f"{file}: {file.stat().st_size} bytes, written were {size}; it is truncated")
    for number, entry in enumerate(data["rounds"]):
        if not isinstance(entry, dict) or entry.get("file") not in names or not isinstance(entry.get("requests"), list):
            raise CaptureError(f"{folder / MANIFEST}: round {number} names no file of the capture")


def verify(manifest: Manifest) -> None:
    """Every file holds what was written. Raises CaptureError with the first that does not."""
    for entry in manifest.data["files"]:
        file = manifest.path / entry["name"]
        found = hashlib.sha256()
        with file.open("rb") as stream:
            while part := stream.read(16 << 20):
                found.update(part)
        if found.hexdigest() != entry.get("sha256"):
            raise CaptureError(f"{file}: its content is not what was written; copy or capture it again")
