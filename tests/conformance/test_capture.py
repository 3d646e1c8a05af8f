"""A small part of ``make conformance-capture``: a real vLLM, as released and with one fault, captured and replayed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from draftproof.bench.peers.vllm_cpu import find_vllm_python
from draftproof.errors import UnavailableError

ROOT = Path(__file__).resolve().parents[2]
UNIFORM = os.environ.get("DRAFTPROOF_UNIFORM_DRAFTER", "")

pytestmark = pytest.mark.conformance


def _why_not() -> str | None:
    try:
        find_vllm_python()
    except UnavailableError as error:
        return str(error)
    if not (Path(UNIFORM) / "config.json").is_file():
        return "DRAFTPROOF_UNIFORM_DRAFTER names no drafter whose layers all slide"
    return None


def test_a_real_vllm_is_captured_and_judged(tmp_path: Path) -> None:
    reason = _why_not()
    if reason is not None:
        pytest.skip(reason)
    out = tmp_path / "capture.json"
    command = [sys.executable, str(ROOT / "scripts" / "conformance_capture.py"), "--slice", "--drafter", UNIFORM]
    done = subprocess.run(
        [*command, "--keep", str(tmp_path / "captures"), "--out", str(out)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["case"]: row for row in json.loads(out.read_text())["cases"]}
    assert set(rows) == {"as-released", "taps-one-early"} and all(row["right"] for row in rows.values())
    assert rows["as-released"]["taps_error"] < 1e-5
