"""Block sizes, draft lengths and methods of the launch line against the drafter."""

from __future__ import annotations

import re
from collections.abc import Iterator

from draftproof.proof.case import Case
from draftproof.proof.engines import engines
from draftproof.proof.findings import Evidence, Finding, Severity
from draftproof.proof.judging import CANDIDATE, CERTAIN, comparisons, has_run, primary
from draftproof.proof.launching import drafted, layout_and_method, proposes, served_paths, speculative_config
from draftproof.proof.layouts import Layout, architecture_method, drafter_method
from draftproof.proof.quantities import acceptance
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.traits import p_min_unset
from draftproof.proof.versions import Fit, build_of, build_of_engine, engine_name

_RATE_FALL = 0.2
_P_MIN_LOG = re.compile(r"p_min\s*=\s*0\.0*\b")


@rule(
    "K_EXCEEDS_BLOCK",
    "LAUNCH",
    "warning",
    meaning="More tokens are requested than the drafter proposes; the surplus positions were never trained.",
    derived="k > block_size - 1 for dflash and dflash2, k > block_size for dspark; block_size nested or top level "
    "(engines that read only the top level take 16).",
    remedy="Set k to B - 1 (vLLM), draft tokens to B (SGLang), n-max to B - 1 (llama.cpp).",
    probe="Acceptance at the last positions; expect very low rates from position B on.",
    sources=("vLLM wheels 0.20-0.33 (no check)", "Rapid-MLX#2195", "llama.cpp source"),
)
def k_exceeds_block(case: Case, earlier: frozenset[str]) -> Said:
    layout, method = layout_and_method(case)
    asked, most = drafted(case), proposes(layout, method)
    if asked is None or most is None or layout.block is None or asked[0] <= most:
        return
    k, place = asked
    says = f"{k} drafted tokens are asked for; a block of {layout.block.value} proposes {most}"
    evidence = (
        case.evidence(place, f"k={k}"),
        case.evidence(f"drafter.config.{layout.block.path}", f"block_size={layout.block.value}"),
    )
    yield Finding("K_EXCEEDS_BLOCK", "warning", CERTAIN, says, evidence, _right_count(case, layout, most), "")


def _right_count(case: Case, layout: Layout, most: int) -> str:
    engine = engine_name(case.engine.name)
    if engine == "sglang" and layout.block is not None:
        return f"--speculative-num-draft-tokens {layout.block.value}"
    if engine == "llama.cpp":
        return f"--spec-draft-n-max {most}"
    return f'"num_speculative_tokens": {most}' if engine == "vllm" else f"Set k to {most}."


@rule(
    "METHOD_MISMATCH",
    "LAUNCH",
    "error",
    meaning="The method does not belong to the drafter, or the engine picked another one.",
    derived="A dspark drafter served as dflash or the reverse (sample_from_anchor against the architecture); or a "
    "model path that contains 'dflash' while the method is another one (vLLM then switches).",
    remedy="Name the right method; rename the directory.",
    probe="Print the resolved speculative config at start.",
    sources=("syv-ai gotcha 17", "speculators docs", "vLLM speculative.py"),
)
def method_mismatch(case: Case, earlier: frozenset[str]) -> Said:
    for confidence, says, evidence in (*_wrong_method(case), *_switched_by_path(case)):
        yield Finding("METHOD_MISMATCH", "error", confidence, says, (evidence,))
        return


def _wrong_method(case: Case) -> Iterator[tuple[float, str, Evidence]]:
    layout, kind = layout_and_method(case)
    served = speculative_config(case).get("method") or case.method
    if layout.kind in ("gguf", "unknown") or not isinstance(served, str):
        return
    is_dspark = kind == "dspark" or architecture_method(case.drafter.config or {}) == "dspark"
    if is_dspark and served in ("dflash", "dflash2"):
        says = f"a DSpark drafter is served with method {served}"
        yield CERTAIN, says, case.evidence("drafter.config.architectures", "DSpark")
    elif not is_dspark and kind in ("dflash", "dflash2") and served == "dspark":
        says = "a DFlash drafter is served with method dspark"
        confidence = CERTAIN if architecture_method(case.drafter.config or {}) else CANDIDATE
        yield confidence, says, case.evidence("drafter.config.architectures", "DFlash")
    elif not is_dspark and layout.samples_from_anchor and served in ("dflash", "dflash2"):
        says = f"the drafter samples from the anchor, which method {served} does not"
        confidence = CANDIDATE if has_run(case) else CERTAIN
        yield confidence, says, case.evidence("drafter.config.sample_from_anchor", "sample_from_anchor=true")


def _switched_by_path(case: Case) -> Iterator[tuple[float, str, Evidence]]:
    served = speculative_config(case).get("method") or case.method
    if engine_name(case.engine.name) != "vllm" or served in (None, "ngram", "dflash", "dflash2"):
        return
    for place, path in served_paths(case):
        if "dflash" in path.lower():
            says = f"the path contains 'dflash', so vLLM switches from method {served} to dflash"
            # DSpark drafters of DFlash's repositories: read, but not seen to fail.
            yield CANDIDATE if served == "dspark" else CERTAIN, says, case.evidence(place, path)


