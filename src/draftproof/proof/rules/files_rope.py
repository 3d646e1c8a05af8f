"""Rotary embedding: base, scaling, rotated part and position range of drafter, engine and training."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from draftproof.proof.case import Case
from draftproof.proof.findings import Evidence, Finding, Severity
from draftproof.proof.judging import CANDIDATE, CERTAIN, LIKELY, about_version, healthy, low, primary
from draftproof.proof.layouts import Layout, layout_of, rope_scaling, target_integer, target_text
from draftproof.proof.quantities import acceptance, number, ratio
from draftproof.proof.rules.registry import Said, rule

Reason = tuple[Severity, float, str, tuple[Evidence, ...]]
_DOUBLED = 0.5


@rule(
    "ROPE_MISMATCH",
    "FILES",
    "warning; error if two concrete values contradict or a comparison proves it",
    meaning="Rotary base, scaling, rotated part or position range differ between drafter, engine and training.",
    derived="Error: rope_applied_to_drafter differs from the drafter's rope_scaling or rope_theta; "
    "rope_parameters.rope_theta differs from a flat rope_theta in the same config; the engine reads only the flat key "
    "and the nested value differs from its default; acceptance at long context at least doubles when the drafter's "
    "positions are limited to its range. Warning: speculators layout, head_dim equal to the target's and "
    "partial_rotary_factor of the target below 1; a target with YaRN beyond the drafter's max_position_embeddings and "
    "the drafter without scaling. A base that merely differs from another model's is no finding.",
    remedy="Take RoPE from the drafter's own config (nested key first); retrain if trainer and engine rotate "
    "different parts.",
    probe="Acceptance against position; compare q and k of one block with the reference.",
    sources=("speculators#613", "speculators#738", "atlas#78", "imp#897", "buun-llama-cpp#32", "Model-Optimizer#2221"),
)
def rope_mismatch(case: Case, earlier: frozenset[str]) -> Said:
    layout = layout_of(case)
    reasons = [
        *_applied(case, layout),
        *_two_bases(case, layout),
        *_engine_reads_flat(case, layout),
        *_positions_limited(case),
        *_partial_rotation(case, layout),
        *_yarn_target(case, layout),
    ]
    if reasons:
        severity, confidence, says, evidence = max(reasons, key=lambda r: (r[1] >= LIKELY, r[0] == "error", r[1]))
        yield Finding("ROPE_MISMATCH", severity, confidence, says, evidence)


def _applied(case: Case, layout: Layout) -> Iterator[Reason]:
    """What the engine is known to apply, against what the file says."""
    applied = case.engine.options.get("rope_applied_to_drafter")
    if applied is None or not layout.config:
        return
    kind, factor, theta = _described(applied)
    own = layout.scaling or {}
    own_kind, own_factor = str(own.get("rope_type", own.get("type")) or "none"), own.get("factor")
    base = layout.nested_theta or layout.flat_theta
    stated = bool(own) or layout.layers_complete or any(k in layout.decoder[1] for k in ("rope_scaling",))
    differs = (stated and kind is not None and kind != own_kind) or (
        stated and factor is not None and float(own_factor or 1) != factor
    )
    differs = differs or (theta is not None and base is not None and float(base.value) != theta)
    if differs:
        says = f"the engine applies {_text(applied)} to the drafter, whose config says {_own_rope(layout)}"
        yield "error", CERTAIN, says, (case.evidence("engine.options.rope_applied_to_drafter", _text(applied)),)


def _described(applied: Any) -> tuple[str | None, float | None, float | None]:
    """(type, factor, base) of a mapping, a number (the base) or words such as "yarn factor 64"; None: not said."""
    if isinstance(applied, bool):
        return None, None, None
    if isinstance(applied, int | float):
        return None, None, float(applied)
    if isinstance(applied, Mapping):
        kind = applied.get("rope_type", applied.get("type"))
        return (
            "none" if kind == "default" else kind if isinstance(kind, str) else None,
            number(applied, "factor"),
            number(applied, "rope_theta"),
        )
    text = str(applied).lower()
    kind = next((k for k in ("yarn", "linear", "dynamic", "longrope", "llama3") if k in text), None)
    if kind is None and re.search(r"\b(none|plain|default|no scaling)\b", text):
        kind = "none"
    factor = re.search(r"factor\D{0,3}([\d.]+)", text)
    theta = re.search(r"(?:theta|base)\D{0,3}([\d.]+(?:e\d+)?)", text)
    return kind, float(factor[1]) if factor else None, float(theta[1]) if theta else None


def _two_bases(case: Case, layout: Layout) -> Iterator[Reason]:
    flat, nested = layout.flat_theta, layout.nested_theta
    if flat is not None and nested is not None and float(flat.value) != float(nested.value):
        says = f"{nested.path}={nested.value} and {flat.path}={flat.value} contradict each other"
        places = tuple(case.evidence(f"drafter.config.{v.path}", f"{v.path}={v.value}") for v in (nested, flat))
        yield "error", CERTAIN, says, places


def _engine_reads_flat(case: Case, layout: Layout) -> Iterator[Reason]:
    for one, confidence in about_version(case, "ROPE_MISMATCH", symptom=low(case)):
        nested = layout.nested_theta
        if nested is None:
            continue
        says = f"{case.engine.name} {case.engine.version} {one.fact.says}; the drafter needs {nested.value}"
        evidence = (case.evidence(f"drafter.config.{nested.path}", f"{nested.path}={nested.value}"),)
        yield "error", confidence, says, (*evidence, Evidence(one.fact.source, f"version matrix: {one.fact.id}"))


def _positions_limited(case: Case) -> Iterator[Reason]:
    """The same context with the drafter's positions limited to its range is at least twice as good."""
    for index, seen in enumerate(case.observations[1:], start=1):
        limited = seen.conditions.get("drafter_positions")
        if not limited or case.primary is None or case.primary.conditions.get("drafter_positions"):
            continue
        share = ratio(primary(case), acceptance(case, seen))
        if share is not None and share <= _DOUBLED:
            says = f"acceptance rises {1 / share if share else 99:.1f}-fold with the drafter's positions {limited}"
            yield "error", CERTAIN, says, (case.evidence(f"observations[{index}].metrics", str(limited)),)


