"""The corrected launch line: what was wrong is set right, the rest stays, and the result passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftproof.proof.checking import Checked, check, parse_engine
from draftproof.proof.launch import parse
from proof.configs import sliding, zlab

DFLASH2 = {"architectures": ["DFlash2DraftModel"], "is_causal": False}
GIVEN = '{"method": "dflash", "model": "D", "num_speculative_tokens": 7}'


def checked(tmp_path: Path, config: dict[str, Any], line: str, engine: str | None = None) -> Checked:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return check(str(tmp_path), launch=line, engines_asked=parse_engine(engine) if engine else ())


SGLANG = "sglang serve --model-path T --speculative-algorithm DFLASH --speculative-draft-model-path D"
LLAMA = "llama-server -m T.gguf -md D.gguf --spec-type draft-dflash"
VLLM = f"vllm serve T -sc '{GIVEN}'"
WRONG_METHOD = VLLM.replace("dflash", "dspark")
NO_MODEL = """vllm serve T -sc '{"method": "dflash", "tensor_parallel_size": 2, "num_speculative_tokens": 7}'"""
SEVEN = '"num_speculative_tokens": 7'


@pytest.mark.parametrize(
    ("config", "line", "engine", "wanted"),
    [
        (zlab(), VLLM, "vllm==0.33.0", None),
        (zlab(), "vllm serve T", None, SEVEN),
        (zlab(), "vllm serve T --speculative-model D --num-speculative-tokens 99", None, SEVEN),
        (zlab(), f"{VLLM} --speculative-config.num_speculative_tokens 5", None, '"num_speculative_tokens": 5'),
        (zlab(), WRONG_METHOD, None, '"method": "dflash"'),
        (zlab(), NO_MODEL, None, '"draft_tensor_parallel_size": 2'),
        (sliding(), f"VLLM_USE_V2_MODEL_RUNNER=0 {VLLM}", "vllm==0.28.0", "VLLM_USE_V2_MODEL_RUNNER=1 vllm"),
        (zlab(), SGLANG, None, "--speculative-num-draft-tokens 8"),
        (zlab(), f"{SGLANG} --speculative-dflash-block-size 16 --speculative-num-steps 3", None, "draft-tokens 8"),
        (zlab(), f"{SGLANG} --speculative-num-draft-tokens 8 --pp-size 2", "sglang==0.5.20", "--pp-size 1"),
        (zlab(), f"{LLAMA} --spec-draft-n-max 16", "llama.cpp==b11434", "--spec-draft-n-max 7"),
        (zlab(), f"{LLAMA} --draft-max 7", "llama.cpp==b11434", "--spec-draft-p-min 0.75"),
        (zlab(), "llama-server -m T.gguf", None, "--spec-type draft-dflash"),
    ],
)
def test_corrected(tmp_path: Path, config: dict[str, Any], line: str, engine: str | None, wanted: str | None) -> None:
    found = checked(tmp_path, config, line, engine)
    if wanted is None:
        assert found.corrected is None
        return
    assert found.corrected is not None and wanted in found.corrected
    again = parse(found.corrected)
    assert again.target in ("T", "T.gguf") and again.drafter
    better = checked(tmp_path, config, found.corrected, engine)
    assert better.corrected is None
    launch = {f.code for f in better.judged.findings if f.counts and f.severity != "info"}
    assert not launch & {"LAUNCH_FLAG_INEFFECTIVE", "K_EXCEEDS_BLOCK", "DRAFT_PARAMS_INCONSISTENT", "METHOD_MISMATCH"}


def test_secrets_are_not_kept(tmp_path: Path) -> None:
    line = f"HF_TOKEN=hf_abc OPENAI_API_KEY=sk-1 vllm serve T --api-key sk-2 -sc '{GIVEN}'"
    found = checked(tmp_path, zlab(block_size=4), line)
    kept = json.dumps(found.case.to_dict()) + str(found.corrected)
    assert not any(secret in kept for secret in ("hf_abc", "sk-1", "sk-2")) and "***" in kept
    assert "--max-num-batched-tokens 64" in str(checked(tmp_path, zlab(), f"{line} --max-num-batched-tokens 64").case)


def test_the_image_gives_the_version(tmp_path: Path) -> None:
    found = checked(tmp_path, zlab(), f"docker run vllm/vllm-openai:v0.20.1 --model T -sc '{GIVEN}'")
    assert found.case.engine.version == "0.20.1" and "AUX_LAYER_OFFSET" in found.judged.codes
