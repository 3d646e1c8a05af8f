"""What the engine feeds into the drafter: taps, mask vector, embeddings, and the drafter path as a whole."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from draftproof.drafters.values import show
from draftproof.proof.case import Case
from draftproof.proof.findings import Evidence, Finding
from draftproof.proof.judging import (
    CANDIDATE,
    CERTAIN,
    LIKELY,
    about_version,
    exact_zero,
    has_run,
    healthy,
    primary,
    remedy_of,
)
from draftproof.proof.layouts import DFLASH_FAMILY, drafter_method, is_zlab_drafter, layout_of
from draftproof.proof.quantities import acceptance, ratio
from draftproof.proof.rules.engine_methods import matrix_evidence, version_evidence
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.traits import answer, gemma_target
from draftproof.proof.versions import Fit, build_of, patch

SHIFT_GAIN = 1 / 1.05  # "at least 5 % better"
_TAPS_AGREE = 0.05
_REFERENCE = re.compile(r"reference", re.IGNORECASE)
TAPS_PATCH, GEMMA_PATCH = "vllm#40727", "vllm#41703"


@rule(
    "AUX_LAYER_OFFSET",
    "ENGINE",
    "error",
    meaning="The engine taps one layer too early (or the ids are shifted); all positions lose a few percent, nothing "
    "fails.",
    derived="Method dflash, z-lab layout (or a z-lab drafter whose config is not given) on a vLLM release in [0.20.0, "
    "0.22.0); or patches vllm#40727 false; or a run with the layer ids shifted right is at least 5 % better. Never for "
    "the speculators layout, never by the size of AL alone.",
    remedy="vLLM ≥ 0.22.0, or correct the shift.",
    probe="Probe the source with ids [1, 9, 17]: (2, 10, 18) is right.",
    sources=("vllm#40727", "vllm#42704", "atlas#394"),
)
def aux_layer_offset(case: Case, earlier: frozenset[str]) -> Said:
    if drafter_method(case) != "dflash":
        return
    shifted = _better_when_shifted(case)
    if shifted is not None:
        index, says = shifted
        evidence: tuple[Evidence, ...] = (case.evidence(f"observations[{index}]", says),)
        yield Finding("AUX_LAYER_OFFSET", "error", CERTAIN, says, evidence)
        return
    layout = layout_of(case)
    named_only = case.drafter.config is None and is_zlab_drafter(case.drafter.name)
    if layout.kind != "z-lab" and not named_only:
        return
    contains = patch(case, TAPS_PATCH)
    if contains is False:
        says = f"the build lacks {TAPS_PATCH}: target_layer_ids are used without the +1, one layer early"
        evidence = (case.evidence(f"engine.options.patches.{TAPS_PATCH}", "false"),)
        yield Finding("AUX_LAYER_OFFSET", "error", LIKELY if named_only else CERTAIN, says, evidence)
        return
    if contains is True:
        return
    for one, found in about_version(case, "AUX_LAYER_OFFSET", symptom=False):
        inferred = named_only and one.fit is Fit.RELEASE  # the layout of the published file
        confidence = LIKELY if inferred else found
        ids = f" (ids {show(list(layout.taps.value), 120)})" if layout.taps else ""
        says = f"{build_of(case)} {one.fact.says}{ids}"
        where = f"drafter.config.{layout.taps.path}" if layout.taps else "drafter.name"
        evidence = (
            case.evidence(
                where, f"ids {show(list(layout.taps.value), 120)}" if layout.taps else str(case.drafter.name)
            ),
            version_evidence(case),
            matrix_evidence(one),
        )
        yield Finding("AUX_LAYER_OFFSET", "error", confidence, says, evidence, remedy_of(one.fact), one.fact.probe)
        return


def _better_when_shifted(case: Case) -> tuple[int, str] | None:
    """Another observation with another shift of the layer ids that is at least 5 % better."""
    if case.primary is None:
        return None
    own = case.primary.conditions.get("layer_id_shift", 0)
    for index, seen in enumerate(case.observations[1:], start=1):
        other = seen.conditions.get("layer_id_shift")
        if other is None or other == own:
            continue
        one, its = acceptance(case), acceptance(case, seen)
        better = its.length / one.length if one.length and its.length else None
        share = ratio(one, its)
        if (better is not None and better >= 1 / SHIFT_GAIN) or (better is None and share and share <= SHIFT_GAIN):
            gain = better if better is not None else 1 / (share or 1)
            return index, f"layer ids shifted by {other} instead of {own} give {gain - 1:.0%} more"
    return None


@rule(
    "MASK_EMBEDDING_NOT_LOADED",
    "ENGINE",
    "error",
    meaning="The released mask vector (a file beside the weights) is not used; the table's row is empty.",
    derived="Files contain mask_embedding.pt, and vLLM release < 0.25.0 or SGLang release < 0.5.20, or an unknown "
    "build with AL < 2 and a mask row of near-zero norm.",
    remedy="Upgrade, or write the vector into the embedding row.",
    probe="Norm of the embedding row of mask_token_id.",
    sources=("sglang#27924", "vLLM and SGLang wheels"),
)
def mask_embedding_not_loaded(case: Case, earlier: frozenset[str]) -> Said:
    if not answer(case, "mask_sidecar"):
        return
    files = case.evidence("drafter.files", "mask_embedding.pt")
    seen = primary(case)
    short = seen.length is not None and seen.length < 2
    for one, confidence in about_version(case, "MASK_EMBEDDING_NOT_LOADED", symptom=short):
        says = f"{build_of(case)} {one.fact.says}"
        evidence = (files, version_evidence(case), matrix_evidence(one))
        yield Finding("MASK_EMBEDDING_NOT_LOADED", "error", confidence, says, evidence)
        return
    build = build_of(case)
    if build.low is not None and build.plain:
        return
    empty = any(o.metrics.get("mask_row_norm_reported") == "near_zero" for o in case.observations)
    if short and empty:
        says = f"AL {seen.length:.2f} with an empty mask row, although mask_embedding.pt is shipped"
        yield Finding("MASK_EMBEDDING_NOT_LOADED", "error", LIKELY, says, (files,))


@rule(
    "GEMMA_SCALING_MISSING",
    "ENGINE",
    "error",
    meaning="Gemma targets need the embedding normaliser and the logit soft-cap in the drafter path, and rejected "
    "rows must be masked in batches.",
    derived="The target is a Gemma model, method dflash, and patches vllm#41703 false or SGLang release < 0.5.18; a "
    "candidate if only the exact zero is known.",
    remedy="Use a build with the change.",
    probe="Acceptance with batch 1 and batch 4; check the scale of the draft input embeddings.",
    sources=("vllm#41703", "sglang#23000"),
)
def gemma_scaling_missing(case: Case, earlier: frozenset[str]) -> Said:
    if not gemma_target(case) or drafter_method(case) != "dflash":
        return
    target = case.evidence("target.config.model_type", f"target {case.target.name or 'Gemma'}")
    if patch(case, GEMMA_PATCH) is False:
        says = f"the build lacks {GEMMA_PATCH}: no embedding normaliser and soft-cap for a Gemma target"
        evidence: tuple[Evidence, ...] = (target, case.evidence(f"engine.options.patches.{GEMMA_PATCH}", "false"))
        yield Finding("GEMMA_SCALING_MISSING", "error", CERTAIN, says, evidence)
        return
    for one, confidence in about_version(case, "GEMMA_SCALING_MISSING", symptom=False):
        if one.fact.engine == "vllm":
            continue  # told by its patches alone
        says = f"{build_of(case)} {one.fact.says}"
        evidence = (target, version_evidence(case), matrix_evidence(one))
        yield Finding("GEMMA_SCALING_MISSING", "error", confidence, says, evidence)
        return
    if has_run(case) and exact_zero(primary(case)) and patch(case, GEMMA_PATCH) is None:
        says = "a Gemma target and nothing accepted: the embedding normaliser may be missing"
        yield Finding("GEMMA_SCALING_MISSING", "error", CANDIDATE, says, (target,))


@rule(
    "DRAFT_PATH_DEFECT",
    "ENGINE",
    "error if proven, else a candidate",
    meaning="An operation of the engine's drafter path differs from the reference (anchor token, embedding scale, "
    "final residual, tensor layout, KV layout, context rows).",
    derived="The reference implementation on the same prompt has at least twice the accepted tokens while the hidden "
    "states per tap agree (tap_rms), or an operator-by-operator comparison is in the record.",
    remedy="Port the operator from the reference.",
    probe="Replay one block with reference inputs and compare layer by layer.",
    sources=("hipfire#483", "ninfer-windows#4", "vllm#14464", "vllm#45343", "vllm#14649"),
    stage=2,
)
def draft_path_defect(case: Case, earlier: frozenset[str]) -> Said:
    own = case.primary
    if own is None or drafter_method(case) is None:
        return
    for index, seen in enumerate(case.observations[1:], start=1):
        reference = seen.conditions.get("reference")
        if not isinstance(reference, str) or not _REFERENCE.search(reference):
            continue
        share = ratio(primary(case), acceptance(case, seen))
        agree = _agree(own.metrics.get("tap_rms"), seen.metrics.get("tap_rms"))
        if share is not None and share <= 0.5 and agree is not False:
            what = "with equal taps" if agree else "(taps not compared)"
            says = f"the reference accepts {1 / share if share else 99:.1f} times as much on the same prompt {what}"
            evidence = (case.evidence(f"observations[{index}]", seen.label),)
            yield Finding("DRAFT_PATH_DEFECT", "error", CERTAIN if agree else CANDIDATE, says, evidence)
            return
    if exact_zero(primary(case)) and not healthy(case) and drafter_method(case) in DFLASH_FAMILY:
        says = "nothing is accepted although the text is right: an operator of the drafter's path may be wrong"
        evidence = (case.evidence("observations[0].metrics", "practically nothing accepted"),)
        yield Finding("DRAFT_PATH_DEFECT", "error", CANDIDATE, says, evidence)


def _agree(one: Any, other: Any) -> bool | None:
    """Do two lists of RMS per tap agree within 5 %? None if one is missing."""
    if not isinstance(one, Sequence) or not isinstance(other, Sequence) or not one:
        return None
    if not all(type(value) in (int, float) for value in (*one, *other)):
        return None
    if len(one) != len(other):
        return False
    return all(abs(a - b) <= _TAPS_AGREE * max(abs(a), abs(b)) for a, b in zip(one, other, strict=True))