@rule(
    "DRAFT_PARAMS_INCONSISTENT",
    "LAUNCH",
    "error",
    meaning="Step, branch and token counts contradict each other.",
    derived="eagle_topk 1 and num_draft_tokens ≠ num_steps + 1; SGLang's block size against the checkpoint; "
    "num_speculative_tokens missing for the z-lab layout.",
    remedy="Make the counts agree.",
    probe="Print the effective values.",
    sources=("SpecForge#310", "SGLang dflash_utils"),
)
def draft_params_inconsistent(case: Case, earlier: frozenset[str]) -> Said:
    for confidence, says, place, remedy in (*_eagle_counts(case), *_sglang_block(case), *_count_missing(case)):
        evidence = (case.evidence(place, says),)
        yield Finding("DRAFT_PARAMS_INCONSISTENT", "error", confidence, says, evidence, remedy, "")
        return


Inconsistency = tuple[float, str, str, str]


def _option(case: Case, *keys: str) -> tuple[int, str] | None:
    for key in keys:
        value = case.engine.options.get(key)
        if type(value) is int:
            return value, f"engine.options.{key}"
    return None


def _eagle_counts(case: Case) -> Iterator[Inconsistency]:
    topk = _option(case, "eagle_topk", "speculative_eagle_topk")
    steps = _option(case, "num_steps", "speculative_num_steps")
    tokens = _option(case, "speculative_num_draft_tokens", "num_draft_tokens")
    if drafter_method(case) in ("dflash", "dflash2", "dspark"):
        return  # SGLang forces one step and top-k 1 there, and the count is the block
    if topk is not None and steps is not None and tokens is not None and topk[0] == 1 and tokens[0] != steps[0] + 1:
        says = f"{tokens[0]} draft tokens with top-k 1 and {steps[0]} steps: a chain has {steps[0] + 1}"
        yield CERTAIN, says, tokens[1], f"--speculative-num-draft-tokens {steps[0] + 1}"


def _sglang_block(case: Case) -> Iterator[Inconsistency]:
    layout, method = layout_and_method(case)
    block = layout.block
    if engine_name(case.engine.name) != "sglang" or method not in ("dflash", "dflash2"):
        return
    asked = [
        found
        for key in ("speculative_num_draft_tokens", "num_draft_tokens", "block_size")
        if (found := _option(case, key)) is not None
    ]
    if len({value for value, _ in asked}) > 1:
        says = f"block size given twice, as {' and '.join(str(value) for value, _ in asked)}"
        yield CERTAIN, says, asked[0][1], "Give --speculative-num-draft-tokens alone."
    elif block is not None and asked and asked[0][0] != block.value:
        says = f"block size {asked[0][0]} is asked for, the checkpoint was trained with {block.value}"
        shorter = asked[0][0] < block.value  # works, at lower quality
        remedy = f"--speculative-num-draft-tokens {block.value}"
        yield CANDIDATE if shorter and has_run(case) else CERTAIN, says, asked[0][1], remedy


def _count_missing(case: Case) -> Iterator[Inconsistency]:
    layout, method = layout_and_method(case)
    given = speculative_config(case)
    if engine_name(case.engine.name) != "vllm" or layout.kind != "z-lab" or method not in ("dflash", "dflash2"):
        return
    if not given or drafted(case) is not None or has_run(case):
        return
    most = proposes(layout, method)
    says = "num_speculative_tokens is missing; vLLM has no default for z-lab's layout"
    remedy = f'"num_speculative_tokens": {most}' if most is not None else ""
    yield CERTAIN, says, "engine.options.speculative_config", remedy


@rule(
    "P_MIN_DEFAULT_ZERO",
    "LAUNCH",
    "info; error if builds before and after b9235 are compared and the rate falls by 0.2 or more",
    meaning="llama.cpp no longer stops drafting at low confidence, so full blocks are drafted and the rate looks low.",
    derived="llama.cpp build ≥ b9235 and --spec-draft-p-min absent (spec_draft_p_min default, or p_min=0.00 in the "
    "log).",
    remedy="Set --spec-draft-p-min 0.75, or lower n-max; judge by AL.",
    probe="Same prompts with p-min 0.75.",
    sources=("llama.cpp#25792", "llama.cpp#23269"),
)
def p_min_default_zero(case: Case, earlier: frozenset[str]) -> Said:
    build = build_of(case)
    changed = next(f for f in engines()["llama.cpp"].facts if f.code == "P_MIN_DEFAULT_ZERO")
    fit = build.fit("llama.cpp", changed.start)
    if fit < Fit.BASE or not p_min_unset(case) or case.method == "ngram":
        return
    severity: Severity = "info"
    says = f"{build} drafts full blocks: --spec-draft-p-min is 0.0 by default since b{changed.start}"
    evidence = (case.evidence("engine.version", str(build)),)
    fall = _fall_since(case, str(changed.start))
    if fit is Fit.RELEASE and fall is not None and fall[0] >= _RATE_FALL:
        severity = "error"
        says += f"; the rate fell by {fall[0]:.2f} against {fall[1]}"
    yield Finding("P_MIN_DEFAULT_ZERO", severity, CERTAIN, says, evidence)


def _fall_since(case: Case, start: str) -> tuple[float, str] | None:
    """How much lower the rate is than in an observation of a build before the change."""
    own = primary(case).rate
    for _, seen in comparisons(case):
        version = seen.conditions.get("engine_version")
        if not isinstance(version, str) or own is None:
            continue
        other = build_of_engine(type(case.engine)(case.engine.name, version))
        rate = acceptance(case, seen).rate
        if rate is not None and other.fit("llama.cpp", None, start) is Fit.RELEASE:
            return rate - own, version
    return None
