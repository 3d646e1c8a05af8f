"""Names, shapes and types of the tensors in a folder, from safetensors headers only.

A header is 8 bytes of length and a JSON object; nothing else of a file is read, so a folder of many gigabytes
is checked in milliseconds. Truncated downloads and Git LFS pointers are told apart from real files here, in
words, before a loader trips over them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

from draftproof.drafters.values import show
from draftproof.errors import CheckpointError, UsageError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_HEADER = 100_000_000  # the format's own limit
MAX_INDEX = 64 << 20
_LFS = b"version https://git-lfs"
_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


@dataclass(frozen=True)
class TensorInfo:
    """One stored tensor. ``start`` and ``end`` are byte positions in ``file``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int = 0
    end: int = 0


def read_folder(folder: str | PathLike[str]) -> dict[str, TensorInfo]:
    """All tensors of a checkpoint folder (or of one ``.safetensors`` file)."""
    path = Path(folder)
    try:
        if path.is_file():
            return read_file(path)
        if not path.is_dir():
            raise UsageError(f"{show(str(path), 200)}: no such file or folder")
        if (path / SINGLE).is_file():
            return read_file(path / SINGLE)
        if (path / INDEX).is_file():
            return _read_sharded(path / INDEX)
        return _read_lone(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{show(str(path), 200)} cannot be read: {error}") from None


def _read_lone(folder: Path) -> dict[str, TensorInfo]:
    files = sorted(p for p in folder.glob("*.safetensors") if p.is_file())
    if len(files) == 1:
        return read_file(files[0])
    if files:
        raise CheckpointError(f"{folder} has {len(files)} safetensors files but no {INDEX}: fetch it again")
    pickled = sorted(p.name for p in folder.glob("*.bin"))
    hint = f"; {pickled[0]} is not read, convert it to safetensors" if pickled else ""
    raise CheckpointError(f"{folder} has no weights: {SINGLE} or {INDEX} is needed{hint}")


def _read_sharded(index: Path) -> dict[str, TensorInfo]:
    if index.stat().st_size > MAX_INDEX:
        raise CheckpointError(f"{index}: {index.stat().st_size} bytes is too large for an index")
    content = _parse(index, index.read_bytes())
    places = content.get("weight_map")
    if not isinstance(places, Mapping) or not places:
        raise CheckpointError(f"{index}: weight_map must be an object from tensor names to file names")
    shards: dict[str, dict[str, TensorInfo]] = {}
    found: dict[str, TensorInfo] = {}
    for tensor, name in places.items():
        if not isinstance(name, str) or not name or Path(name).name != name:
            raise CheckpointError(f"{index}: {show(name)} is not the name of a file beside the index")
        if name not in shards:
            if not (index.parent / name).is_file():
                raise CheckpointError(f"{index.parent / name} is missing, although {INDEX} names it")
            shards[name] = read_file(index.parent / name)
        if tensor not in shards[name]:
            raise CheckpointError(f"{index.parent / name} does not hold {show(tensor)}, although {INDEX} says so")
        found[tensor] = shards[name][tensor]
    return found


def read_file(path: Path) -> dict[str, TensorInfo]:
    """Tensors of one file; its size must be exactly what the header says."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        head = file.read(len(_LFS))
        if head == _LFS:
            raise CheckpointError(f"{path} is a Git LFS pointer of {size} bytes, not the weights: fetch the file")
        if size < 8:
            raise CheckpointError(f"{path} is truncated: {size} bytes, at least 8 are expected")
        length = int.from_bytes(head[:8], "little")
        if length > MAX_HEADER:
            raise CheckpointError(f"{path} is not a safetensors file: its header would be {length} bytes long")
        if 8 + length > size:
            raise CheckpointError(f"{path} is truncated: its header alone needs {8 + length} bytes, it has {size}")
        file.seek(8)
        header = _parse(path, file.read(length))
    header.pop("__metadata__", None)
    found = {name: _entry(path, name, entry, 8 + length) for name, entry in header.items()}
    _check_extent(path, found, 8 + length, size)
    return found


def _entry(path: Path, name: str, entry: Any, base: int) -> TensorInfo:
    fields = entry if isinstance(entry, Mapping) else {}
    dtype, shape, offsets = (fields.get(k) for k in ("dtype", "shape", "data_offsets"))
    if (
        not isinstance(dtype, str)
        or not (isinstance(shape, list) and all(_natural(n) for n in shape))
        or not (isinstance(offsets, list) and len(offsets) == 2 and all(_natural(n) for n in offsets))
    ):
        raise CheckpointError(f"{path}: the header's entry for {show(name)} is damaged: {show(entry)}")
    if dtype not in _BITS:
        raise CheckpointError(f"{path}: {show(name)} has the unknown type {show(dtype)}")
    needed, stored = (prod(shape) * _BITS[dtype] + 7) // 8, offsets[1] - offsets[0]
    if needed != stored:
        raise CheckpointError(
            f"{path}: {show(name)} needs {show(needed)} bytes ({dtype} {show(shape)}), "
            f"its header gives it {show(stored)}"
        )
    return TensorInfo(name, dtype, tuple(shape), path, base + offsets[0], base + offsets[1])


def _natural(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _check_extent(path: Path, tensors: Mapping[str, TensorInfo], base: int, size: int) -> None:
    """Tensors must lie end to end and fill the file, as every loader of the format demands."""
    position = base
    for info in sorted(tensors.values(), key=lambda t: (t.start, t.end)):
        if info.start != position:
            raise CheckpointError(
                f"{path}: {show(info.name)} starts at byte {info.start}, not {position}: damaged header"
            )
        position = info.end
    if position > size:
        raise CheckpointError(f"{path} is truncated: {position} bytes are expected, it has {size}; fetch it again")
    if position < size:
        raise CheckpointError(f"{path} has {size} bytes where {position} are expected: it is damaged")


def _parse(path: Path, data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data.decode("utf-8"), object_pairs_hook=lambda pairs: dict(_unique(path, pairs)))
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:  # bad UTF-8, bad JSON, endless numbers or nesting
        what = error.msg if isinstance(error, json.JSONDecodeError) else error.__class__.__name__
        raise CheckpointError(f"{path}: its header is not JSON ({what}): the file is damaged") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: its header is {show(content)}, not an object: the file is damaged")
    return content


def _unique(path: Path, pairs: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for key, value in pairs:
        if key in seen:
            raise CheckpointError(f"{path}: its header names {show(key)} twice")
        seen.add(key)
        yield key, value
