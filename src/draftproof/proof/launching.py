"""What a launch asks for, wherever the case has it: k, speculative_config, names of the drafter's path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from draftproof.proof.case import Case
from draftproof.proof.layouts import DFLASH_FAMILY, Layout, drafter_method, layout_of
from draftproof.proof.versions import engine_name

TOP_LEVEL_BLOCK = 16  # what readers of the top level alone take


def speculative_config(case: Case) -> Mapping[str, Any]:
    given = case.engine.options.get("speculative_config")
    return given if isinstance(given, Mapping) else {}


def drafted(case: Case) -> tuple[int, str] | None:
    """k as configured, and the dotted path it stands at. SGLang's flag counts the anchor, vLLM's does not."""
    if case.k is not None:
        return case.k, "num_speculative_tokens"
    options = case.engine.options
    places = (
        (speculative_config(case).get("num_speculative_tokens"), 0, "speculative_config.num_speculative_tokens"),
        (options.get("speculative_num_draft_tokens"), _anchor(case), "speculative_num_draft_tokens"),
        (options.get("draft_length"), 0, "draft_length"),
    )
    for value, anchor, key in places:
        if type(value) is int and value > anchor:
            return value - anchor, f"engine.options.{key}"
    return None


def _anchor(case: Case) -> int:
    return 1 if engine_name(case.engine.name) == "sglang" and drafter_method(case) in ("dflash", "dflash2") else 0


def proposes(layout: Layout, method: str | None) -> int | None:
    """Tokens that one block proposes: B - 1, or B for drafters that sample from the anchor."""
    block = layout.block
    if block is None or method not in DFLASH_FAMILY:
        return None
    stated = layout.find("sample_from_anchor")
    from_anchor = stated.value if stated is not None and isinstance(stated.value, bool) else method == "dspark"
    return int(block.value) if from_anchor else int(block.value) - 1


def served_paths(case: Case) -> Iterator[tuple[str, str]]:
    """(place, path) of what vLLM looks at when it guesses the method."""
    word = case.engine.options.get("model_path_contains")
    if isinstance(word, str):
        yield "engine.options.model_path_contains", word
    model = speculative_config(case).get("model")
    if isinstance(model, str):
        yield "engine.options.speculative_config.model", model


def layout_and_method(case: Case) -> tuple[Layout, str | None]:
    return layout_of(case), drafter_method(case)
