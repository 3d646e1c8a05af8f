"""Do this drafter and this target belong together, and are these the weights that are known to work?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from draftproof.proof import tensors
from draftproof.proof.case import Case, Observation
from draftproof.proof.engines import known_revisions
from draftproof.proof.findings import Evidence, Finding, Severity
from draftproof.proof.judging import CERTAIN, LIKELY, comparisons, primary
from draftproof.proof.layouts import Layout, layout_of, target_integer
from draftproof.proof.names import family, same_model, stripped
from draftproof.proof.quantities import acceptance, ratio
from draftproof.proof.rules.registry import Said, rule

MAX_PADDING, PADDING_UNIT = 1024, 64
CLEARLY_WORSE = 0.8  # the other side is at least 25 % better
_CHANGED = ("finetune", "merge", "adapter")
_RETRAINED = re.compile(r"\bretrain|\btrained on it\b|\bfine-?tuned drafter\b|\bown drafter\b", re.IGNORECASE)
_BASE = re.compile(r"\b(base|open|original|stock|unmodified|untuned|parent)\b", re.IGNORECASE)
_ARCHITECTURE_ENDS = re.compile(r"(For\w+|Model|LMHeadModel)$")


@rule(
    "PAIR_MISMATCH",
    "FILES",
    "error",
    meaning="The drafter was made for a model of another shape.",
    derived="num_target_layers differs from the target's num_hidden_layers; target_hidden_size from its hidden_size; "
    "vocabularies differ by more than padding (over 1024 rows or not a multiple of 64); the speculators verifier is "
    "of another family. heads × head_dim ≠ hidden_size and more taps than draft layers are legal.",
    remedy="Use the drafter that belongs to the target.",
    probe="Compare the configs and the tokenizer hashes.",
    sources=("EAGLE#258", "vllm#5203", "SGLang dflash_worker"),
)
def pair_mismatch(case: Case, earlier: frozenset[str]) -> Said:
    reasons = list(_differences(case, layout_of(case)))
    if reasons:
        confidence = max(c for c, _, _ in reasons)
        says = "; ".join(text for _, text, _ in reasons)
        evidence = tuple(case.evidence(path, text) for _, text, path in reasons)
        yield Finding("PAIR_MISMATCH", "error", confidence, says, evidence)


def _differences(case: Case, layout: Layout) -> Iterator[tuple[float, str, str]]:
    depth, target_depth = layout.integer("num_target_layers"), target_integer(case, "num_hidden_layers")
    if depth is not None and target_depth is not None and depth != target_depth:
        text = f"made for {depth} target layers, the target has {target_depth}"
        yield CERTAIN, text, "drafter.config.num_target_layers"
    yield from _widths(case, layout)
    own, target = layout.vocab_size, target_integer(case, "vocab_size")
    if own is not None and target is not None and not _only_padding(own, target):
        yield CERTAIN, f"vocabulary of {own}, the target has {target}", "drafter.config.vocab_size"
    yield from _families(case, layout)


def _widths(case: Case, layout: Layout) -> Iterator[tuple[float, str, str]]:
    stated, own, target = (
        layout.integer("target_hidden_size"),
        layout.integer("hidden_size"),
        target_integer(case, "hidden_size"),
    )
    if target is None:
        return
    if stated is not None and stated != target:
        yield CERTAIN, f"taps are {stated} wide, the target's are {target}", "drafter.config.target_hidden_size"
    elif stated is None and own is not None and own != target and layout.kind in ("z-lab", "gguf"):
        weight, count = tensors.shape(case, "fc.weight"), layout.num_taps
        if weight is None or count is None or weight[-1] != count * target:  # fc may show that it was meant so
            yield (
                LIKELY,
                f"hidden_size {own} and no target_hidden_size; the target is {target} wide",
                ("drafter.config.hidden_size"),
            )


def _only_padding(one: int, other: int) -> bool:
    """Tables of one tokenizer differ by rounding up to a multiple of 64 or more."""
    apart = abs(one - other)
    return apart <= MAX_PADDING and (apart % PADDING_UNIT == 0 or max(one, other) % PADDING_UNIT == 0)


def _families(case: Case, layout: Layout) -> Iterator[tuple[float, str, str]]:
    verifier = _verifier(layout)
    path = "drafter.config.speculators_config.verifier"
    trained, given = _architectures(verifier), _architectures(case.target.config or {})
    if trained and given:
        if not trained & given:
            text = f"trained for {', '.join(sorted(trained))}, the target is {', '.join(sorted(given))}"
            yield CERTAIN, text, f"{path}.architectures"
        return
    mine, its = family(verifier.get("name_or_path")), family(case.target.name)
    if mine is not None and its is not None and mine != its:
        yield (
            LIKELY,
            f"trained for {verifier['name_or_path']}, the target is {case.target.name}",
            f"{path}.name_or_path",
        )


def _verifier(layout: Layout) -> dict[str, Any]:
    outer = layout.config.get("speculators_config")
    inner = outer.get("verifier") if isinstance(outer, dict) else None
    return inner if isinstance(inner, dict) else {}


def _architectures(config: Any) -> set[str]:
    names = config.get("architectures") if isinstance(config, dict) else None
    if not isinstance(names, list | tuple):
        return set()
    return {_ARCHITECTURE_ENDS.sub("", str(name)) for name in names if str(name)}


@rule(
    "TARGET_IS_FINETUNE",
    "FILES",
    "warning; error if a run with the base model or with a retrained drafter is at least 25 % better",
    meaning="The target is a fine-tune, merge or abliteration of the model the drafter was trained for; shapes match, "
    "so nothing warns.",
    derived="base_model_relation of the target is finetune, merge or adapter, or the verifier named in a speculators "
    "config differs from the target after stripping quantisation suffixes. A quantised copy is no fine-tune.",
    remedy="Train or fine-tune the drafter on outputs of this target.",
    probe="Run the same prompts on the base model with the same drafter.",
    sources=("z-lab#80", "EAGLE#98", "club-3090 Tess row", "AEON#6"),
)
def target_is_finetune(case: Case, earlier: frozenset[str]) -> Said:
    found = _relation(case)
    if found is None:
        return
    confidence, says, evidence = found
    severity: Severity = "warning"
    for index, seen in comparisons(case):
        if not _is_base_or_retrained(case, seen):
            continue
        share = ratio(primary(case), acceptance(case, seen))
        if share is not None and share <= CLEARLY_WORSE:
            severity, confidence = "error", CERTAIN
            says += f"; {seen.label or 'the other run'} accepts {1 / share:.1f} times as much"
            evidence = (*evidence, case.evidence(f"observations[{index}]", seen.label))
            break
    yield Finding("TARGET_IS_FINETUNE", severity, confidence, says, evidence)


def _relation(case: Case) -> tuple[float, str, tuple[Evidence, ...]] | None:
    config = case.target.config or {}
    relation = config.get("base_model_relation")
    if relation in _CHANGED:
        says = f"the target is a {relation} of {config.get('base_model') or 'another model'}"
        return CERTAIN, says, (case.evidence("target.config.base_model_relation", str(relation)),)
    verifier = _verifier(layout_of(case)).get("name_or_path")
    if (
        not isinstance(verifier, str)
        or not verifier
        or relation == "quantized"
        or same_model(verifier, case.target.name)
    ):
        return None
    if family(verifier) != family(case.target.name):
        return None  # another model altogether
    says = f"trained for {stripped(verifier)}, the target is {stripped(case.target.name or '')}"
    path = "drafter.config.speculators_config.verifier.name_or_path"
    return LIKELY, says, (case.evidence(path, verifier),)


def _is_base_or_retrained(case: Case, seen: Observation) -> bool:
    drafter, target = seen.conditions.get("drafter"), seen.conditions.get("target")
    if isinstance(drafter, str) and _RETRAINED.search(drafter):
        return True
    if not isinstance(target, str):
        return False
    base = (case.target.config or {}).get("base_model")
    return bool(_BASE.search(target)) or (isinstance(base, str) and same_model(base, target))


@rule(
    "DRAFTER_REVISION_MISMATCH",
    "FILES",
    "warning; error if another revision of the same drafter is at least 25 % better and not low itself",
    meaning="The weights are an older or different revision than the one with the known result.",
    derived="Revision or sha256 differs between the primary observation and a comparison whose acceptance is above "
    "the low line, ratio ≤ 0.8 (error); the revision differs from a known one without a comparison (warning).",
    remedy="Pin the revision; download again and compare sha256.",
    probe="Hash model.safetensors and compare with the repository's history.",
    sources=("spark-vllm-docker#350", "GLM-5.3-Flash-NVFP4-DFlash2-2x-DGX-Spark#7"),
)
def drafter_revision_mismatch(case: Case, earlier: frozenset[str]) -> Said:
    own = case.drafter.revision
    if case.primary is not None:
        own = case.primary.conditions.get("drafter_revision", own)
    if own is None:
        return
    for index, seen in comparisons(case):
        other = seen.conditions.get("drafter_revision")
        if other in (None, own):
            continue
        share, its = ratio(primary(case), acceptance(case, seen)), acceptance(case, seen)
        if share is not None and share <= CLEARLY_WORSE and its.good and not its.low:
            says = f"revision {own} accepts {share:.0%} of what revision {other} does"
            evidence = (case.evidence(f"observations[{index}]", f"revision {other}"),)
            yield Finding("DRAFTER_REVISION_MISMATCH", "error", CERTAIN, says, evidence)
            return
    known = _known_revisions(case)
    if known and not any(str(own).startswith(k) or k.startswith(str(own)) for k in known):
        says = f"revision {own} is not the one with a known result ({', '.join(known)})"
        evidence = (case.evidence("drafter.revision", str(own)),)
        yield Finding("DRAFTER_REVISION_MISMATCH", "warning", LIKELY, says, evidence)


def _known_revisions(case: Case) -> tuple[str, ...]:
    return known_revisions().get(case.drafter.name or "", ())
