"""Can this release run the drafter at all?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from draftproof.proof.case import Case
from draftproof.proof.engines import Applied
from draftproof.proof.findings import Evidence, Finding, Question
from draftproof.proof.judging import CERTAIN, about_version, has_run, healthy, log_lines, low, remedy_of
from draftproof.proof.layouts import DFLASH_FAMILY, drafter_method, layout_of
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.versions import build_of

_RUNS = re.compile(r"speculative_impl_draft_dflash|SpecDecoding metrics|dflash_worker|DFLASH.*initiali[sz]ed")
_QUANTISED_FAILS = re.compile(
    r"mat1 and mat2 to have the same dtype.*Float8|QKVParallelLinear'? object has no attribute '?weight", re.IGNORECASE
)
_SWA_REFUSED = re.compile(
    r"mixed sliding/full|NotImplementedError.*(?:sliding|layer_types)|mixed (?:layer|attention) types|"
    r"(?:requires?|needs?|set|provide).{0,40}swa_window_size",
    re.IGNORECASE,
)


def matrix_evidence(one: Applied) -> Evidence:
    return Evidence(one.fact.source, f"version matrix: {one.fact.id} ({one.fact.engine} {one.fact.range})")


def version_evidence(case: Case) -> Evidence:
    return case.evidence("engine.version", str(build_of(case)))


def _shown_to_run(case: Case) -> bool:
    return has_run(case) or any(_RUNS.search(line) for _, line in log_lines(case))


@rule(
    "ENGINE_LACKS_METHOD",
    "ENGINE",
    "error",
    meaning="This release has no support for the drafter type, or not on this runner.",
    derived="Plain releases: vLLM dflash < 0.20.0, dflash2 < 0.28.0 (speculators layout < 0.29.0) or on V1, dspark < "
    "0.25.0 or on V1; SGLang dflash < 0.5.11, dflash2 < 0.5.19, pipeline parallel > 1; llama.cpp without draft-dflash "
    "(seen from b10048) or DSpark (absent in b9967). Not if the set-up has produced acceptance numbers.",
    remedy="Upgrade, or choose another drafter.",
    probe="Look for the architecture in the engine's model registry.",
    sources=("z-lab README", "vLLM and SGLang wheels"),
)
def engine_lacks_method(case: Case, earlier: frozenset[str]) -> Said:
    build = build_of(case)
    if drafter_method(case) not in DFLASH_FAMILY or _shown_to_run(case):
        return
    if build.engine is not None and build.low is None:
        yield Question("the version of the engine", "--engine vllm==0.30.0, or draftproof doctor")
    if not build.plain:
        return
    for one, confidence in about_version(case, "ENGINE_LACKS_METHOD", symptom=False):
        says = f"{build} {one.fact.says}"
        evidence = (version_evidence(case), matrix_evidence(one))
        yield Finding("ENGINE_LACKS_METHOD", "error", confidence, says, evidence, remedy_of(one.fact), one.fact.probe)
        return


@rule(
    "ENGINE_SWA_REFUSED",
    "ENGINE",
    "error",
    meaning="The engine refuses the drafter's layer layout.",
    derived="Mixed sliding and full layers on vLLM 0.25.x, or from 0.26 on with the V1 runner (log: does not support "
    "mixed sliding/full dflash drafts); or z-lab layout with sliding layers and use_sliding_window absent or false, "
    "which nulls sliding_window (ValueError from 0.25). speculators configs keep the window. Not if it has run.",
    remedy="Use vLLM ≥ 0.26 with the V2 runner; set use_sliding_window true.",
    probe="Read the exception of the model load.",
    sources=("vLLM wheels", "club-3090 UPSTREAM", "vllm#40898"),
)
def engine_swa_refused(case: Case, earlier: frozenset[str]) -> Said:
    for place, line in log_lines(case):
        if _SWA_REFUSED.search(line):
            says = "the engine says that it does not support mixed sliding/full drafts"
            yield Finding("ENGINE_SWA_REFUSED", "error", CERTAIN, says, (case.evidence(place, line),))
            return
    if has_run(case):
        return
    for one, confidence in about_version(case, "ENGINE_SWA_REFUSED", symptom=False):
        says = f"{build_of(case)} {one.fact.says}"
        evidence = (*_layer_evidence(case), version_evidence(case), matrix_evidence(one))
        yield Finding("ENGINE_SWA_REFUSED", "error", confidence, says, evidence, remedy_of(one.fact), one.fact.probe)
        return


def _layer_evidence(case: Case) -> Iterator[Evidence]:
    layout = layout_of(case)
    types = layout.layer_types or ()
    sliding = types.count("sliding_attention")
    path = f"drafter.config.{layout.decoder[0]}layer_types"
    yield case.evidence(path, f"{sliding} sliding and {len(types) - sliding} full layers")


@rule(
    "QUANTIZED_DRAFTER_UNSUPPORTED",
    "ENGINE",
    "error",
    meaning="The engine slices raw weights of a quantised drafter.",
    derived="The drafter's config has quantization_config on a vLLM release < 0.31.0; or the log has the dtype error "
    "of mat1 and mat2 with Float8, or QKVParallelLinear without weight.",
    remedy="Use the bf16 drafter or vLLM ≥ 0.31.",
    probe="Load the bf16 copy of the same drafter.",
    sources=("vllm#51581", "vllm#53116", "vllm#51620"),
)
def quantized_drafter_unsupported(case: Case, earlier: frozenset[str]) -> Said:
    for place, line in log_lines(case):
        if _QUANTISED_FAILS.search(line):
            says = f"the load fails on quantised weights: {line[:120]}"
            yield Finding("QUANTIZED_DRAFTER_UNSUPPORTED", "error", CERTAIN, says, (case.evidence(place, line),))
            return
    if healthy(case):
        return
    for one, confidence in about_version(case, "QUANTIZED_DRAFTER_UNSUPPORTED", symptom=low(case)):
        says = f"{build_of(case)} {one.fact.says}"
        evidence = (
            case.evidence("drafter.config.quantization_config", "the drafter is quantised"),
            version_evidence(case),
            matrix_evidence(one),
        )
        yield Finding("QUANTIZED_DRAFTER_UNSUPPORTED", "error", confidence, says, evidence)
        return
