"""The remedy of a cause as something to type or a line to change, for the engine of the case."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib import resources
from typing import Any

from draftproof.proof.case import Case
from draftproof.proof.comparing import fact
from draftproof.proof.layouts import drafter_method, layout_of
from draftproof.proof.quantities import acceptance, number
from draftproof.proof.versions import build_of


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, str]]:
    text = resources.files("draftproof.proof").joinpath("data/commands.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def command(case: Case, code: str) -> str:
    """Empty where there is none for the engine, or where a word in it is not known."""
    by_engine = _table().get(code, {})
    line = by_engine.get(build_of(case).engine or "") or by_engine.get("any", "")
    if not line:
        return ""
    try:
        return line.format_map(_words(case))
    except KeyError:
        return ""


def _words(case: Case) -> dict[str, Any]:
    """What is known of the case, under the names that the table uses."""
    found: dict[str, Any] = {}
    it, layout = acceptance(case), layout_of(case)
    if it.k and it.k_sure and it.k >= 2:
        half = int(it.k) // 2
        found |= {"half": half, "half_block": half + 1}
        found["sizes"] = ", ".join(str((int(it.k) + 1) * n) for n in (1, 2, 4, 8, 16))
        streams = number(case.engine.options, "max_num_seqs")
        if streams:
            found["rows"] = 2048 + int(streams) * (int(it.k) + 1)
    block = layout.integer("block_size")
    if block is not None and block >= 2:
        found |= {"block": block, "most": block - 1}
    positions = (case.drafter.config or {}).get("max_position_embeddings")
    if isinstance(positions, int):
        found["positions"] = positions
    own = drafter_method(case)
    if own:
        found["method"] = "dflash" if own == "dflash2" else own  # vLLM's name for both
    for name, value in (("drafter", case.drafter.name), ("target", case.target.name)):
        if value:
            found[name] = value
    thinking = fact(case, "thinking")
    if isinstance(thinking, bool):
        found["thinking"] = "false" if thinking else "true"
    return found
