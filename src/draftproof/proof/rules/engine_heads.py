"""Whose output head the drafter's logits come from."""

from __future__ import annotations

from draftproof.proof import tensors
from draftproof.proof.case import Case
from draftproof.proof.findings import Evidence, Finding
from draftproof.proof.judging import CANDIDATE, LIKELY, about_version, exact_zero, primary, remedy_of
from draftproof.proof.layouts import DFLASH_FAMILY, drafter_method, layout_of
from draftproof.proof.quantities import acceptance
from draftproof.proof.rules.engine_methods import matrix_evidence, version_evidence
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.traits import answer
from draftproof.proof.versions import Fit, build_of, patch

HEAD_PATCH = "vllm#46435"
_FEW_PERCENT = (1.02, 1.3)


@rule(
    "LM_HEAD_NOT_SHARED",
    "ENGINE",
    "error",
    meaning="The drafter runs with an uninitialised output head because the target's head was not shared.",
    derived="Nothing is accepted (ACCEPTANCE_EXACT_ZERO), the drafter has no lm_head.weight, and: draft and target "
    "vocab_size differ (padding) on a V2 runner before vllm#46435 (0.24.0 or a build without it); or a vLLM release in "
    "[0.24.0, 0.26.0) on V2 with a multimodal wrapper target (…ForConditionalGeneration).",
    remedy="Upgrade to vLLM ≥ 0.26, or VLLM_USE_V2_MODEL_RUNNER=0.",
    probe="Same files on the V1 runner; norm and identity of the drafter's lm_head after load.",
    sources=("vllm#46435", "vllm#49559", "local-inference-lab#54"),
)
def lm_head_not_shared(case: Case, earlier: frozenset[str]) -> Said:
    if drafter_method(case) not in DFLASH_FAMILY or answer(case, "no_own_head") is False:
        return
    zero = exact_zero(primary(case))
    if case.observations and not zero:
        return
    head_known = answer(case, "no_own_head") is True
    for one, found in about_version(case, "LM_HEAD_NOT_SHARED", symptom=zero):
        # Without a measurement the version is a reason to look, no more: the symptom belongs to the finding.
        confidence = (
            found if zero and one.holds else LIKELY if zero and _only_head_unknown(case, one.fact.when) else CANDIDATE
        )
        says = f"{build_of(case)} {one.fact.says}"
        evidence: tuple[Evidence, ...] = (
            version_evidence(case),
            matrix_evidence(one),
            case.evidence("target.config", "target"),
        )
        yield Finding("LM_HEAD_NOT_SHARED", "error", confidence, says, evidence, remedy_of(one.fact), one.fact.probe)
        return
    build = build_of(case)
    unknown_build = build.engine == "vllm" and not build.plain and build.fit("vllm", "0.25.0") is Fit.NO
    differs, second = answer(case, "vocab_differs"), answer(case, "runner_v2")
    if zero and unknown_build and differs and second and patch(case, HEAD_PATCH) is not True:
        says = f"nothing accepted on the V2 runner, and the vocabularies differ by padding: {HEAD_PATCH} is missing"
        evidence = (case.evidence("drafter.config.vocab_size", f"{layout_of(case).vocab_size} tokens"),)
        yield Finding("LM_HEAD_NOT_SHARED", "error", LIKELY if head_known else CANDIDATE, says, evidence)


def _only_head_unknown(case: Case, when: tuple[str, ...]) -> bool:
    return all(answer(case, name) for name in when if name != "no_own_head")


@rule(
    "LM_HEAD_OVERWRITTEN",
    "ENGINE",
    "error",
    meaning="The drafter's own reduced head was replaced by the target's.",
    derived="draft_vocab_size < vocab_size with an own head, 1.02 ≤ AL < 1.3 (a few percent, not zero), and an earlier "
    "build or a reference with AL ≥ 2.",
    remedy="Use a build that shares the head only without d2t.",
    probe="Shape of lm_head after load against draft_vocab_size.",
    sources=("vllm-ascend#11374", "vllm-ascend#9795"),
)
def lm_head_overwritten(case: Case, earlier: frozenset[str]) -> Said:
    layout, seen = layout_of(case), primary(case)
    if not layout.reduced_vocabulary or tensors.absent(case, "lm_head.weight") or seen.length is None:
        return
    low, high = _FEW_PERCENT
    if not low <= seen.length < high:
        return
    for index, other in enumerate(case.observations[1:], start=1):
        conditions = other.conditions
        if not any(key in conditions for key in ("build", "engine_version", "reference")):
            continue
        its = acceptance(case, other)
        if its.length is not None and its.length >= 2:
            says = (
                f"AL {seen.length:.2f} where {other.label or 'another build'} has {its.length:.2f}: the head of "
                f"{layout.draft_vocab_size or 'the reduced'} tokens seems to be the target's"
            )
            evidence = (
                case.evidence("drafter.config.draft_vocab_size", str(layout.draft_vocab_size)),
                case.evidence(f"observations[{index}].metrics", f"AL {its.length:.2f}"),
            )
            yield Finding("LM_HEAD_OVERWRITTEN", "error", LIKELY, says, evidence)
            return
