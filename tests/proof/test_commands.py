"""Remedies to type: for the engine at hand, with the numbers of the case, and nothing that is half known."""

from __future__ import annotations

import tomllib
from importlib import resources

import pytest

from draftproof.proof.commands import command
from draftproof.proof.rules import PAGES
from draftproof.proof.verdict import conclude
from proof.rules.making import case, run

TABLE = tomllib.loads((resources.files("draftproof.proof") / "data/commands.toml").read_text(encoding="utf-8"))
BLOCK = {"config": {"architectures": ["DFlashDraftModel"], "block_size": 8}, "name": "me/drafter"}


@pytest.mark.parametrize(
    ("code", "made", "wanted"),
    [
        ("PREFIX_CACHE_DRAFT_KV", case(run()), "--no-enable-prefix-caching"),
        ("PREFIX_CACHE_DRAFT_KV", case(run(), name="sglang"), "--disable-radix-cache"),
        ("PREFIX_CACHE_DRAFT_KV", case(run(), name="other"), ""),
        ("K_EXCEEDS_BLOCK", case(run(), drafter=BLOCK), '--speculative-config: "num_speculative_tokens": 7'),
        ("K_EXCEEDS_BLOCK", case(run()), ""),
        ("STEP_COST_HIGH", case(run(), k=7), '--speculative-config: "num_speculative_tokens": 3'),
        (
            "CUDAGRAPH_SHAPE_MISS",
            case(run(), k=7),
            "--compilation-config '{\"cudagraph_capture_sizes\": [8, 16, 32, 64, 128]}'",
        ),
        (
            "THINKING_MODE_MISMATCH",
            case(run({"thinking": True})),
            'in the request: "chat_template_kwargs": {"enable_thinking": false}',
        ),
        ("TARGET_IS_FINETUNE", case(run(), target={"name": "me/tuned"}), "draftproof train -m me/tuned"),
        ("TARGET_IS_FINETUNE", case(run()), ""),
    ],
)
def test_a_line_for_the_case(code: str, made, wanted: str) -> None:
    assert command(made, code) == wanted


def test_every_line_is_of_a_code_and_can_be_filled() -> None:
    assert set(TABLE) <= set(PAGES)
    engines = {name for lines in TABLE.values() for name in lines}
    assert engines == {"vllm", "sglang", "llama.cpp", "any"}
    whole = dict.fromkeys(
        [
            "half",
            "half_block",
            "most",
            "block",
            "sizes",
            "rows",
            "positions",
            "method",
            "drafter",
            "target",
            "thinking",
        ],
        "x",
    )
    for lines in TABLE.values():
        for line in lines.values():
            assert "{" not in line.format_map(whole).replace("'{\"", "").replace(': {"', ""), line


def test_causes_carry_their_line() -> None:
    made = case(run(mean_acceptance_length=1.2, num_drafts=900), version="0.20.1", drafter=BLOCK)
    causes = {cause.finding.code: cause.command for cause in conclude(made).causes}
    assert causes.get("AUX_LAYER_OFFSET") == "pip install 'vllm>=0.22.0'"
