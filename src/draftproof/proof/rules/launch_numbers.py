"""Number formats, devices and draft sampling that the launch chooses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from draftproof.proof.case import Case, Observation
from draftproof.proof.findings import Finding, Severity
from draftproof.proof.judging import CERTAIN, comparisons, exact_zero, failed, log_lines, primary
from draftproof.proof.launching import speculative_config
from draftproof.proof.layouts import DFLASH_FAMILY, drafter_method, layout_of
from draftproof.proof.quantities import acceptance, number, ratio
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.traits import drafts_greedily
from draftproof.proof.versions import engine_name

_LOSS = 0.9
_GREEDY_LOG = "draft_logits=False"
_HALF_PRECISION = re.compile(r"^w\d+(?:a16)?(?::|$)", re.IGNORECASE)
_FULL = re.compile(r"a32|^(none|bf16|bfloat16|fp32|float32)$", re.IGNORECASE)
_NO_BF16 = re.compile(r"\bM[12]\b")
_DEVICE_LOG = "pre-allocated tensor in a buffer that cannot run the operation"
_STANDARD_BACKENDS = {
    "auto", "default", "flash_attn", "flashattention", "flash_attn_vllm_v1", "flashinfer", "triton", "triton_attn",
    "fa2", "fa3", "fa4", "flash_attention", "trtllm_mha", "flashmla",
}  # fmt: skip
_OLD_GPU = re.compile(r"\bsm_?([567]\d)\b|\b(V100|T4|P100|P40|2080|TITAN V)\b", re.IGNORECASE)
_SMALL_KV = re.compile(r"fp8|int8|q8_0|q4|e5m2|e4m3", re.IGNORECASE)


@rule(
    "DRAFT_SAMPLE_GREEDY",
    "LAUNCH",
    "warning; error if AL - 1 is at least 10 % below a comparable run at the same temperature",
    meaning="Drafts are proposed greedily while requests are sampled; rejection then uses a one-hot q.",
    derived="vLLM, dflash2 or dspark, temperature > 0, draft_sample_method absent or greedy in a given "
    "speculative_config; or log draft_logits=False. Not for temperature 0, not for other engines.",
    remedy='"draft_sample_method": "probabilistic"',
    probe="Same prompts at temperature 0 and 1; a loss of about 13 to 16 % at T=1 is normal.",
    sources=("syv-ai#73",),
)
def draft_sample_greedy(case: Case, earlier: frozenset[str]) -> Said:
    seen = case.primary.conditions if case.primary is not None else {}
    temperature = number(seen, "temperature")
    if temperature is None:
        temperature = number(case.workload, "temperature")
    if engine_name(case.engine.name) != "vllm" or drafter_method(case) not in ("dflash2", "dspark"):
        return
    if temperature is None or temperature <= 0:
        return
    logged = next((place for place, line in log_lines(case) if _GREEDY_LOG in line), None)
    if not drafts_greedily(case) and logged is None:
        return
    severity: Severity = "warning"
    says = f"drafts are greedy while requests are sampled at temperature {temperature:g}"
    for _, other in comparisons(case):
        share = ratio(primary(case), acceptance(case, other))
        if number(other.conditions, "temperature") in (None, temperature) and share is not None and share <= _LOSS:
            severity = "error"
            says += f"; {other.label or 'a comparable run'} accepts {1 / share - 1:.0%} more"
            break
    place = logged or "engine.options.speculative_config"
    method = speculative_config(case).get("draft_sample_method", "absent")
    yield Finding(
        "DRAFT_SAMPLE_GREEDY", severity, CERTAIN, says, (case.evidence(place, f"draft_sample_method {method}"),)
    )


@rule(
    "DRAFT_FP16_OVERFLOW",
    "LAUNCH",
    "error",
    meaning="Draft activations run in fp16 on a drafter trained in bf16.",
    derived="draft_quant with 16-bit activations (w4, w4a16) on chips without native bf16 (M1, M2), and acceptance "
    "zero or at most half of the run with w4a32 or unquantised bf16.",
    remedy="w4a32, or bf16 for the drafter.",
    probe="One run with the unquantised drafter.",
    sources=("dflash-mlx#60", "z-lab#160", "omlx#2987"),
)
def draft_fp16_overflow(case: Case, earlier: frozenset[str]) -> Said:
    own = _draft_quant(case, case.primary)
    hardware = str(case.engine.options.get("hardware") or "")
    if own is None or not _HALF_PRECISION.match(own) or not _NO_BF16.search(hardware):
        return
    says = f"draft_quant {own} computes in fp16 on {hardware}"
    for index, seen in comparisons(case):
        other = _draft_quant(case, seen)
        share = ratio(primary(case), acceptance(case, seen))
        if other is not None and _FULL.search(other.split(":")[0]) and share is not None and share <= 0.5:
            says += f"; with {other} {seen.label or 'the same run'} accepts at least twice as much"
            evidence = (case.evidence(f"observations[{index}].metrics", f"draft_quant {other}"),)
            yield Finding("DRAFT_FP16_OVERFLOW", "error", CERTAIN, says, evidence)
            return
    if exact_zero(primary(case)):
        evidence = (case.evidence("engine.options.draft_quant", own),)
        yield Finding("DRAFT_FP16_OVERFLOW", "error", CERTAIN, says + "; nothing is accepted", evidence)


def _draft_quant(case: Case, seen: Observation | None) -> str | None:
    value = seen.conditions.get("draft_quant") if seen is not None else None
    if value is None and seen is case.primary:
        value = case.engine.options.get("draft_quant")
    return value if isinstance(value, str) else None


@rule(
    "DRAFT_BACKEND_UNSUPPORTED",
    "LAUNCH",
    "warning; error with a matching failure",
    meaning="Device placement, attention backend or KV dtype of the drafter is outside what the drafter path supports.",
    derived="Error: log 'pre-allocated tensor in a buffer that cannot run the operation' (drafter and target on "
    "different devices). Warning: non-standard attention backend or a GPU generation below sm80, fp8 or int8 KV cache "
    "with a non-causal drafter, and acceptance zero or failing.",
    remedy="Keep the drafter on a device that holds the target; bf16 KV for the drafter; a backend with non-causal "
    "attention.",
    probe="Same run with the default backend and KV dtype auto.",
    sources=("llama.cpp#26475", "1Cat-vLLM#478", "vllm#41559", "llama.cpp#27342"),
)
def draft_backend_unsupported(case: Case, earlier: frozenset[str]) -> Said:
    for place, line in log_lines(case):
        if _DEVICE_LOG in line:
            says = "an operation of the drafter was placed on a device that does not hold its tensors"
            yield Finding("DRAFT_BACKEND_UNSUPPORTED", "error", CERTAIN, says, (case.evidence(place, line),))
            return
    if drafter_method(case) not in DFLASH_FAMILY or not (exact_zero(primary(case)) or failed(case.primary)):
        return
    reasons = list(_unusual(case))
    if reasons:
        says = f"{', '.join(text for text, _ in reasons)}; nothing is accepted or the run fails"
        evidence = tuple(case.evidence(f"engine.options.{key}", text) for text, key in reasons)
        yield Finding("DRAFT_BACKEND_UNSUPPORTED", "warning", CERTAIN, says, evidence)


def _unusual(case: Case) -> Iterator[tuple[str, str]]:
    options = case.engine.options
    backend = options.get("attention_backend")
    if isinstance(backend, str) and backend.lower() not in _STANDARD_BACKENDS:
        yield f"attention backend {backend}", "attention_backend"
    hardware = options.get("hardware")
    if isinstance(hardware, str) and _OLD_GPU.search(hardware):
        yield f"a GPU below sm80 ({hardware})", "hardware"
    cache = options.get("kv_cache_dtype")
    layout = layout_of(case)
    causal = layout.is_causal or layout.nested_causal
    non_causal = causal is None or causal.value is False
    if isinstance(cache, str) and _SMALL_KV.search(cache) and non_causal:
        yield f"KV cache in {cache} with a non-causal drafter", "kv_cache_dtype"