def _partial_rotation(case: Case, layout: Layout) -> Iterator[Reason]:
    """speculators once trained with all of each head rotated where the target rotates a part."""
    factor = _partial(target_text(case))
    if factor is None:
        factor = _partial(case.target.config or {})
    own, target = layout.integer("head_dim"), target_integer(case, "head_dim")
    if layout.kind != "speculators" or factor is None or factor >= 1 or own is None or own != target:
        return
    if healthy(case):
        return
    says = (
        f"the target rotates {factor:g} of each head; a speculators drafter with the same head_dim {own} may have "
        "been trained with all of it rotated"
    )
    evidence = (case.evidence("target.config.partial_rotary_factor", f"partial_rotary_factor={factor:g}"),)
    yield "warning", LIKELY, says, evidence


def _partial(config: Mapping[str, Any]) -> float | None:
    for place in (config, config.get("rope_parameters"), config.get("rope_scaling")):
        found = number(place, "partial_rotary_factor") if isinstance(place, Mapping) else None
        if found is not None:
            return found
    return None


def _yarn_target(case: Case, layout: Layout) -> Iterator[Reason]:
    scaling, limit = rope_scaling(target_text(case)), layout.max_positions
    kind = str((scaling or {}).get("rope_type", (scaling or {}).get("type")))
    if scaling is None or kind != "yarn" or limit is None or layout.scaling is not None:
        return
    reach = max(_reaches(case, scaling), default=0.0)
    if reach <= limit.value:
        return
    says = f"the target goes to {reach:.0f} positions with YaRN; the drafter has no scaling and knows {limit.value}"
    # An excerpt need not show the drafter's scaling.
    confidence = CERTAIN if layout.layers_complete else LIKELY if not healthy(case) else CANDIDATE
    yield "warning", confidence, says, (case.evidence(f"drafter.config.{limit.path}", f"{limit.value} positions"),)


def _reaches(case: Case, scaling: Mapping[str, Any]) -> Iterator[float]:
    """How far the target is used, by its files, the server's setting and the workload."""
    text = target_text(case)
    original, factor = number(scaling, "original_max_position_embeddings"), number(scaling, "factor")
    stated = number(text, "max_position_embeddings")
    if original is not None and factor is not None:
        yield original * factor
    if stated is not None:
        yield stated
    for facts, keys in (
        (case.engine.options, ("max_model_len", "ctx_size")),
        (case.workload, ("context_tokens", "prompt_tokens")),
    ):
        for key in keys:
            found, above = number(facts, key), number(facts, f"{key}_above")
            if found is not None:
                yield found
            if above is not None:
                yield above + 1


def _own_rope(layout: Layout) -> str:
    base = layout.nested_theta or layout.flat_theta
    scaling = layout.scaling
    kind = (
        "no scaling" if scaling is None else f"{scaling.get('rope_type', scaling.get('type'))} {scaling.get('factor')}"
    )
    return f"base {base.value}, {kind}" if base is not None else kind


def _text(applied: Any) -> str:
    text = str(applied)
    return text if len(text) <= 80 else text[:79] + "…"
