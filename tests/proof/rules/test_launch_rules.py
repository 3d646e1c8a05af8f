"""Rules about launch lines and settings."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.proof.case import Case, Drafter, Engine, Observation
from draftproof.proof.rules import judge
from proof.configs import speculators, zlab


def case(
    config: dict[str, Any] | None = None,
    engine: str = "vllm",
    version: str | None = None,
    method: str = "dflash",
    k: int | None = None,
    metrics: dict[str, Any] | None = None,
    log: tuple[str, ...] = (),
    **options: Any,
) -> Case:
    workload = options.pop("workload", {})
    seen = options.pop("observations", None)
    if seen is None:
        seen = () if metrics is None and not log else (Observation("run", {}, metrics or {}, log),)
    launch = options.pop("launch", None)
    return Case(
        Engine(engine, version, options, launch),
        method,
        k,
        Drafter(config=config),
        workload=workload,
        observations=seen,
    )


def said(given: Case) -> dict[str, str]:
    return {f.code: f.severity for f in judge(given, areas=["LAUNCH"]).findings if f.counts}


DSPARK = zlab(architectures=["DSparkDraftModel"])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (case(zlab(), k=7), False),
        (case(zlab(), k=8), True),
        (case(DSPARK, method="dspark", k=8), False),
        (case(DSPARK, method="dspark", k=9), True),
        (case(zlab(block_size=None, dflash_config__block_size=4), k=7), True),
        (case({"gguf": {"dflash.block_size": 8}}, "llama.cpp", k=8), True),
        (case({"gguf": {"block_size": 8, "sample_from_anchor": True}}, "llama.cpp", k=8), False),
        (case(zlab(), "sglang", speculative_num_draft_tokens=8), False),
        (case(zlab(), speculative_config={"num_speculative_tokens": 9}), True),
        (case(None, k=99), False),
        (case(None, method="eagle3", k=99), False),
    ],
)
def test_k_exceeds_block(given: Case, expected: bool) -> None:
    assert ("K_EXCEEDS_BLOCK" in said(given)) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (case(DSPARK, method="dflash"), True),
        (case(DSPARK, method="dspark"), False),
        (case(zlab(), method="dspark"), True),
        (case(zlab(architectures=["DFlash2DraftModel"]), method="dflash"), False),
        (case(speculators(sample_from_anchor=True)), True),
        (case({"gguf": {"sample_from_anchor": True}}, "llama.cpp"), False),
        (case(None, method="mtp", model_path_contains="dflash"), True),
        (case(None, method="mtp", speculative_config={"method": "mtp", "model": "/m/x-DFlash"}), True),
        (case(None, "sglang", method="mtp", model_path_contains="dflash"), False),
        (case(None, method="ngram", model_path_contains="dflash"), False),
    ],
)
def test_method_mismatch(given: Case, expected: bool) -> None:
    assert ("METHOD_MISMATCH" in said(given)) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (case(method="eagle3", eagle_topk=1, num_steps=4, num_draft_tokens=24), True),
        (case(method="eagle3", eagle_topk=1, num_steps=4, num_draft_tokens=5), False),
        (case(method="eagle3", eagle_topk=4, num_steps=4, num_draft_tokens=24), False),
        (case(zlab(), "sglang", speculative_num_draft_tokens=16), True),
        (case(zlab(), "sglang", speculative_num_draft_tokens=8, block_size=4), True),
        (case(zlab(), "sglang", speculative_num_draft_tokens=8), False),
        (case(zlab(), speculative_config={"method": "dflash"}), True),
        (case(zlab(), speculative_config={"method": "dflash"}, metrics={"acceptance_rate": 0.4}), False),
        (case(speculators(), speculative_config={"method": "dflash"}), False),
        (case(zlab(), speculative_config={"method": "dflash", "num_speculative_tokens": 7}), False),
    ],
)
def test_draft_params_inconsistent(given: Case, expected: bool) -> None:
    assert ("DRAFT_PARAMS_INCONSISTENT" in said(given)) == expected


@pytest.mark.parametrize(
    ("given", "severity"),
    [
        (case(None, "llama.cpp", "b9235", spec_draft_p_min="default"), "info"),
        (case(None, "llama.cpp", "b9234", spec_draft_p_min="default"), None),
        (case(None, "llama.cpp", "b9235", spec_draft_p_min=0.75), None),
        (case(None, "llama.cpp", "b9235", launch="llama-server --spec-type draft-dflash"), "info"),
        (case(None, "llama.cpp", "b9235", launch="llama-server --spec-draft-p-min 0.75"), None),
        (case(None, "llama.cpp", "b9235", log=("draft_dflash: n_max=7, p_min=0.00",)), "info"),
        (case(None, "llama.cpp", "b9235"), None),
    ],
)
def test_p_min_default_zero(given: Case, severity: str | None) -> None:
    assert said(given).get("P_MIN_DEFAULT_ZERO") == severity


def test_p_min_compared_over_the_change() -> None:
    def seen(version: str, rate: float) -> Observation:
        return Observation(version, {"engine_version": version}, {"acceptance_rate": rate})

    for before, severity in ((0.9, "error"), (0.4, "info")):
        runs = (seen("b9300", 0.3), seen("b9222", before))
        given = case(None, "llama.cpp", "b9300", method="draft_model", spec_draft_p_min="default", observations=runs)
        assert said(given)["P_MIN_DEFAULT_ZERO"] == severity


def test_draft_sample_greedy() -> None:
    config = {"method": "dflash", "num_speculative_tokens": 7}

    def run(**more: Any) -> dict[str, str]:
        asked = {"method": "dflash2", "workload": {"temperature": 1.0}, "speculative_config": config} | more
        return said(case(None, asked.pop("engine", "vllm"), **asked))

    assert run() == {"DRAFT_SAMPLE_GREEDY": "warning"}
    assert run(workload={"temperature": 0}) == {} and run(workload={}) == {}
    assert run(method="dflash") == {} and run(engine="sglang") == {}
    assert run(speculative_config={**config, "draft_sample_method": "probabilistic"}) == {}
    assert run(speculative_config=None, log=("draft_logits=False",)) == {"DRAFT_SAMPLE_GREEDY": "warning"}
    runs = (
        Observation("now", {"temperature": 1.0}, {"mean_acceptance_length": 2.6}),
        Observation("then", {"temperature": 1.0}, {"mean_acceptance_length": 3.2}),
    )
    assert run(observations=runs) == {"DRAFT_SAMPLE_GREEDY": "error"}


def test_ngram_min_too_small() -> None:
    def run(least: int, metrics: Any = None, **workload: Any) -> dict[str, str]:
        given = {"method": "ngram", "prompt_lookup_min": least}
        return said(case(None, method="ngram", speculative_config=given, workload=workload, metrics=metrics))

    assert run(2, tools=True) == {"NGRAM_MIN_TOO_SMALL": "warning"}
    assert run(2, {"output": "tool_arguments_mangled"}, tools=True) == {"NGRAM_MIN_TOO_SMALL": "error"}
    assert run(2) == {} and run(5, tools=True) == {}


def test_batched_tokens_too_small() -> None:
    assert "BATCHED_TOKENS_TOO_SMALL" in said(case(k=15, max_num_seqs=16, max_num_batched_tokens=255))
    assert said(case(k=15, max_num_seqs=16, max_num_batched_tokens=256)) == {}
    assert said(case(max_num_seqs=16, max_num_batched_tokens=1)) == {}
    assert "BATCHED_TOKENS_TOO_SMALL" in said(case(log=("max_num_scheduled_tokens=4096 ... suboptimal performance",)))


@pytest.mark.parametrize(
    ("given", "severity"),
    [
        (case(zlab(), max_model_len=4096), None),
        (case(zlab(), max_model_len=4097), "warning"),
        (case(zlab(), workload={"context_tokens": 5000}, metrics={"outcome": "ok"}), "warning"),
        (case(zlab(), workload={"context_tokens": 5000}, metrics={"outcome": "crash"}), "error"),
        (case(zlab(), workload={"context_tokens_above": 4096}, metrics={"outcome": "crash"}), "error"),
        (case(zlab(), workload={"context_tokens": 100}, metrics={"outcome": "crash"}, max_model_len=9000), "warning"),
    ],
)
def test_draft_max_len_lt_target(given: Case, severity: str | None) -> None:
    assert said(given).get("DRAFT_MAX_LEN_LT_TARGET") == severity


def test_draft_fp16_overflow() -> None:
    def run(quant: str, hardware: str, own: float, other: float | None = None, its: str = "w4a32") -> bool:
        seen = [Observation("a", {"draft_quant": quant}, {"mean_acceptance_length": own})]
        if other is not None:
            seen.append(Observation("b", {"draft_quant": its}, {"mean_acceptance_length": other}))
        return "DRAFT_FP16_OVERFLOW" in said(case(None, "mlx", k=4, hardware=hardware, observations=tuple(seen)))

    assert run("w4:gs64", "M1 Max", 1.0) and run("w4a16", "M2", 1.5, 3.0) and run("w4", "M1", 1.5, 3.0, "none")
    assert not run("w4", "M4 Pro", 1.0) and not run("w4a32", "M1", 1.0) and not run("w4", "M1", 2.5, 3.0)


def test_draft_backend_unsupported() -> None:
    device = "pre-allocated tensor in a buffer that cannot run the operation"
    assert said(case(None, "llama.cpp", log=(device,))) == {"DRAFT_BACKEND_UNSUPPORTED": "error"}
    zero, good = {"mean_acceptance_length": 1.0}, {"mean_acceptance_length": 4.0}
    assert said(case(zlab(), k=7, metrics=zero, attention_backend="FLASH_ATTN_V100")) == {
        "DRAFT_BACKEND_UNSUPPORTED": "warning"
    }
    assert "DRAFT_BACKEND_UNSUPPORTED" in said(case(zlab(), k=7, metrics=zero, hardware="4x V100 (sm70)"))
    assert "DRAFT_BACKEND_UNSUPPORTED" in said(case(zlab(), k=7, metrics=zero, kv_cache_dtype="fp8_e5m2"))
    assert said(case(zlab(is_causal=True), k=7, metrics=zero, kv_cache_dtype="fp8")) == {}
    assert said(case(zlab(), k=7, metrics=good, kv_cache_dtype="fp8", attention_backend="X")) == {}
    assert said(case(zlab(), k=7, metrics=zero, attention_backend="flash_attn")) == {}


def test_capture_sizes() -> None:
    assert said(case(k=15, cudagraph_capture_sizes=[1, 2, 8])) == {"CAPTURE_SIZES_TOO_SMALL": "warning"}
    assert said(case(k=7, max_num_seqs=16, cudagraph_capture_sizes=[8, 64])) == {"CAPTURE_SIZES_TOO_SMALL": "info"}
    assert said(case(k=7, max_num_seqs=8, cudagraph_capture_sizes=[8, 64])) == {}


def test_problems_of_the_line() -> None:
    problem = {"severity": "error", "what": "unknown key", "remedy": "Remove it."}
    assert said(case(launch_problems=[problem])) == {"LAUNCH_FLAG_INEFFECTIVE": "error"}
    assert said(case(launch_problems="text")) == {}
