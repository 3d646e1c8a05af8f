"""The folder of one capture: shards of rounds in safetensors and a manifest, each written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save
from torch import Tensor

from .settings import Settings

if TYPE_CHECKING:
    from .recorder import Round

SCHEMA = "draftproof.capture/1"
MANIFEST = "manifest.json"
SHARD_ROUNDS = 32
SHARD_BYTES = 64 << 20
MODE = 0o600
HASHED = "token_hashes"


class CaptureFolder:
    """``path`` is new and this process's own. Files are readable by their owner alone, since they hold prompts."""

    def __init__(self, settings: Settings, facts: dict[str, Any]) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        self.path = Path(settings.folder) / f"{stamp}-{os.getpid()}-{secrets.token_hex(2)}"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700)
        self._redact, self._key = settings.redact, secrets.token_bytes(16)
        self._shard: dict[str, Tensor] = {}
        self._pending: list[dict[str, Any]] = []
        self._bytes = 0
        self._manifest: dict[str, Any] = {
            "schema": SCHEMA,
            "complete": False,
            "stopped": None,
            "created": stamp,
            "redacted": settings.redact,
            "limits": {"rounds": settings.rounds, "bytes": settings.bytes},
            **facts,
            "weights": {},
            "files": [],
            "rounds": [],
        }

    def hash_weights(self, weights: dict[str, Tensor]) -> None:
        """Note shape, type and SHA-256 of every tensor; those named ``probe.…`` are kept as they are."""
        probes = {name: tensor.cpu().contiguous() for name, tensor in weights.items() if name.startswith("probe.")}
        for name, tensor in weights.items():
            if name not in probes:
                self._manifest["weights"][name] = describe(tensor)
        if probes:
            self._save("probes.safetensors", probes)
        self._write_manifest()

    def take(self, one: Round) -> None:
        index = len(self._manifest["rounds"]) + len(self._pending)
        tensors = {**one.tensors, **{f"prefix.{i}": ids for i, ids in one.prefixes.items()}}
        for name, tensor in tensors.items():
            kept = tensor.cpu().contiguous()
            if self._redact and (name == "token_ids" or name.startswith("prefix.")):
                name, kept = name.replace("token_ids", HASHED), self._hashed(kept)
                if name != HASHED:
                    continue
            self._shard[f"{index:06d}.{name}"] = kept
            self._bytes += kept.numel() * kept.element_size()
        self._pending.append({"requests": one.requests})
        if len(self._pending) >= SHARD_ROUNDS or self._bytes >= SHARD_BYTES:
            self.flush()

    def _hashed(self, ids: Tensor) -> Tensor:
        """Equal ids have equal hashes inside one capture; the key is kept nowhere."""

        def one(token: int) -> int:
            digest = hashlib.blake2b(token.to_bytes(8, "little", signed=True), key=self._key, digest_size=8)
            return int.from_bytes(digest.digest(), "little", signed=True)

        known = {token: one(token) for token in set(ids.tolist())}
        return torch.tensor([known[token] for token in ids.tolist()], dtype=torch.int64)

    def flush(self) -> None:
        """Write what is pending, so that an engine killed now leaves a capture behind."""
        if not self._pending:
            return
        number = sum(entry["name"].startswith("rounds") for entry in self._manifest["files"])
        name = f"rounds-{number:04d}.safetensors"
        self._save(name, self._shard)
        self._manifest["rounds"] += [{"file": name, **entry} for entry in self._pending]
        self._shard, self._pending, self._bytes = {}, [], 0
        self._write_manifest()

    def finish(self, why: str) -> None:
        self.flush()
        self._manifest |= {"complete": True, "stopped": why}
        self._write_manifest()

    def _save(self, name: str, tensors: dict[str, Tensor]) -> None:
        data = save(tensors)
        write_whole(self.path / name, data)
        self._manifest["files"].append({"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})

    def _write_manifest(self) -> None:
        write_whole(self.path / MANIFEST, (json.dumps(self._manifest, indent=1) + "\n").encode())


def write_whole(path: Path, data: bytes) -> None:
    """All of ``data`` under this name, or what was there before."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def describe(tensor: Tensor) -> dict[str, Any]:
    return {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "sha256": digest(tensor),
    }


def digest(tensor: Tensor) -> str:
    """SHA-256 of the values, row by row, as they lie in (little-endian) memory."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    found = hashlib.sha256()
    for part in flat.split(16 << 20):
        found.update(memoryview(part.numpy()))
    return found.hexdigest()
