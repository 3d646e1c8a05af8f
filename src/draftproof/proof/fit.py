"""Does a drafter fit a target? One row per thing that has to agree, from two configurations and a tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from draftproof.proof.card import rope_text
from draftproof.proof.case import Case
from draftproof.proof.files.target import FoundTarget
from draftproof.proof.layouts import Layout, layout_of, rope_scaling, target_integer, target_text
from draftproof.proof.names import same_model
from draftproof.proof.traits import gemma_target

State = Literal["fits", "differs", "note", "unknown"]
SIGNS: dict[State, str] = {"fits": "fits", "differs": "differs", "note": "look", "unknown": "cannot tell"}
_QUANT_KEYS = ("quant_method", "quant_algo", "quantization")


@dataclass(frozen=True)
class FitRow:
    what: str
    drafter: str
    target: str
    state: State
    remark: str = ""

    def to_dict(self) -> dict[str, str]:
        return dict(vars(self))


def fit(case: Case, found: FoundTarget, codes: frozenset[str]) -> list[FitRow]:
    """Rows in the order of a load. ``codes``: findings that hold; a row never contradicts one."""
    layout = layout_of(case)
    parts: tuple[Callable[..., Iterator[FitRow]], ...] = (
        _width, _vocabulary, _depth, _mask, _dtype, _rope, _embeddings, _name, _quantisation
    )  # fmt: skip
    return [row for part in parts for row in part(case, layout, found, codes)]


def _width(case: Case, layout: Layout, found: FoundTarget, codes: frozenset[str]) -> Iterator[FitRow]:
    own = layout.integer("target_hidden_size") or layout.integer("hidden_size")
    yield _same("tap width", own, target_integer(case, "hidden_size"), "PAIR_MISMATCH" in codes)


def _vocabulary(case: Case, layout: Layout, found: FoundTarget, codes: frozenset[str]) -> Iterator[FitRow]:
    own, target = layout.vocab_size, target_integer(case, "vocab_size")
    row = _same("vocabulary", own, target, "PAIR_MISMATCH" in codes)
    if row.state == "note":
        row = FitRow(row.what, row.drafter, row.target, "note", "taken for padding of the table")
    yield row
    size = found.tokenizer.highest + 1 if found.tokenizer is not None else None
    if size is not None and target is not None:
        fits = size <= target
        yield FitRow(
            "tokenizer",
            "",
            f"{size} ids",
            "fits" if fits else "differs",
            "" if fits else f"the table has {target} rows",
        )


def _depth(case: Case, layout: Layout, found: FoundTarget, codes: frozenset[str]) -> Iterator[FitRow]:
    own, target = layout.integer("num_target_layers"), target_integer(case, "num_hidden_layers")
    taps = layout.hidden_state_taps
    if own is None and taps is not None and target is not None:
        inside = max(taps) <= target and min(taps) >= 0
        yield FitRow("layers", f"reads up to {max(taps)}", str(target), "fits" if inside else "differs")
        return
    yield _same("layers", own, target, True)


def _mask(case: Case, layout: Layout, found: FoundTarget, codes: frozenset[str]) -> Iterator[FitRow]:
    mask = layout.mask
    rows = target_integer(case, "vocab_size")
    if mask is None or type(mask.value) is not int:
        yield FitRow("mask token", "not stated" if mask is None else str(mask.value)[:40], "", "unknown")
        return
    text = found.tokenizer.added.get(mask.value) if found.tokenizer is not None else None
    inside = rows is None or 0 <= mask.value < rows
    remark = f"is {text!r}" if text else ""
    if inside and found.tokenizer is not None and mask.value > found.tokenizer.highest:
        remark = "a padded row of the table, no token of the tokenizer"
    special = "MASK_TOKEN_IS_SPECIAL" in codes or mask.value in _ids(found.generation.get("eos_token_id"))
    if special:
        remark = "also a special token (eos, bos or pad)"
    state: State = "differs" if not inside else "note" if special else "fits" if rows is not None else "unknown"
    yield FitRow("mask token", str(mask.value), f"{rows} rows" if rows is not None else "", state, remark)


def _dtype(case: Case, layout: Layout, found: FoundTarget, codes: frozenset[str]) -> Iterator[FitRow]:
    own, target = _dtype_of(layout.config) or _dtype_of(layout.decoder[1]), _dtype_of(case.target.config or {})
    target = target or _dtype_of(target_text(case))
    if own is None and target is None:
        return
    remark = "--dtype bfloat16" if own == "bfloat16" and target == "float16" else ""
    state: State = "unknown" if None in (own, target) else "fits" if own == target else "note"
    yield FitRow("dtype", own or "?", target or "?", state, remark)


def _dtype_of(config: Any) -> str | None:
    value = config.get("dtype", config.get("torch_dtype"))
    return value.removeprefix("torch.") if isinstance(value, str) else None


def _rope(case: Case, layout: Layout, found: FoundTarget, codes: frozenset[str]) -> Iterator[FitRow]:
    text = target_text(case)
    place = text.get("rope_parameters") or text.get("rope_scaling")
    theta = (place.get("rope_theta") if isinstance(place, dict) else None) or text.get("rope_theta")
    scaling = rope_scaling(text)
    kind = f", {scaling.get('rope_type', scaling.get('type'))}" if scaling is not None else ""
    target = f"base {theta:g}{kind}" if isinstance(theta, int | float) else "not stated"
    # A base of its own is legal: the drafter is trained with it.
    bad = "ROPE_MISMATCH" in codes
    yield FitRow("RoPE", rope_text(layout), target, "differs" if bad else "fits", "see the finding" if bad else "")


def _embeddings(case: Case, layout: Layout, found: FoundTarget, codes: frozenset[str]) -> Iterator[FitRow]:
    if not gemma_target(case):
        return
    scale, cap = layout.number("input_embedding_scale"), layout.number("final_logit_softcapping")
    own = f"scale {scale if scale is not None else 'not stated'}, soft-cap {cap if cap is not None else 'not stated'}"
    target_cap = target_text(case).get("final_logit_softcapping")
    remark = "the engine has to apply Gemma's embedding normaliser and soft-cap to the drafter"
    yield FitRow("embeddings", own, f"√width, soft-cap {target_cap}", "note", remark)


def _name(case: Case, layout: Layout, found: FoundTarget, codes: frozenset[str]) -> Iterator[FitRow]:
    outer = layout.config.get("speculators_config")
    verifier = outer.get("verifier") if isinstance(outer, dict) else None
    trained = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    relation = (case.target.config or {}).get("base_model_relation")
    name = case.target.name or "?"
    if not isinstance(trained, str) or not trained:
        state: State = "note" if "TARGET_IS_FINETUNE" in codes else "unknown"
        remark = f"a {relation} of {(case.target.config or {}).get('base_model')}" if state == "note" else ""
        yield FitRow("trained for", "not stated", name, state, remark or "the file does not name its target")
        return
    known_name = found.kind == "folder" and case.target.name is not None
    state = "fits" if same_model(trained, case.target.name) else "note" if known_name else "unknown"
    yield FitRow("trained for", trained[:100], name, state)
    revision = verifier.get("revision") if isinstance(verifier, dict) else None
    if isinstance(revision, str) and revision:
        given = found.revision or "?"
        agrees = given.startswith(revision) or revision.startswith(given)
        yield FitRow("revision", revision[:40], given[:40], "fits" if agrees else "unknown" if given == "?" else "note")


def _quantisation(case: Case, layout: Layout, found: FoundTarget, codes: frozenset[str]) -> Iterator[FitRow]:
    own, target = _quant(layout.config), _quant(case.target.config or {}) or _quant(target_text(case))
    if own is None and target is None:
        return
    remark = "a quantised copy costs a little acceptance" if own is None else "many releases need a bf16 drafter"
    yield FitRow("quantisation", own or "none", target or "none", "note" if own else "fits", remark)


def _quant(config: Any) -> str | None:
    inner = config.get("quantization_config")
    if not isinstance(inner, dict):
        return None
    return next((str(inner[key])[:40] for key in _QUANT_KEYS if inner.get(key)), "quantised")


def _ids(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _same(what: str, own: int | None, target: int | None, strict: bool) -> FitRow:
    if own is None or target is None:
        return FitRow(what, str(own or "?"), str(target or "?"), "unknown")
    state: State = "fits" if own == target else "differs" if strict else "note"
    return FitRow(what, str(own), str(target), state)
