"""``draftproof check owner/name``: against a hub on loopback, through the hub's own client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proof.configs import TARGET, zlab
from support.hub import COMMIT, Hub, serving

HEADER = {"dtype": "BF16", "shape": [64, 128], "data_offsets": [0, 16384]}  # two taps wide, for a config of three
WEIGHTS = 8 << 20  # more than anybody needs to send


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    for name, config in (("z-lab/tiny-DFlash", zlab()), ("owner/tiny", TARGET)):
        folder = tmp_path / "hub" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config, indent=1))
    text = json.dumps({"fc.weight": HEADER, "rest": {**HEADER, "data_offsets": [16384, WEIGHTS]}}).encode()
    weights = len(text).to_bytes(8, "little") + text + bytes(WEIGHTS)
    (tmp_path / "hub" / "z-lab/tiny-DFlash" / "model.safetensors").write_bytes(weights)
    (tmp_path / "hub" / "owner/tiny" / "README.md").write_text("---\nbase_model: owner/tiny-base\n---\n")
    with serving(tmp_path / "hub") as found:
        yield found


def check(hub: Hub, home: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The command with a cache of its own; the hub's client reads its address when it is imported."""
    own = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home / "hf"), "HF_HUB_OFFLINE": "0", "NO_PROXY": "*"}
    program = "import sys; from draftproof.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, "check", *words],
        env={**os.environ, **own, **env},
        capture_output=True,
        text=True,
    )


def test_a_hub_id_is_read_without_its_weights(hub: Hub, tmp_path: Path) -> None:
    done = check(hub, tmp_path, "z-lab/tiny-DFlash", "--target", "owner/tiny", "--json", "-q")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["drafter"]["taps"]["output_hidden_states"] == [2, 6, 10]
    (misfit,) = [f for f in found["findings"] if f["code"] == "FC_TAPS_MISMATCH"]  # so the header was read
    where = [e["where"] for e in misfit["evidence"]]
    assert any(f"z-lab/tiny-DFlash@{COMMIT[:12]}/config.json, line" in one for one in where), where
    assert 0 < hub.sent["model.safetensors"] <= 400_000
    told = check(hub, tmp_path, "z-lab/tiny-DFlash", "--json", "-q", HF_HUB_OFFLINE="1")  # from the cache
    assert json.loads(told.stdout)["drafter"]["taps"]["output_hidden_states"] == [2, 6, 10]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [(["owner/nobody"], 0, "owner/nobody: config.json is neither cached nor to be had"),
     (["z-lab/tiny-DFlash"], 401, "neither cached nor to be had"),
     (["z-lab/tiny-DFlash", "--revision", "nowhere"], 404, "neither cached nor to be had")],
)  # fmt: skip
def test_what_the_hub_does_not_give_is_one_line(
    hub: Hub, tmp_path: Path, words: list[str], status: int, said: str
) -> None:
    hub.refusing = status
    done = check(hub, tmp_path, *words, "-q")
    assert done.returncode in (2, 3) and said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_hub_that_is_not_there_is_said_quickly(hub: Hub, tmp_path: Path) -> None:
    done = check(hub, tmp_path, "z-lab/tiny-DFlash", "-q", HF_ENDPOINT="http://hub.invalid")
    assert done.returncode in (2, 3) and "does not resolve" in done.stderr
