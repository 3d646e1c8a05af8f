"""The facts of a target: config, generation settings and tokenizer, from a folder, a config, a GGUF or the hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from draftproof.errors import DraftproofError, UsageError
from draftproof.proof.case import Target
from draftproof.proof.files import gguf
from draftproof.proof.files.drafter import kept_metadata, list_files
from draftproof.proof.files.hub import looks_like_id, snapshot
from draftproof.proof.files.json_file import MAX_TOKENIZER, printable, read_bytes, read_json

_EXTRA = ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "README.md")
_CARD_KEY = re.compile(r"^(base_model|base_model_relation):\s*(?:-\s*)?[\"']?([\w./-]+)?[\"']?\s*$")
_LIST_ITEM = re.compile(r"^\s*-\s*[\"']?([\w./-]+)[\"']?\s*$")
MAX_CARD = 1 << 20


@dataclass(frozen=True)
class Tokenizer:
    """``size``: number of tokens, added ones included; ``texts``: of the ids that were asked for."""

    size: int
    added: dict[int, str] = field(default_factory=dict)
    highest: int = -1


@dataclass(frozen=True)
class FoundTarget:
    target: Target
    kind: str
    origins: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    generation: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Tokenizer | None = None
    revision: str | None = None


def read_target(name: str, revision: str | None = None, *, cached_only: bool = False) -> FoundTarget:
    """The target that a user named: a folder, a config.json, a GGUF file or a hub id."""
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            return _from_folder(path, printable(path.resolve().name), printable(path))
        if path.exists():
            return _from_gguf(path) if gguf.is_gguf(path) or path.suffix == ".gguf" else _from_config(path)
    except (OSError, ValueError, RuntimeError):
        raise UsageError(f"{printable(name)}: not a usable path") from None
    if looks_like_id(name):
        found = snapshot(name, revision, extra=_EXTRA, cached_only=cached_only)
        read = _from_folder(found.folder, name, f"{name}@{(found.revision or '')[:12]}")
        return replace(read, revision=found.revision)
    raise UsageError(f"target {printable(name)}: no such file or folder, and not a hub id of the form owner/name")


def _from_config(path: Path) -> FoundTarget:
    config = read_json(path)
    name = config.data.get("_name_or_path")
    target = Target(name if isinstance(name, str) and name else None, config.data)
    return FoundTarget(target, "config", config.origins("target.config"))


def _from_folder(folder: Path, name: str, where: str) -> FoundTarget:
    file = folder / "config.json"
    if not file.exists() and not file.is_symlink():
        raise UsageError(f"target {where} has no config.json")
    config = read_json(file)
    files, notes = list_files(folder), []
    generation: Mapping[str, Any] = {}
    tokenizer = None
    try:
        if "generation_config.json" in files:
            generation = read_json(folder / "generation_config.json").data
        if "tokenizer.json" in files:
            tokenizer = read_tokenizer(folder / "tokenizer.json")
    except DraftproofError as error:  # the config alone is worth a lot
        notes.append(str(error))
    if not any(f.startswith("tokenizer") or f in ("vocab.json", "spiece.model") for f in files):
        notes.append(f"{where} has no tokenizer files: it would load without a vocabulary")
    data = {**config.data, **_card(folder, files)}
    origins = config.origins("target.config") | {"target.config.base_model": f"{where}/README.md"}
    return FoundTarget(Target(name, data), "folder", origins, tuple(notes), generation, tokenizer)


def read_tokenizer(path: Path) -> Tokenizer:
    data = read_json(path, MAX_TOKENIZER).data
    model, added = data.get("model"), {}
    entries = data.get("added_tokens")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and type(entry.get("id")) is int:
            added[entry["id"]] = str(entry.get("content"))[:80]
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids: set[int] = set(added)
    if isinstance(vocabulary, dict):
        ids.update(i for i in vocabulary.values() if type(i) is int)
    elif isinstance(vocabulary, list):
        ids.update(range(len(vocabulary)))
    return Tokenizer(len(ids), added, max(ids, default=-1))


def _card(folder: Path, files: tuple[str, ...]) -> dict[str, str]:
    """base_model and base_model_relation of the model card's header, where it has one."""
    if "README.md" not in files:
        return {}
    try:
        text = read_bytes(folder / "README.md", MAX_CARD).decode("utf-8", errors="replace")
    except DraftproofError:
        return {}
    head = text.split("---", 2)
    if len(head) < 3 or head[0].strip():
        return {}
    found: dict[str, str] = {}
    pending = None
    for line in head[1].splitlines():
        key, item = _CARD_KEY.match(line), _LIST_ITEM.match(line)
        if key is not None:
            pending = key[1] if key[2] is None else None
            if key[2]:
                found[key[1]] = key[2]
        elif item is not None and pending:
            found.setdefault(pending, item[1])
            pending = None
    # Without a relation the card's base may be what it was quantised from: nothing is concluded.
    return found


def _from_gguf(path: Path) -> FoundTarget:
    """HF names for what a GGUF knows of its model, so that one vocabulary serves both."""
    header = gguf.read_header(path)
    kept = kept_metadata(header)
    architecture = str(header.metadata.get("general.architecture"))
    names = {
        "hidden_size": "embedding_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "head_dim": "attention.key_length",
        "max_position_embeddings": "context_length",
        "vocab_size": "vocab_size",
        "rope_theta": "rope.freq_base",
    }
    data: dict[str, Any] = {
        hf: kept[f"{architecture}.{key}"] for hf, key in names.items() if f"{architecture}.{key}" in kept
    }
    for hf, key in (("eos_token_id", "eos"), ("bos_token_id", "bos"), ("pad_token_id", "padding")):
        if f"tokenizer.ggml.{key}_token_id" in kept:
            data[hf] = kept[f"tokenizer.ggml.{key}_token_id"]
    data |= {"model_type": architecture, "gguf": kept}
    name = printable(header.metadata.get("general.name") or path.name)
    where = printable(path)
    return FoundTarget(Target(name, data), "gguf", {"target.config": f"{where}: metadata"})
