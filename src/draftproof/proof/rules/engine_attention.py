"""Window and causality: does the engine mask the drafter's layers as they were trained?"""

from __future__ import annotations

from draftproof.proof.case import Case
from draftproof.proof.findings import Finding, Question, Severity
from draftproof.proof.judging import about_version, healthy, low, primary, remedy_of
from draftproof.proof.layouts import layout_of
from draftproof.proof.quantities import number
from draftproof.proof.rules.engine_methods import matrix_evidence, version_evidence
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.versions import Fit, build_of

_SHORT, _LONG = "short", "long"


def longest_context(case: Case) -> float | None:
    """Tokens that a request of the primary observation reaches, as far as the case says; None if it does not."""
    seen = case.primary.conditions if case.primary is not None else {}
    found = []
    for facts in (seen, case.workload):
        for key in ("context_tokens", "prompt_tokens"):
            for name, more in ((key, 0), (f"{key}_above", 1), (f"{key}_min", 0)):
                value = number(facts, name)
                if value is not None:
                    found.append(value + more)
    return max(found, default=None)


def within_window(case: Case, window: int) -> bool | None:
    """Can no request leave the window? None if unknown. A server's max_model_len bounds all of them."""
    limit = number(case.engine.options, "max_model_len") or number(case.engine.options, "ctx_size")
    if limit is not None and limit <= window:
        return True
    longest = longest_context(case)
    if longest is not None:
        answer = number(case.workload, "max_tokens") or 0
        return longest + answer <= window
    return None


@rule(
    "ENGINE_SWA_IGNORED",
    "ENGINE",
    "warning; error if the context exceeds the window, or if it is unknown and acceptance is under the low line",
    meaning="The engine runs the drafter's sliding-window layers with full attention.",
    derived="layer_types has sliding_attention, or dflash_config.use_swa; and vLLM in [0.20.0, 0.25.0) or SGLang in "
    "[0.5.11, 0.5.14); use_swa alone: also later SGLang and z-lab's code. Nothing if the context stays within the "
    "window, if no engine is given, or if a non-release build is healthy.",
    remedy="Upgrade (vLLM ≥ 0.26, SGLang ≥ 0.5.14), or cap the context at the window.",
    probe="Same prompts below and above the window; expect a step.",
    sources=("AEON#6", "vllm#40898", "vLLM and SGLang wheels"),
)
def engine_swa_ignored(case: Case, earlier: frozenset[str]) -> Said:
    layout = layout_of(case)
    window = layout.window
    inside = within_window(case, window.value) if window is not None else None
    if inside is True:
        return
    for one, confidence in about_version(case, "ENGINE_SWA_IGNORED", symptom=low(case)):
        severity: Severity = "error" if inside is False or (inside is None and primary(case).below_line) else "warning"
        if inside is None and case.primary is None:
            yield Question("how long the requests are", "--launch with --max-model-len, or a case with context_tokens")
        beyond = "" if inside is None else f"; requests reach {longest_context(case):.0f} tokens"
        size = f" (window {window.value})" if window is not None else ""
        says = f"{build_of(case)} {one.fact.says}{size}{beyond}"
        where = window.path if window is not None else "layer_types"
        evidence = (
            case.evidence(f"drafter.config.{where}", f"window {window.value if window else 'unknown'}"),
            version_evidence(case),
            matrix_evidence(one),
        )
        yield Finding("ENGINE_SWA_IGNORED", severity, confidence, says, evidence, remedy_of(one.fact), "")
        return


@rule(
    "ENGINE_CAUSALITY_MISMATCH",
    "ENGINE",
    "warning; error for a speculators drafter whose full layers become causal",
    meaning="The mask inside the block differs from training.",
    derived="(a) z-lab layout, sliding layers, no is_causal key (trained causal on sliding layers): vLLM < 0.26.0, "
    "SGLang < 0.5.14, llama.cpp unless the GGUF says causal. (b) is_causal false and sliding layers: vLLM 0.26.0 to "
    "0.27.x, SGLang 0.5.14 to 0.5.17. (c) speculators layout with sliding_window_non_causal false and at least one "
    "full-attention layer: vLLM 0.26.0 to 0.33.x. Other contradictions of the matrix likewise. Layer types that are "
    "cut off give a candidate only.",
    remedy="Upgrade; for (c) remove the key or patch the config.",
    probe="Curve shape: tail steeper than geometric; compare with another engine.",
    sources=("vllm#56692", "speculators#523", "vLLM and SGLang wheels", "llama.cpp source"),
)
def engine_causality_mismatch(case: Case, earlier: frozenset[str]) -> Said:
    for one, confidence in sorted(
        about_version(case, "ENGINE_CAUSALITY_MISMATCH", symptom=low(case)), key=lambda pair: -pair[1]
    ):
        if one.fit is not Fit.RELEASE and healthy(case):
            continue
        layout = layout_of(case)
        stated = layout.is_causal or layout.nested_causal
        path = stated.path if stated is not None else f"{layout.decoder[0]}layer_types"
        what = f"{stated.path}={stated.value}" if stated is not None else "layer_types"
        if "states_causal_sliding" in one.fact.when:
            path, what = "sliding_window_non_causal", "sliding_window_non_causal=false"
        evidence = (case.evidence(f"drafter.config.{path}", what), version_evidence(case), matrix_evidence(one))
        severity: Severity = "error" if one.fact.severity == "error" else "warning"
        says = f"{build_of(case)} {one.fact.says}"
        yield Finding(
            "ENGINE_CAUSALITY_MISMATCH", severity, confidence, says, evidence, remedy_of(one.fact), one.fact.probe
        )
        return
