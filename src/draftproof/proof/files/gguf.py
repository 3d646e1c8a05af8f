"""The header of a GGUF file: metadata and tensor shapes. No tensor data is read, no other package is needed.

Layout (ggml's docs/gguf.md): magic, version, counts, then key-value pairs and one record per tensor, little-endian.
Vocabulary lists are counted, not kept.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from draftproof.errors import CheckpointError
from draftproof.proof.files.json_file import printable

MAGIC = b"GGUF"
MAX_HEADER, MAX_PAIRS, MAX_TENSORS, MAX_TEXT, MAX_KEPT = 256 << 20, 100_000, 1_000_000, 16 << 20, 4096
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ARRAY = 8, 9
_TYPES = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K",
          12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 24: "I8", 26: "I32", 27: "I64", 30: "BF16"}  # fmt: skip


@dataclass(frozen=True)
class GgufHeader:
    """``metadata``: values by key; ``lengths``: of lists too long to keep; ``tensors``: name → shape (rows first, as
    in safetensors) and dtype."""

    metadata: dict[str, Any] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    tensors: dict[str, dict[str, Any]] = field(default_factory=dict)


class _Reader:
    """Reads from a file, never past its end nor past the most a header may have."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file, self.name, self.read_so_far = file, name, 0

    def take(self, count: int) -> bytes:
        self.read_so_far += count
        if count > MAX_TEXT or self.read_so_far > MAX_HEADER:
            raise CheckpointError(f"{self.name}: its GGUF header is larger than any real one: damaged")
        data = self.file.read(count)
        if len(data) != count:
            raise CheckpointError(f"{self.name} is truncated inside its GGUF header")
        return data

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        return self.take(self.number("<Q")).decode("utf-8", errors="replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        """A value; a list longer than can be of use becomes its length."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY or depth > 3:
            raise CheckpointError(f"{self.name}: unknown GGUF value type {kind}: damaged or too new")
        inner, count = self.number("<I"), self.number("<Q")
        if count <= MAX_KEPT:
            return [self.value(inner, depth + 1) for _ in range(count)]
        if inner in _SCALARS:
            self.skip(count * struct.calcsize(_SCALARS[inner]))
        elif inner == _TEXT:
            self.skip_texts(count)
        else:
            for _ in range(count):
                self.value(inner, depth + 1)
        return _Long(count)

    def skip(self, count: int) -> None:
        while count:
            step = min(count, MAX_TEXT)
            self.take(step)
            count -= step

    def skip_texts(self, count: int) -> None:
        """A vocabulary has hundreds of thousands of words: the one place where time counts."""
        read, length_of = self.file.read, struct.Struct("<Q").unpack
        for _ in range(count):
            head = read(8)
            if len(head) != 8:
                raise CheckpointError(f"{self.name} is truncated inside its GGUF header")
            (length,) = length_of(head)
            self.read_so_far += 8 + length
            if length > MAX_TEXT or self.read_so_far > MAX_HEADER or len(read(length)) != length:
                raise CheckpointError(f"{self.name}: its GGUF header is damaged (a text of {length} bytes)")


class _Long(int):
    """The length of a list that was not kept."""


def is_gguf(path: Path) -> bool:
    try:
        if not path.is_file():  # a pipe would block
            return False
        with path.open("rb") as file:
            return file.read(4) == MAGIC
    except OSError:
        return False


def read_header(path: Path) -> GgufHeader:
    """Metadata and tensors. Raises CheckpointError naming the file for anything that is no whole header."""
    name = printable(path)
    try:
        if not path.is_file():
            raise CheckpointError(f"{name}: not a regular file")
        with path.open("rb") as file:
            return _header(_Reader(file, name))
    except OSError as error:
        raise CheckpointError(f"{name} cannot be read: {error.strerror or error}") from None


def _header(reader: _Reader) -> GgufHeader:
    if reader.take(4) != MAGIC:
        raise CheckpointError(f"{reader.name} is not a GGUF file")
    version = reader.number("<I")
    if version not in (2, 3):
        raise CheckpointError(f"{reader.name}: GGUF version {version} is not read: versions 2 and 3 are")
    tensor_count, pair_count = reader.number("<Q"), reader.number("<Q")
    if tensor_count > MAX_TENSORS or pair_count > MAX_PAIRS:
        raise CheckpointError(f"{reader.name}: {tensor_count} tensors and {pair_count} keys: damaged header")
    found = GgufHeader()
    for _ in range(pair_count):
        key = reader.text()
        value = reader.value(reader.number("<I"))
        if isinstance(value, _Long):
            found.lengths[key] = int(value)
        else:
            found.metadata[key] = value
            if isinstance(value, list):
                found.lengths[key] = len(value)
    for _ in range(tensor_count):
        key = reader.text()
        dimensions = reader.number("<I")
        if dimensions > 8:
            raise CheckpointError(f"{reader.name}: tensor {printable(key)} has {dimensions} dimensions: damaged")
        shape = [reader.number("<Q") for _ in range(dimensions)]
        kind, _ = reader.number("<I"), reader.number("<Q")
        found.tensors[key] = {"shape": shape[::-1], "dtype": _TYPES.get(kind, f"type {kind}")}
    return found
