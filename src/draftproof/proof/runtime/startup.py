"""What a server says about itself when it starts: engine, version, method, drafted tokens."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, field
from typing import Any

_VLLM = re.compile(r"vLLM API server version (\S+)|Initializing a V\d LLM engine \(v(\S+?)\)")
_SPECULATIVE = re.compile(r"'speculative_config':\s*(\{[^{}]*\})|speculative_config=SpeculativeConfig\(([^)]*)\)")
_SGLANG = re.compile(r"server_args=ServerArgs\(")
_SGLANG_ARGUMENT = re.compile(r"\b(speculative_\w+|tp_size|context_length|version)=('[^']*'|[\w.]+)")
_LLAMA = re.compile(r"\bbuild:\s*(\d+)\s*\(([0-9a-f]+)\)")
_LLAMA_DRAFT = re.compile(r"common_speculative_impl_draft_(\w+):\s*-?\s*(.*)")
_PAIR = re.compile(r"(\w+)=([\w.]+)")
_METHODS = {"DFLASH": "dflash", "EAGLE": "eagle", "EAGLE3": "eagle3", "NEXTN": "mtp", "DSPARK": "dspark"}


@dataclass
class Startup:
    """``options`` in the words of a case; ``places``: field → where it was read."""

    engine: str | None = None
    version: str | None = None
    method: str | None = None
    k: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    gguf: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    @property
    def found(self) -> bool:
        return bool(self.engine or self.version or self.options or self.gguf)

    def line(self, line: str, place: str) -> bool:
        """Take what the line says; True if it is the first line of a server's start."""
        if found := _VLLM.search(line):
            self._set("engine", "vllm", place)
            self._set("version", found.group(1) or found.group(2), place)
            return found.group(1) is not None
        if found := _SPECULATIVE.search(line):
            self._speculative(found.group(1), found.group(2), place)
        elif _SGLANG.search(line):
            self._sglang(dict(_SGLANG_ARGUMENT.findall(line)), place)
            return True
        elif found := _LLAMA.search(line):
            self._set("engine", "llama.cpp", place)
            self._set("version", f"b{found.group(1)}", place)
            self.options["commit"] = found.group(2)
            return True
        elif found := _LLAMA_DRAFT.search(line):
            self._llama(found.group(1), dict(_PAIR.findall(found.group(2))), place)
        return False

    def _set(self, name: str, value: Any, place: str) -> None:
        setattr(self, name, value)
        self.places[name] = place

    def _speculative(self, mapping: str | None, call: str | None, place: str) -> None:
        config = _literal(mapping) if mapping else dict(_PAIR.findall((call or "").replace("'", "")))
        if not config:
            return
        self.options["speculative_config"] = config
        self.places["options.speculative_config"] = place
        self._set("engine", self.engine or "vllm", place)
        if isinstance(config.get("method"), str):
            self._set("method", config["method"], place)
        self._count(config.get("num_speculative_tokens", config.get("num_spec_tokens")), place)

    def _sglang(self, arguments: dict[str, str], place: str) -> None:
        self._set("engine", "sglang", place)
        clean = {name: text.strip("'") for name, text in arguments.items() if text not in ("None", "'None'")}
        algorithm = clean.get("speculative_algorithm", "").upper()
        if algorithm:
            self.options["speculative_algorithm"] = algorithm
            self._set("method", _METHODS.get(algorithm, algorithm.lower()), place)
        tokens = clean.get("speculative_num_draft_tokens", "")
        if tokens.isdigit():
            self.options["speculative_num_draft_tokens"] = int(tokens)
            if algorithm == "DFLASH":
                self._count(int(tokens) - 1, place)  # the verify window counts the anchor

    def _llama(self, kind: str, pairs: dict[str, str], place: str) -> None:
        self._set("engine", self.engine or "llama.cpp", place)
        self._set("method", self.method or ("draft_model" if kind == "simple" else kind), place)
        self._count(pairs.get("n_max"), place)
        for name, key in (("block_size", "dflash.block_size"), ("mask_token_id", "mask_token_id"), ("n_extract",) * 2):
            if pairs.get(name, "").lstrip("-").isdigit():
                self.gguf[key] = int(pairs[name])
                self.places["drafter.config"] = place
        if float_of(pairs.get("p_min")) == 0.0:
            self.options.setdefault("spec_draft_p_min", 0.0)

    def _count(self, value: Any, place: str) -> None:
        if isinstance(value, int) or (isinstance(value, str) and value.isdigit()):
            self._set("k", int(value), place)


def float_of(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _literal(text: str) -> dict[str, Any]:
    for read in (ast.literal_eval, json.loads):
        try:
            found = read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return found if isinstance(found, dict) else {}
    return {}
