"""Cases whose values are of any type: rules keep silent about them, they do not fall over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.proof.case import FOR_PEOPLE, parse_case
from draftproof.proof.diagnosis import report
from draftproof.proof.findings import CaseError
from draftproof.proof.rules import judge
from proof.configs import TARGET, sliding, speculators

CASES = Path(__file__).parents[4] / "shared" / "data" / "cases.jsonl"
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
    for finding in judge(case).findings:
        assert 0 <= finding.confidence <= 1 and len(finding.says) < 2000


ODD = (
    None,
    True,
    0,
    -1,
    10**29,
    1e308,
    5e-324,
    "",
    "x",
    [],
    [None],
    [[1]],
    {},
    {"a": {"b": []}},
    [1e308, 1e308],
    [-1, 2],
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*path, key)
        yield from places(one, (*path, key))


@pytest.mark.skipif(not CASES.exists(), reason="needs the collected cases")
@pytest.mark.parametrize("seed", range(4))
def test_any_value_in_any_place_of_a_collected_case(seed: int) -> None:
    """Every rule and the whole report, with values of the wrong kind where the collected cases have right ones."""
    chance = Random(seed)
    lines = CASES.read_text(encoding="utf-8").splitlines()
    for _ in range(150):
        given = json.loads(chance.choice(lines))
        where = [path for path in places(given) if len(path) > 1 and path[0] not in FOR_PEOPLE]
        for path in chance.sample(where, min(len(where), 3)):
            holder: Any = given
            for key in path[:-1]:
                holder = holder[key] if isinstance(holder, dict) and key in holder else {}
            if isinstance(holder, dict) and isinstance(path[-1], str):
                holder[path[-1]] = chance.choice(ODD)
        try:
            report(parse_case(given))
        except CaseError:
            continue
