"""Every rule about measurements: one case in which it speaks, and one, as near as possible, in which it must not."""
# ruff: noqa: E501

from __future__ import annotations

import pytest

from draftproof.proof.case import Case
from draftproof.proof.rules import PAGES
from proof.rules.making import case, run, severity

GOOD = {"num_drafts": 500, "num_draft_tokens": 3500, "num_accepted_tokens": 2000}  # AL 5.0 at k = 7
LOW = {"num_drafts": 500, "num_draft_tokens": 3500, "num_accepted_tokens": 500}  # AL 2.0
ZERO = {"num_drafts": 500, "num_draft_tokens": 3500, "num_accepted_tokens": 3}
PLAIN = {"drafter": False}
STEEP = [0.8, 0.6, 0.4, 0.22, 0.1, 0.03, 0.01]
LEVEL = [0.8, 0.6, 0.45, 0.34, 0.25, 0.19, 0.14]
QWEN3 = {"name": "z-lab/Qwen3-8B-DFlash-b16"}

# code → (severity, case that shows it, case that must not)
PAIRS: dict[str, list[tuple[str, Case, Case]]] = {
    "TOO_FEW_SAMPLES": [
        ("info", case(run(num_drafts=23, num_accepted_tokens=44)), case(run(num_drafts=230, num_accepted_tokens=440))),
        ("info", case(run(num_drafts=80, num_accepted_tokens=130)), case(run(num_drafts=80, num_accepted_tokens=400))),
        ("info", case(run(num_draft_tokens=20, num_accepted_tokens=4), k=None), case(run(acceptance_rate=0.2), k=None)),
    ],
    "ACCEPTANCE_EXACT_ZERO": [
        ("warning", case(run(**ZERO)), case(run(**LOW))),
        ("warning", case(run(acceptance_rate=0.001), k=None), case(run(acceptance_rate=0.01), k=None)),
        ("warning", case(run(num_drafts=300, accepted_per_position=[0.01])), case(run(num_drafts=20, num_accepted_tokens=0))),
    ],
    "ACCEPTANCE_LOW": [
        ("warning", case(run(**LOW)), case(run(**GOOD))),
        ("warning", case(run(mean_acceptance_length=1.7), method="eagle3", k=3), case(run(mean_acceptance_length=2.0), method="eagle3", k=3)),
        ("warning", case(run(acceptance_rate=0.1), k=None), case(run(acceptance_rate=0.12), k=None)),
        ("warning", case(run(acceptance_reported="much_lower")), case(run(acceptance_reported="lower"))),
        ("warning", case(run(**LOW)), case(run(**LOW), method="ngram")),
    ],
    "ACCEPTANCE_BELOW_REFERENCE": [
        ("warning", case(run(**LOW), run({"reference": "model card"}, mean_acceptance_length=5.5)), case(run(**GOOD), run({"reference": "model card"}, mean_acceptance_length=5.5))),
        (
            "warning",
            case(run(mean_acceptance_length=4.0), k=15, drafter=QWEN3, workload={"dataset": "GSM8K", "temperature": 0, "thinking": False}),
            case(run(mean_acceptance_length=4.0), k=15, drafter=QWEN3, workload={"dataset": "GSM8K", "temperature": 0}),
        ),
    ],
    "ACCEPTANCE_CLIFF_AT_POSITION": [
        ("warning", case(run(num_drafts=400, accepted_per_position=[0.8, 0.6, 0.5, 0.01, 0.005, 0, 0])), case(run(num_drafts=30, accepted_per_position=[0.8, 0.6, 0.5, 0.01, 0.005, 0, 0]))),
    ],
    "ACCEPTANCE_TAIL_STEEP": [
        ("warning", case(run(num_drafts=2000, accepted_per_position=STEEP)), case(run(num_drafts=2000, accepted_per_position=LEVEL))),
        ("warning", case(run(accepted_per_position=STEEP)), case(run(num_drafts=20, accepted_per_position=STEEP))),
    ],
    "ACCEPTANCE_SUSPICIOUSLY_HIGH": [("info", case(run(acceptance_rate=0.99)), case(run(acceptance_rate=0.95)))],
    "HEALTHY": [
        ("info", case(run(**GOOD)), case(run(**LOW))),
        ("info", case(run(acceptance_rate=0.35), k=None), case(run(acceptance_rate=0.25), k=None)),
    ],
    "ACCEPTANCE_DROPS_WITH_CONTEXT": [
        ("warning", case(run({"context_tokens": 32000}, acceptance_rate=0.4), run({"context_tokens": 4000}, acceptance_rate=0.6)), case(run({"context_tokens": 32000}, acceptance_rate=0.4), run({"context_tokens": 20000}, acceptance_rate=0.6))),
        ("warning", case(run({"context": "long"}, first_position_acceptance=0.6), run({"context": "short"}, first_position_acceptance=0.9)), case(run({"context": "long"}, first_position_acceptance=0.6), run({"context": "short", "dataset": "other"}, first_position_acceptance=0.9))),
    ],
    "ACCEPTANCE_DROPS_WITH_CONCURRENCY": [
        ("warning", case(run({"concurrency": 8}, **LOW), run({"concurrency": 1}, **GOOD)), case(run({"concurrency": 8}, **GOOD), run({"concurrency": 1}, **GOOD))),
    ],
    "ACCEPTANCE_DROPS_ON_CACHE_HIT": [
        ("warning", case(run({"cached_prefix": True}, **LOW), run({"cached_prefix": False}, **GOOD)), case(run({"cached_prefix": True}, **GOOD), run({"cached_prefix": False}, **GOOD))),
    ],
    "ACCEPTANCE_DROPS_OVER_TIME": [
        ("warning", case(run({"uptime": "hours"}, mean_acceptance_length=2.7), run({"uptime": "start"}, mean_acceptance_length=3.1)), case(run({"uptime": "start"}, mean_acceptance_length=2.7), run({"uptime": "hours"}, mean_acceptance_length=3.1))),
        ("warning", case(run({"generated_tokens_above": 9000}, acceptance_rate=0.0), run({"generated_tokens_below": 9000}, acceptance_reported="normal")), case(run({"generated_tokens_above": 9000}, acceptance_rate=0.5), run({"generated_tokens_below": 9000}, acceptance_reported="normal"))),
    ],
    "ACCEPTANCE_DIFFERS_BETWEEN_BUILDS": [
        ("warning", case(run({"engine_version": "0.28.0"}, acceptance_rate=0.3), run({"engine_version": "0.27.1"}, acceptance_rate=0.4)), case(run({"engine_version": "0.28.0"}, acceptance_rate=0.3), run({"engine_version": "0.27.1", "hardware": "other"}, acceptance_rate=0.4))),
        ("error", case(run({"runner": "V2"}, **ZERO), run({"runner": "V1"}, acceptance_reported="normal")), case(run({"runner": "V2"}, **GOOD), run({"runner": "V1"}, acceptance_reported="normal"))),
    ],
    "FAILURE_IS_PAIR_SPECIFIC": [
        ("info", case(run(**LOW), run({"target": "another"}, acceptance_rate=0.5)), case(run(**LOW), run({"target": "another"}, acceptance_rate=0.1))),
    ],
    "FAILURE_IS_ENGINE_WIDE": [
        ("info", case(run(**ZERO), run({"target": "b"}, acceptance_rate=0.0), run({"target": "c"}, acceptance_rate=0.0)), case(run(**ZERO), run({"target": "b"}, acceptance_rate=0.0), run({"target": "c"}, acceptance_rate=0.5))),
    ],
    "CUDAGRAPH_CORRUPTS_DRAFTS": [
        ("error", case(run({"cudagraph_mode": "FULL"}, **LOW), run({"enforce_eager": True}, **GOOD)), case(run({"cudagraph_mode": "FULL"}, **LOW), run({"enforce_eager": True, "temperature": 1}, **GOOD))),
        ("error", case(run({"cudagraph_mode": "FULL"}, acceptance_reported="much_lower"), run({"cudagraph_mode": "PIECEWISE"}, acceptance_reported="normal")), case(run({"cudagraph_mode": "PIECEWISE"}, **LOW), run({"enforce_eager": True}, **GOOD))),
    ],
    "BENCH_DATA_RANDOM": [
        ("warning", case(run(**GOOD), workload={"dataset": "random-mm"}), case(run(**GOOD), workload={"dataset": "sharegpt, random order"})),
    ],
    "THINKING_MODE_MISMATCH": [
        ("warning", case(run(**GOOD), drafter=QWEN3, workload={"thinking": True}), case(run(**GOOD), drafter=QWEN3, workload={"thinking": False})),
        ("error", case(run({"thinking": True}, **GOOD), run({"thinking": False}, mean_acceptance_length=8), drafter=QWEN3), case(run({"thinking": False}, **GOOD), run({"thinking": True}, mean_acceptance_length=8), drafter=QWEN3)),
        ("error", case(run(**LOW), drafter={"name": "z-lab/Qwen3.6-27B-DFlash"}, workload={"thinking": False}), case(run(**LOW), drafter={"name": "z-lab/Qwen3.6-27B-DFlash"}, workload={"thinking": True})),
    ],
    "WORKLOAD_SHIFT": [
        ("info", case(run({"language": "zh"}, mean_acceptance_length=3.3), run({"language": "en"}, mean_acceptance_length=6.4)), case(run({"language": "zh"}, mean_acceptance_length=2.3), run({"language": "en"}, mean_acceptance_length=6.4))),
    ],
    "CONTEXT_DECAY": [
        ("warning", case(run({"context_tokens": 32000}, first_position_acceptance=0.6), run({"context_tokens": 2000}, first_position_acceptance=0.9)), case(run({"context_tokens": 32000}, first_position_acceptance=0.3), run({"context_tokens": 2000}, first_position_acceptance=0.9))),
        (
            "warning",
            case(*(run({"context_tokens": n}, acceptance_rate=r) for n, r in ((64000, 0.3), (16000, 0.42), (2000, 0.6)))),
            case(*(run({"context_tokens": n}, acceptance_rate=r) for n, r in ((64000, 0.26), (16000, 0.27), (2000, 0.6)))),
        ),
    ],
    "RATE_MISREAD": [("info", case(run(acceptance_rate=0.2), k=15), case(run(acceptance_rate=0.1), k=15)), ("info", case(run(acceptance_rate=0.3), k=7), case(run(acceptance_rate=0.3), k=5))],
    "METRIC_INCONSISTENT": [
        ("warning", case(run(**GOOD, printed_mean_acceptance_length=6.0)), case(run(**GOOD, printed_mean_acceptance_length=5.02))),
        ("warning", case(run(**GOOD, acceptance_rate=0.7)), case(run(**GOOD, acceptance_rate=0.571))),
        ("warning", case(run(mean_acceptance_length=5.0, accepted_per_position=LEVEL)), case(run(mean_acceptance_length=3.8, accepted_per_position=LEVEL))),
        ("warning", case(run(mean_acceptance_length=5.0, acceptance_rate=0.4)), case(run(mean_acceptance_length=5.0, acceptance_rate=0.4), tree="ddtree")),
    ],
    "METRIC_DEFINITION": [
        ("info", case(run(**GOOD, tokens_per_step=2.9), method="ngram"), case(run(**GOOD), method="ngram")),
        ("info", case(run(acceptance_ratio_committed=0.7)), case(run(acceptance_rate=0.7))),
        ("info", case(run(**GOOD, printed_mean_acceptance_length=4.0)), case(run(**GOOD, printed_mean_acceptance_length=5.0))),
    ],
    "TP_RANK_DIVERGENCE": [
        ("warning", case(run(num_accepted_tokens_by_line=[1558, 1562, 1560])), case(run(num_accepted_tokens_by_line=[1558, 1558]))),
        ("warning", case(run({}, "steps=9 proposed=63 accepted=20", "steps=9 proposed=63 accepted=22")), case(run({}, "steps=9 proposed=63 accepted=20", "steps=10 proposed=70 accepted=22"))),
    ],
    "LOG_RED_HERRING": [("info", case(run({}, "dflash requires ctx_other to be set (normal)")), case(run({}, "GGML_ASSERT(ctx_other) failed")))],
    "BASELINE_MISSING": [
        ("info", case(run(tok_s=40.0)), case(run(tok_s=40.0, baseline_tok_s=30.0))),
        ("info", case(run(speed_reported="poor")), case(run(speed_reported="faster"))),
    ],
    "SPEC_SLOWER_THAN_BASELINE": [
        ("warning", case(run(tok_s=90.0, baseline_tok_s=100.0)), case(run(tok_s=99.0, baseline_tok_s=100.0))),
        ("warning", case(run(speed_reported="slower")), case(run(speed_reported="parity"))),
        ("info", case(run({"concurrency": 1}, **GOOD), run({"concurrency": 32}, speed_reported="slower")), case(run({"concurrency": 1}, **GOOD), run({"concurrency": 32}, speed_reported="faster"))),
    ],
    "STEP_COST_HIGH": [
        ("warning", case(run(mean_acceptance_length=5.0, tok_s=110.0, baseline_tok_s=100.0)), case(run(mean_acceptance_length=5.0, tok_s=150.0, baseline_tok_s=100.0))),
        ("warning", case(run(mean_acceptance_length=5.0, step_ms=17.0, baseline_step_ms=3.5, tok_s=110, baseline_tok_s=100)), case(run(mean_acceptance_length=2.0, step_ms=17.0, baseline_step_ms=3.5, tok_s=57, baseline_tok_s=100))),
    ],
    "K_TOO_LARGE": [
        ("warning", case(run({"num_speculative_tokens": 15}, tok_s=100.0), run({"num_speculative_tokens": 5}, tok_s=130.0)), case(run({"num_speculative_tokens": 5}, tok_s=130.0), run({"num_speculative_tokens": 15}, tok_s=100.0))),
        ("info", case(run(mean_acceptance_length=3.2), k=15), case(run(mean_acceptance_length=3.2), k=7)),
    ],
    "CUDAGRAPH_SHAPE_MISS": [
        ("error", case(run({"concurrency": 6}, tok_s_relative=1.0), run({"concurrency": 6, "cudagraph_capture": "exact"}, tok_s_relative=1.2), cudagraph_capture_requests=[1, 2, 4, 8]), case(run({"concurrency": 8}, tok_s_relative=1.0), run({"concurrency": 8, "cudagraph_capture": "exact"}, tok_s_relative=1.2), cudagraph_capture_requests=[1, 2, 4, 8])),
        ("error", case(run({"concurrency": 3}, step_ms=30.0), run({"concurrency": 4}, step_ms=20.0), cudagraph_capture_requests=[1, 2, 4]), case(run({"concurrency": 3}, step_ms=20.0), run({"concurrency": 2}, step_ms=15.0), cudagraph_capture_requests=[1, 2, 4])),
    ],
    "DRAFT_MEMORY_EXCESS": [
        ("error", case(run({}, "DFlash context target/slot=384000 logical=1", "cudaMalloc failed: out of memory", outcome="oom")), case(run({}, "DFlash context target/slot=4096 logical=1", outcome="ok"))),
        ("error", case(run(outcome="oom"), ctx_size=100000, draft_ctx_size=100000), case(run(outcome="oom"), method="ngram", ctx_size=100000, draft_ctx_size=4096)),
    ],
    "PREFIX_CACHE_DISABLED_BY_DRAFTER": [
        ("error", case(run(prefix_cache_hits=0, prefix_cache_queries=50000), run(PLAIN, prefix_cache_reported="normal")), case(run(prefix_cache_hits=900, prefix_cache_queries=50000), run(PLAIN, prefix_cache_reported="normal"))),
        ("error", case(run({}, "no KV cache group could be identified as the draft model's; reuse across requests will be disabled")), case(run({}, "KV cache group 1 identified"))),
        ("error", case(run({"repeated_prompt": True}, prefix_cache_hits=0, ttft_s=9.0), run({"repeated_prompt": True, **PLAIN}, ttft_s=0.5)), case(run({"repeated_prompt": True}, prefix_cache_hits=0, ttft_s=0.9), run({"repeated_prompt": True, **PLAIN}, ttft_s=0.5))),
    ],
    "PREFIX_CACHE_DRAFT_KV": [
        ("error", case(run({"cached_prefix": True}, **LOW), run({"prefix_caching": False, "cached_prefix": False}, **GOOD)), case(run({"cached_prefix": True}, **LOW), run({"cached_prefix": False}, **GOOD), method="mtp")),
        ("error", case(run({"cached_prefix": True}, outcome="http_500"), run({"cached_prefix": False}, outcome="ok")), case(run({"cached_prefix": True}, outcome="http_500"), run({"cached_prefix": False}, outcome="http_500"))),
    ],
    "PREFIX_CACHE_CORRUPTION": [
        (
            "error",
            case(run({"prefix_caching": True}, output="corrupt"), run({"prefix_caching": True, **PLAIN}, output="ok"), run({"prefix_caching": False}, output="ok")),
            case(run({"prefix_caching": True}, output="corrupt"), run({"prefix_caching": True, **PLAIN}, output="corrupt"), run({"prefix_caching": False}, output="ok")),
        ),
        (
            "warning",
            case(run({"uptime": "hours"}, mean_acceptance_length=2.7), run({"uptime": "restart"}, mean_acceptance_length=3.1), prefix_caching=True, workload={"prompts": "frequent prompts"}),
            case(run({"uptime": "hours"}, mean_acceptance_length=2.7), run({"uptime": "restart"}, mean_acceptance_length=3.1), prefix_caching=False, workload={"prompts": "frequent prompts"}),
        ),
    ],
    "STATE_LEAK_BETWEEN_REQUESTS": [
        ("error", case(run({"request_index": 2}, outcome="crash"), run({"request_index": 1}, outcome="ok")), case(run({"request_index": 1}, outcome="crash"), run({"request_index": 2}, outcome="ok"))),
        ("error", case(run({"request_index": 3}, **ZERO), run({"request_index": 1}, **GOOD)), case(run({"request_index": 3}, **GOOD), run({"request_index": 1}, **GOOD))),
    ],
    "CRASH_UNDER_CONCURRENCY": [
        ("error", case(run({"concurrency": 16}, outcome="crash", kv_cache_usage=0.1)), case(run({"concurrency": 16}, outcome="crash", kv_cache_usage=0.97))),
        ("candidate", case(run({"concurrency": 16}, outcome="crash")), case(run({"concurrency": 1}, outcome="crash"))),
    ],
    "OUTPUT_NOT_LOSSLESS": [
        ("error", case(run({}, accuracy=0.62), run(PLAIN, accuracy=0.93), workload={"num_prompts": 60}), case(run({}, accuracy=0.90), run(PLAIN, accuracy=0.93), workload={"num_prompts": 60})),
        ("warning", case(run(output="text_differs"), workload={"temperature": 0}), case(run(output="text_differs"), workload={"temperature": 1})),
    ],
    "GRAMMAR_CONFLICT": [
        ("error", case(run({"structured_output": True}, "The size of tensor a (40) must match the size of tensor b (41) at", outcome="crash")), case(run({"structured_output": True}, "The size of tensor a (40) must match the size of tensor b (64) at", outcome="crash"))),
        ("warning", case(run({"structured_output": True}, "Failed to advance FSM for request", outcome="ok")), case(run({"structured_output": True}, outcome="ok"))),
        ("error", case(run(outcome="http_400"), name="sglang", version="0.5.14", workload={"structured_output": "json"}), case(run(outcome="http_400"), name="sglang", version="0.5.20", workload={"structured_output": "json"})),
    ],
    "API_PARAM_UNSUPPORTED": [
        ("error", case(run({}, "min_p and logit_bias sampling parameters are not yet supported with speculative decoding", outcome="http_400")), case(run({}, "bad request", outcome="http_400"))),
        ("error", case(run(), runner="V2", workload={"request_params": ["thinking_token_budget"]}), case(run(), runner="V1", workload={"request_params": ["thinking_token_budget"]})),
    ],
    "STREAM_PARSER_LOSES_TEXT": [
        ("error", case(run(tool_calls_ok=7, tool_calls_total=20), run(PLAIN, tool_calls_ok=20, tool_calls_total=20), workload={"streaming": True}), case(run(tool_calls_ok=7, tool_calls_total=20), run(PLAIN, tool_calls_ok=8, tool_calls_total=20), workload={"streaming": True})),
        ("error", case(run(output="reasoning_truncated"), run(PLAIN, output="ok"), reasoning_parser="qwen3"), case(run(output="ok"), run(PLAIN, output="ok"), reasoning_parser="qwen3")),
    ],
    "STREAM_DIFFERS": [
        ("error", case(run(streamed_lost=1)), case(run(outcome="ok"))),
        ("warning", case(run(streamed_finish=2)), case(run(streamed_finish=0))),
        ("candidate", case(run(streamed_differs=1)), case(run(streamed_differs=0))),
    ],
    "USAGE_MISCOUNTED": [
        ("warning", case(run(usage_wrong=3)), case(run(usage_wrong=0))),
        ("warning", case(run(usage_streamed=1)), case(run())),
    ],
    "VISION_POSITION_FAULT": [
        ("error", case(run({"image": True}, **LOW), run({"image": False}, **GOOD)), case(run({"image": True}, **GOOD), run({"image": False}, **GOOD))),
        ("error", case(run({"image": True}, outcome="http_500"), run({"image": False}, outcome="ok")), case(run({"image": True}, outcome="http_500"), run({"image": False}, outcome="http_500"))),
    ],
    "TRAIN_SERVE_GAP": [
        ("warning", case(run(mean_acceptance_length=1.3), run({"phase": "training"}, train_accuracy=0.75)), case(run(mean_acceptance_length=1.3), run({"phase": "training"}, train_accuracy=0.4))),
        ("warning", case(run(acceptance_reported="much_lower"), run({"phase": "training"}, acceptance_reported="normal")), case(run(acceptance_reported="normal"), run({"phase": "training"}, acceptance_reported="normal"))),
    ],
    "DRAFTER_CHECKPOINT_WEAK": [
        ("warning", case(run(num_drafts=2000, accepted_per_position=STEEP), run({"phase": "training", "run": "short test run"})), case(run(num_drafts=2000, accepted_per_position=STEEP), run({"phase": "training", "epochs": 20}))),
        ("warning", case(run({"epoch": 6}, mean_acceptance_length=3.18), run({"epoch": 4}, mean_acceptance_length=3.34)), case(run({"epoch": 6}, mean_acceptance_length=3.31), run({"epoch": 4}, mean_acceptance_length=3.34))),
    ],
}  # fmt: skip
AREAS = {"RUNTIME", "WORKLOAD", "METRICS", "COST", "SERVING", "TRAINING"}


@pytest.mark.parametrize(
    ("code", "expected", "shows", "not_so"),
    [(code, *pair) for code, pairs in PAIRS.items() for pair in pairs],
    ids=[f"{code}-{i}" for code, pairs in PAIRS.items() for i in range(len(pairs))],
)
def test_a_rule_speaks_where_it_must_and_is_silent_beside(code: str, expected: str, shows: Case, not_so: Case) -> None:
    assert severity(shows, code) == expected
    assert severity(not_so, code) in (None, "candidate") if expected != "candidate" else severity(not_so, code) is None


def test_every_code_about_measurements_is_tested() -> None:
    assert {code for code, page in PAGES.items() if page.area in AREAS} == set(PAIRS)
