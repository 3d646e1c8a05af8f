"""Made-up reports of kinds that public threads show: verdict and codes that an expert would give.

Names say which thread gave the idea; most figures are invented.
"""

from __future__ import annotations

import pytest

from draftproof.proof.case import Case
from draftproof.proof.verdict import conclude
from proof.rules.making import case, run

P = {"drafter": False}

# (name, facts, verdict, codes that must be found, codes that must not)
REPORTS: list[tuple[str, Case, str, list[str], list[str]]] = [
    (
        "aeon6b",
        case(run(accepted_per_position=[0.242, 0.03, 0, 0, 0], mean_acceptance_length=1.27), k=5),
        "suspicious",
        ["ACCEPTANCE_LOW"],
        [],
    ),
    (
        "zlab52b",
        case(run(num_drafts=23, num_draft_tokens=345, num_accepted_tokens=44, mean_acceptance_length=2.91), k=15),
        "inconclusive",
        ["TOO_FEW_SAMPLES"],
        ["ACCEPTANCE_LOW"],
    ),
    (
        "aeon7",
        case(run({"concurrency": 32}, mean_acceptance_length=8.8, kv_cache_usage=0.2, outcome="crash"), k=15),
        "faulty",
        ["CRASH_UNDER_CONCURRENCY"],
        [],
    ),
    (
        "zlab60off",
        case(
            run({"thinking": False}, mean_acceptance_length=3.2),
            run({"thinking": True}, mean_acceptance_length=9.49),
            k=15,
            drafter={"name": "z-lab/Qwen3.5-35B-A3B-DFlash"},
        ),
        "faulty",
        ["THINKING_MODE_MISMATCH"],
        ["ACCEPTANCE_LOW"],
    ),
    (
        "zlab7",
        case(
            run({"language": "zh"}, mean_acceptance_length=3.3),
            run({"language": "en"}, mean_acceptance_length=6.4),
            k=15,
        ),
        "healthy",
        ["WORKLOAD_SHIFT", "HEALTHY"],
        [],
    ),
    (
        "eagle146",
        case(run(num_drafts=32, num_accepted_tokens=150, printed_mean_acceptance_length=6.69), method="eagle", k=None),
        "suspicious",
        ["METRIC_INCONSISTENT"],
        [],
    ),
    (
        "xinfer483",
        case(run(num_accepted_tokens_by_line=[1558, 1562, 1560, 1563], num_drafts=600, num_draft_tokens=4200), k=7),
        "suspicious",
        ["TP_RANK_DIVERGENCE"],
        [],
    ),
    (
        "vllm54928",
        case(run({}, output="text_differs", first_divergence_token=30), workload={"temperature": 0}, k=1, method="mtp"),
        "suspicious",
        ["OUTPUT_NOT_LOSSLESS"],
        [],
    ),
    (
        "llama27342-500",
        case(
            run({"cached_prefix": True}, outcome="http_500"),
            run({"cached_prefix": False}, outcome="ok"),
            run({"cached_prefix": True, "method": "mtp"}, outcome="ok"),
            method="dflash2",
            name="llama.cpp",
        ),
        "faulty",
        ["PREFIX_CACHE_DRAFT_KV"],
        [],
    ),
    (
        "atlas693",
        case(
            run({"cached_prefix": True}, mean_acceptance_length=1.3),
            run({"cached_prefix": False}, mean_acceptance_length=5.1),
            name="atlas",
        ),
        "faulty",
        ["PREFIX_CACHE_DRAFT_KV", "ACCEPTANCE_DROPS_ON_CACHE_HIT"],
        [],
    ),
    (
        "vllm48375",
        case(
            run({"prefix_caching": True}, tool_calls_reported="corrupt"),
            run({"prefix_caching": True, **P}, tool_calls_reported="ok"),
            run({"prefix_caching": False}, tool_calls_reported="ok"),
            method="mtp",
            k=3,
        ),
        "faulty",
        ["PREFIX_CACHE_CORRUPTION"],
        [],
    ),
    (
        "vllm48375b",
        case(
            run({"cached_prefix": True, "prefix_caching": True}, tool_calls_ok=3, tool_calls_total=10),
            run({"prefix_caching": True, **P}, tool_calls_ok=10, tool_calls_total=10),
            run({"prefix_caching": False}, tool_calls_ok=10, tool_calls_total=10),
            method="mtp",
            k=3,
            workload={"tools": True},
        ),
        "faulty",
        ["PREFIX_CACHE_CORRUPTION"],
        ["STREAM_PARSER_LOSES_TEXT"],
    ),
    (
        "vllm41838",
        case(
            run({"uptime": "hours"}, mean_acceptance_length=2.8),
            run({"uptime": "start"}, mean_acceptance_length=3.07),
            run({"uptime": "restart"}, mean_acceptance_length=3.07),
            method="mtp",
            k=3,
            prefix_caching=True,
            workload={"num_prompt_types": 3},
        ),
        "suspicious",
        ["ACCEPTANCE_DROPS_OVER_TIME", "PREFIX_CACHE_CORRUPTION"],
        [],
    ),
    (
        "freetoken",
        case(
            run({"concurrency": 3}, tok_s=60.0),
            run({"concurrency": 4}, tok_s=110.0),
            run({"concurrency": 2}, tok_s=80.0),
            cudagraph_capture_requests=[1, 2, 4, 8],
        ),
        "faulty",
        ["CUDAGRAPH_SHAPE_MISS"],
        [],
    ),
    (
        "beellama28",
        case(
            run({"request_index": 2}, acceptance_rate=0.0, output="corrupt"),
            run({"request_index": 1}, acceptance_rate=0.6, output="ok"),
            k=None,
        ),
        "faulty",
        ["STATE_LEAK_BETWEEN_REQUESTS"],
        [],
    ),
    (
        "beellama97",
        case(
            run(
                {"draft_ctx_size": 384000},
                "allocating 24050.69 MiB on device 0: cudaMalloc failed: out of memory",
                outcome="oom",
            ),
            run({"draft_ctx_size": 8192}, outcome="ok"),
            ctx_size=384000,
            name="llama.cpp",
        ),
        "faulty",
        ["DRAFT_MEMORY_EXCESS"],
        [],
    ),
    (
        "deepspec84",
        case(
            run({"epoch": 20}, mean_acceptance_length=3.18),
            run({"epoch": 10}, mean_acceptance_length=3.34),
            method="eagle3",
            k=7,
        ),
        "suspicious",
        ["DRAFTER_CHECKPOINT_WEAK"],
        [],
    ),
    (
        "specforge533",
        case(
            run({"phase": "serving"}, mean_acceptance_length=1.3),
            run({"phase": "training", "per_position_kind": "teacher-forced"}, train_accuracy=1.0),
            k=7,
        ),
        "suspicious",
        ["TRAIN_SERVE_GAP", "METRIC_DEFINITION"],
        [],
    ),
    (
        "sglang30763",
        case(
            run({"context_tokens": 32000}, acceptance_rate=0.19),
            run({"context_tokens": 2000}, acceptance_rate=0.6),
            method="mtp",
            k=3,
        ),
        "suspicious",
        ["ACCEPTANCE_DROPS_WITH_CONTEXT"],
        [],
    ),
    (
        "club97 flood",
        case(run(mean_acceptance_length=4.0, acceptance_rate=1.0, output="degenerate_repetition"), method="mtp", k=3),
        "inconclusive",
        ["ACCEPTANCE_SUSPICIOUSLY_HIGH"],
        [],
    ),
    (
        "zlab118 slower",
        case(run({"concurrency": 1}, mean_acceptance_length=6.2, tok_s=80, baseline_tok_s=78), k=15),
        "suspicious",
        ["STEP_COST_HIGH"],
        [],
    ),
    (
        "vllm47277",
        case(
            run({"concurrency": 32}, tok_s=900, baseline_tok_s=1200, mean_acceptance_length=3.4), k=3, method="eagle3"
        ),
        "suspicious",
        ["SPEC_SLOWER_THAN_BASELINE"],
        [],
    ),
    (
        "vllm57032",
        case(
            run(
                {},
                "WARNING no KV cache group could be identified as the draft model's; "
                "prefix cache reuse across requests will be disabled",
            )
        ),
        "faulty",
        ["PREFIX_CACHE_DISABLED_BY_DRAFTER"],
        [],
    ),
    (
        "vllm46118",
        case(run({"structured_output": True}, "Failed to advance FSM for request x", outcome="http_500"), method="mtp"),
        "faulty",
        ["GRAMMAR_CONFLICT"],
        [],
    ),
    ("rate.2 unknown k", case(run(acceptance_rate=0.2), k=None), "healthy", [], []),
    (
        "sy60 single",
        case(
            run({"build": "new"}, num_drafts=150, num_draft_tokens=1050, num_accepted_tokens=371),
            run({"build": "old"}, num_drafts=100, num_draft_tokens=700, num_accepted_tokens=443),
            workload={"num_prompts": 1},
            method="mtp",
            k=7,
        ),
        "suspicious",
        ["ACCEPTANCE_DIFFERS_BETWEEN_BUILDS"],
        [],
    ),
    (
        "llama28587",
        case(run({"image": True}, outcome="http_500"), run({"image": False}, outcome="ok"), name="llama.cpp"),
        "faulty",
        ["VISION_POSITION_FAULT"],
        [],
    ),
    (
        "eagle95 ref",
        case(
            run(mean_acceptance_length=2.2),
            run({"reference": "paper"}, mean_acceptance_length=3.9),
            method="eagle2",
            k=5,
        ),
        "suspicious",
        ["ACCEPTANCE_BELOW_REFERENCE"],
        [],
    ),
    (
        "turbo231",
        case(
            run({"build": "new"}, acceptance_rate=0.71), run({"build": "old"}, acceptance_rate=0.86), method="mtp", k=3
        ),
        "suspicious",
        ["ACCEPTANCE_DIFFERS_BETWEEN_BUILDS"],
        [],
    ),
    (
        "ttft z11",
        case(
            run({"concurrency": 32}, ttft_s=8.1, speed_reported="slower", acceptance_reported="normal"),
            run({"concurrency": 32, **P}, ttft_s=2.2),
        ),
        "suspicious",
        ["DRAFT_MEMORY_EXCESS"],
        [],
    ),
    ("budget", case(run(mean_acceptance_length=5.0, tok_s=40.0), k=15), "healthy", ["HEALTHY"], []),
    (
        "steep zero",
        case(run(num_drafts=4000, num_draft_tokens=28000, num_accepted_tokens=30, output="text_correct")),
        "suspicious",
        ["ACCEPTANCE_EXACT_ZERO"],
        [],
    ),
    (
        "thinkbudget",
        case(run(outcome="http_400"), runner="V2", workload={"request_params": ["thinking_token_budget"]}),
        "faulty",
        ["API_PARAM_UNSUPPORTED"],
        [],
    ),
    (
        "concurrency2",
        case(
            run({"concurrency": 8}, mean_acceptance_length=2.0, finish_reason="length"),
            run({"concurrency": 1}, mean_acceptance_length=4.4),
            run({"concurrency": 8, "enforce_eager": True}, mean_acceptance_length=4.3),
            cudagraph_mode="FULL",
        ),
        "faulty",
        ["CUDAGRAPH_CORRUPTS_DRAFTS", "ACCEPTANCE_DROPS_WITH_CONCURRENCY"],
        [],
    ),
    (
        "ascend eager",
        case(
            run({"cudagraph_mode": "FULL"}, acceptance_rate=0.29),
            run({"enforce_eager": True}, acceptance_rate=0.445),
            k=15,
            workload={"dataset": "MATH-500"},
        ),
        "faulty",
        ["CUDAGRAPH_CORRUPTS_DRAFTS"],
        ["ACCEPTANCE_LOW"],
    ),
    (
        "mangled ngram",
        case(
            run(output="tool_arguments_mangled"),
            run(P, output="ok"),
            method="ngram",
            k=5,
            speculative_config={"method": "ngram", "prompt_lookup_min": 2},
            workload={"tools": True},
        ),
        "faulty",
        ["NGRAM_MIN_TOO_SMALL"],
        [],
    ),
    (
        "accuracy drop no n",
        case(run(accuracy=0.6), run(P, accuracy=0.93), workload={"temperature": 0}),
        "inconclusive",
        [],
        [],
    ),
    (
        "cost35 sweep",
        case(
            run({"num_speculative_tokens": 3}, tok_s=54.0, mean_acceptance_length=2.8),
            run({"num_speculative_tokens": 7}, tok_s=40.0),
            k=3,
            method="mtp",
        ),
        "healthy",
        [],
        [],
    ),
    (
        "spd info",
        case(
            run({"concurrency": 1}, tok_s=120.0, baseline_tok_s=60.0, mean_acceptance_length=4.0),
            run({"concurrency": 16}, tok_s=300.0, baseline_tok_s=500.0),
        ),
        "healthy",
        ["HEALTHY", "SPEC_SLOWER_THAN_BASELINE"],
        [],
    ),
]


@pytest.mark.parametrize(("name", "facts", "verdict", "must", "must_not"), REPORTS, ids=[row[0] for row in REPORTS])
def test_a_report_is_judged_as_an_expert_would(
    name: str, facts: Case, verdict: str, must: list[str], must_not: list[str]
) -> None:
    found = conclude(facts)
    assert found.kind == verdict
    assert set(must) <= found.codes
    assert not set(must_not) & found.codes
