"""Cases whose values are of any type: rules keep silent about them, they do not fall over."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.proof.case import parse_case
from draftproof.proof.findings import CaseError
from draftproof.proof.rules import judge
from proof.configs import TARGET, sliding, speculators

JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**29), 10**29), st.floats(allow_nan=False), st.text(max_size=4),
    st.lists(st.one_of(st.none(), st.integers(-3, 3), st.text(max_size=2)), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(-3, 3), max_size=2),
)  # fmt: skip
METRICS = [
    "num_drafts",
    "num_draft_tokens",
    "num_accepted_tokens",
    "accepted_per_position",
    "acceptance_rate",
    "mean_acceptance_length",
    "tap_rms",
    "tensors_absent",
    "unclaimed_tensors",
    "outcome",
    "output",
    "acceptance_reported",
    "tok_s",
    "baseline_tok_s",
]
CONDITIONS = [
    "reference",
    "drafter",
    "target",
    "method",
    "layer_id_shift",
    "drafter_positions",
    "drafter_revision",
    "engine_version",
    "build",
]
OPTIONS = [
    "build",
    "patches",
    "runner",
    "speculative_config",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "kv_cache_dtype",
    "hardware",
    "attention_backend",
    "draft_quant",
    "rope_applied_to_drafter",
    "eagle_topk",
    "num_steps",
    "num_draft_tokens",
    "block_size",
    "version_below",
    "speculative_num_draft_tokens",
    "cudagraph_capture_sizes",
    "launch_problems",
    "spec_draft_p_min",
    "model_path_contains",
]


def some(keys: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(keys), JUNK, max_size=5)


SEEN = st.fixed_dictionaries({"conditions": some(CONDITIONS), "metrics": some(METRICS)})


@settings(max_examples=150, deadline=None)
@given(
    config=st.sampled_from([sliding(), speculators()]),
    changes=some([*sliding(), *speculators(), "quantization_config", "rope_parameters", "is_causal"]),
    target=some([*TARGET, "text_config", "base_model", "base_model_relation"]),
    options=some(OPTIONS),
    engine=st.sampled_from(
        [("vllm", "0.20.1"), ("sglang", "0.5.11"), ("llama.cpp", "b9300"), ("mlx", None), (None, None)]
    ),
    method=st.sampled_from(["dflash", "dflash2", "dspark", "eagle3", "ngram", None]),
    observations=st.lists(SEEN, max_size=3),
)
def test_any_values(
    config: Any, changes: Any, target: Any, options: Any, engine: Any, method: Any, observations: Any
) -> None:
    given = {
        "schema": "draftproof.case/1",
        "engine": {"name": engine[0], "version": engine[1], "options": options},
        "method": method,
        "drafter": {"config": {**config, **changes}},
        "target": {"config": {**TARGET, **target}},
        "observations": observations,
    }
    try:
        case = parse_case(given)
    except CaseError:
        return
    for finding in judge(case, areas=["FILES", "ENGINE", "LAUNCH"]).findings:
        assert 0 <= finding.confidence <= 1 and len(finding.says) < 2000
