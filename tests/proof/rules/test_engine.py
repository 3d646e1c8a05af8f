"""Rules about engines: releases with certainty, other builds only with a symptom, healthy ones never."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.proof.case import Case, Drafter, Engine, Observation, Target
from draftproof.proof.layouts import drafter_method
from draftproof.proof.rules import judge
from proof.configs import TARGET, changed, sliding, speculators, zlab

LOW, GOOD, ZERO = {"mean_acceptance_length": 2.0}, {"mean_acceptance_length": 5.0}, {"mean_acceptance_length": 1.0}


def case(
    config: dict[str, Any] | None,
    version: str | None,
    engine: str = "vllm",
    metrics: dict[str, Any] | None = None,
    **more: Any,
) -> Case:
    options = more.pop("options", {})
    seen = more.pop("observations", () if metrics is None else (Observation("run", {}, metrics, more.pop("log", ())),))
    workload, target = more.pop("workload", {}), Target(None, more.pop("target", None))
    drafter = Drafter(config=config, **more)
    method = drafter_method(Case(drafter=drafter)) or "dflash"
    return Case(Engine(engine, version, options), method, 7, drafter, target, workload, seen)


def said(given: Case) -> dict[str, str]:
    return {f.code: f.severity for f in judge(given, areas=["ENGINE"]).findings if f.counts}


SLIDING = "sliding_attention"
DFLASH2 = zlab(architectures=["DFlash2DraftModel"], is_causal=False)


@pytest.mark.parametrize(
    ("config", "engine", "version", "options", "expected"),
    [
        (zlab(), "vllm", "0.19.1", {}, True),
        (None, "vllm", "0.19.1", {}, True),
        (zlab(), "vllm", "0.22.0", {}, False),
        (zlab(), "vllm", "0.19.1", {"build": "fork"}, False),
        (DFLASH2, "vllm", "0.27.1", {}, True),
        (DFLASH2, "vllm", "0.28.0", {}, False),
        (DFLASH2, "vllm", "0.28.0", {"runner": "V1"}, True),
        (zlab(architectures=["DSparkDraftModel"]), "vllm", "0.24.0", {}, True),
        (zlab(architectures=["DSparkDraftModel"]), "vllm", "0.26.0", {"runner": "V1"}, True),
        (speculators(speculators_model_type="dflash2"), "vllm", "0.28.0", {}, True),
        (speculators(speculators_model_type="dflash2"), "vllm", "0.29.0", {}, False),
        (zlab(), "sglang", "0.5.10.post1", {}, True),
        (zlab(), "sglang", "0.5.18", {"pipeline_parallel_size": 2}, True),
        (zlab(), "sglang", "0.5.18", {"pipeline_parallel_size": 1}, False),
        (zlab(), "llama.cpp", "b9000", {}, True),
        (zlab(), "llama.cpp", "b10048", {}, False),
        (zlab(architectures=["DSparkDraftModel"]), "llama.cpp", "b9967", {}, True),
        (zlab(architectures=["DSparkDraftModel"]), "llama.cpp", "b10000", {}, False),
        (zlab(), "vllm-ascend", "0.19.1", {}, False),
        (zlab(), "any", None, {}, False),
    ],
)
def test_engine_lacks_method(config: Any, engine: str, version: Any, options: Any, expected: bool) -> None:
    assert ("ENGINE_LACKS_METHOD" in said(case(config, version, engine, options=options))) == expected


def test_what_has_run_is_not_lacking() -> None:
    assert said(case(zlab(), "0.19.1", metrics=GOOD)) == {}
    log = ("common_speculative_impl_draft_dflash: - block_size=16",)
    assert said(case(zlab(), "b9859", "llama.cpp", metrics={}, log=log)) == {}


@pytest.mark.parametrize(
    ("version", "metrics", "options", "workload", "severity"),
    [
        ("0.20.1", None, {}, {}, "warning"),
        ("0.24.0", GOOD, {}, {}, "warning"),
        ("0.24.0", LOW, {}, {}, "error"),
        ("0.24.0", GOOD, {}, {"context_tokens": 9000}, "error"),
        ("0.24.0", LOW, {}, {"context_tokens": 200}, None),
        ("0.24.0", LOW, {"max_model_len": 256}, {}, None),
        ("0.24.0", LOW, {"build": "overlay"}, {}, "error"),
        ("0.24.0", GOOD, {"build": "overlay"}, {}, None),
        ("0.24.0", None, {"build": "overlay"}, {}, None),
        ("0.26.0", LOW, {}, {}, None),
        (None, LOW, {}, {}, None),
    ],
)
def test_engine_swa_ignored(version: Any, metrics: Any, options: Any, workload: Any, severity: str | None) -> None:
    given = case(sliding(), version, metrics=metrics, options=options, workload=workload)
    assert said(given).get("ENGINE_SWA_IGNORED") == severity


def test_use_swa_alone() -> None:
    swa = zlab(dflash_config__use_swa=True, dflash_config__swa_window_size=64)
    for engine, version, expected in (("vllm", "0.24.0", True), ("vllm", "0.25.0", False), ("sglang", "0.5.23", True)):
        assert ("ENGINE_SWA_IGNORED" in said(case(swa, version, engine))) == expected
    assert "ENGINE_SWA_IGNORED" in said(case(swa, "0.1.0", "z-lab"))


@pytest.mark.parametrize(
    ("config", "version", "options", "metrics", "expected"),
    [
        (sliding(), "0.25.1", {}, None, True),
        (sliding(), "0.25.1", {}, GOOD, False),
        (sliding(full=0), "0.25.1", {}, None, False),
        (sliding(), "0.26.0", {"runner": "V1"}, None, True),
        (sliding(), "0.26.0", {"runner": "V2"}, None, False),
        (sliding(full=0, use_sliding_window=None), "0.26.0", {}, None, True),
        (sliding(full=0, use_sliding_window=None, _truncated=True), "0.26.0", {}, None, False),
        (sliding(full=0, use_sliding_window=False), "0.24.0", {}, None, False),
    ],
)
def test_engine_swa_refused(config: Any, version: str, options: Any, metrics: Any, expected: bool) -> None:
    given = case(config, version, options=options, metrics=metrics)
    assert ("ENGINE_SWA_REFUSED" in said(given)) == expected


def test_engine_swa_refused_in_the_log() -> None:
    log = ("NotImplementedError: Model Runner V1 does not support: mixed sliding/full dflash drafts",)
    assert "ENGINE_SWA_REFUSED" in said(case(None, None, metrics={"outcome": "load_error"}, log=log))


@pytest.mark.parametrize(
    ("config", "engine", "version", "severity"),
    [
        (sliding(), "vllm", "0.24.0", "warning"),
        (sliding(), "vllm", "0.26.0", None),
        (sliding(_truncated=True), "vllm", "0.24.0", None),
        (sliding(), "sglang", "0.5.13", "warning"),
        (sliding(), "llama.cpp", "b11434", "warning"),
        (sliding(is_causal=False), "llama.cpp", "b11434", None),
        (sliding(is_causal=False), "vllm", "0.27.1", "warning"),
        (sliding(is_causal=False), "vllm", "0.28.0", None),
        (sliding(is_causal=False), "sglang", "0.5.17", "warning"),
        (speculators(), "vllm", "0.26.0", "error"),
        (speculators(), "vllm", "0.25.0", None),
        (speculators(sliding_window_non_causal=None), "vllm", "0.26.0", None),
        (speculators(transformer_layer_config__layer_types=[SLIDING] * 2), "vllm", "0.26.0", None),
        (speculators(transformer_layer_config__layer_types=[SLIDING, "full_attention"]), "vllm", "0.33.0", "error"),
        (speculators(transformer_layer_config___truncated=True), "vllm", "0.26.0", None),
    ],
)  # fmt: skip
def test_engine_causality_mismatch(config: Any, engine: str, version: str, severity: str | None) -> None:
    assert said(case(config, version, engine)).get("ENGINE_CAUSALITY_MISMATCH") == severity


@pytest.mark.parametrize(
    ("config", "version", "options", "metrics", "expected"),
    [
        (zlab(), "0.20.1", {}, None, True),
        (zlab(), "0.20.x", {}, GOOD, True),
        (zlab(), "0.22.0", {}, None, False),
        (speculators(), "0.20.1", {}, None, False),
        (zlab(), "0.20.1", {"build": "fork"}, LOW, False),  # never by the size of AL
        (zlab(), None, {"patches": {"vllm#40727": False}}, None, True),
        (zlab(), "0.20.1", {"patches": {"vllm#40727": True}}, None, False),
        (DFLASH2, "0.20.1", {}, None, False),
    ],
)
def test_aux_layer_offset(config: Any, version: Any, options: Any, metrics: Any, expected: bool) -> None:
    given = case(config, version, options=options, metrics=metrics)
    assert ("AUX_LAYER_OFFSET" in said(given)) == expected


def test_aux_layer_offset_of_a_drafter_that_is_only_named() -> None:
    given = case(None, "0.20.1", name="z-lab/Qwen3-8B-DFlash-b16")
    [finding] = [f for f in judge(given, areas=["ENGINE"]).findings if f.code == "AUX_LAYER_OFFSET"]
    assert finding.level == "medium"
    assert "AUX_LAYER_OFFSET" not in said(case(None, "0.20.1", name="someone/else"))


def test_aux_layer_offset_by_shifting() -> None:
    def seen(shift: int, length: float) -> Observation:
        return Observation("", {"layer_id_shift": shift}, {"mean_acceptance_length": length})

    assert "AUX_LAYER_OFFSET" in said(case(zlab(), None, "atlas", observations=(seen(-1, 5.0), seen(0, 5.5))))
    assert said(case(zlab(), None, "atlas", observations=(seen(-1, 5.0), seen(0, 5.1)))) == {}


def test_mask_embedding_not_loaded() -> None:
    files = ("config.json", "mask_embedding.pt")
    for engine, version, expected in (
        ("vllm", "0.24.0", True), ("vllm", "0.25.0", False), ("sglang", "0.5.19", True), ("sglang", "0.5.20", False)
    ):  # fmt: skip
        given = case(zlab(), version, engine, files=files)
        assert ("MASK_EMBEDDING_NOT_LOADED" in said(given)) == expected
    empty = Observation("table", {"static": True}, {"mask_row_norm_reported": "near_zero"})
    runs = (Observation("run", {}, {"mean_acceptance_length": 1.4}), empty)
    assert "MASK_EMBEDDING_NOT_LOADED" in said(
        case(zlab(), None, options={"build": "main"}, files=files, observations=runs)
    )
    assert said(case(zlab(), "0.22.0", options={"build": "fork"}, files=files, metrics=GOOD)) == {}
    assert "MASK_EMBEDDING_NOT_LOADED" not in said(case(zlab(), "0.24.0", files=("config.json",)))


def test_lm_head_not_shared() -> None:
    padded = changed(TARGET, {"vocab_size": 576})
    absent = Observation("index", {"static": True}, {"tensors_absent": ["lm_head.weight"]})

    def run(version: Any, metrics: Any, target: Any = padded, runner: str = "V2", **options: Any) -> dict[str, str]:
        seen = (Observation("run", {}, {"num_drafts": 1000, **metrics}), absent)
        return said(case(zlab(), version, options={"runner": runner, **options}, target=target, observations=seen))

    zero = {"num_accepted_tokens": 3}
    assert "LM_HEAD_NOT_SHARED" in run("0.24.0", zero)
    assert "LM_HEAD_NOT_SHARED" not in run("0.25.1", zero)
    assert "LM_HEAD_NOT_SHARED" not in run("0.24.0", zero, runner="V1")
    assert "LM_HEAD_NOT_SHARED" not in run("0.24.0", {"num_accepted_tokens": 900})
    assert "LM_HEAD_NOT_SHARED" not in run("0.24.0", zero, target=TARGET)
    wrapper = changed(TARGET, {"architectures": ["Qwen3VLForConditionalGeneration"]})
    assert "LM_HEAD_NOT_SHARED" in run("0.25.1", zero, target=wrapper)
    assert "LM_HEAD_NOT_SHARED" not in run("0.26.0", zero, target=wrapper)
    assert "LM_HEAD_NOT_SHARED" in run(None, zero, build="main before the fix")
    assert "LM_HEAD_NOT_SHARED" not in run(None, zero, build="main", patches={"vllm#46435": True})


def test_lm_head_overwritten() -> None:
    def run(length: float, other: float, config: Any) -> dict[str, str]:
        before = Observation("earlier", {"build": "earlier"}, {"mean_acceptance_length": other})
        seen = (Observation("now", {}, {"mean_acceptance_length": length}), before)
        return said(case(config, None, "vllm-ascend", observations=seen))

    reduced = speculators(draft_vocab_size=128)
    assert "LM_HEAD_OVERWRITTEN" in run(1.1, 2.7, reduced)
    assert "LM_HEAD_OVERWRITTEN" not in run(1.0, 2.7, reduced)  # zero is another fault
    assert "LM_HEAD_OVERWRITTEN" not in run(1.5, 2.7, reduced)
    assert "LM_HEAD_OVERWRITTEN" not in run(1.1, 1.8, reduced)
    assert "LM_HEAD_OVERWRITTEN" not in run(1.1, 2.7, speculators())


def test_draft_path_defect() -> None:
    def run(own: Any, other: Any, reference: str = "reference implementation") -> dict[str, str]:
        seen = (Observation("run", {}, own), Observation("ref", {"reference": reference}, other))
        return said(case(zlab(), None, "hipfire", observations=seen))

    taps = {"tap_rms": [1.0, 20.0]}
    assert run({**LOW, **taps}, {**GOOD, **taps}) == {"DRAFT_PATH_DEFECT": "error"}
    assert run({**LOW, **taps}, {**GOOD, "tap_rms": [1.0, 40.0]}) == {}
    assert run(LOW, GOOD) == {}  # taps not compared: a candidate
    assert run({**LOW, **taps}, {**GOOD, **taps}, reference="model card") == {}
    assert said(case(zlab(), None, "hipfire", metrics=ZERO)) == {}


def test_gemma_scaling_missing() -> None:
    gemma = changed(TARGET, {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"]})
    assert "GEMMA_SCALING_MISSING" in said(case(zlab(), None, options={"patches": {"vllm#41703": False}}, target=gemma))
    assert said(case(zlab(), "0.30.0", target=gemma)) == {}
    assert "GEMMA_SCALING_MISSING" in said(case(zlab(), "0.5.17", "sglang", target=gemma))
    assert said(case(zlab(), "0.5.18", "sglang", target=gemma)) == {}
    assert said(case(zlab(), "0.5.17", "sglang", target=TARGET)) == {}


def test_quantized_drafter_unsupported() -> None:
    quantised = zlab(quantization_config={"quant_method": "fp8"})
    assert "QUANTIZED_DRAFTER_UNSUPPORTED" in said(case(quantised, "0.30.0"))
    assert said(case(quantised, "0.31.0")) == {}
    log = ("RuntimeError: expected mat1 and mat2 to have the same dtype, but got: c10::BFloat16 != c10::Float8_e4m3fn",)
    assert "QUANTIZED_DRAFTER_UNSUPPORTED" in said(case(None, None, metrics={"outcome": "crash"}, log=log))
