"""A whole vLLM with its extensions: intact means no finding, and it is hashed as fast as sha256sum would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from installs_results import keep

from draftproof.proof.install.probe import record
from support.installs import look

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from fetch_installs import fetch

pytestmark = pytest.mark.installs

WHOLE = "vllm==0.20.1"
ROUNDS = 3


@pytest.fixture(scope="module")
def folder() -> Path:
    return fetch(WHOLE, whole=True)


def test_the_whole_install_gives_no_finding(folder: Path) -> None:
    case, findings = look("vllm", prefix=folder, seconds=240)
    assert [finding.says for finding in findings] == []
    (integrity,) = case.engine.options["install"]["integrity"]
    assert integrity["files"]["verified"] == integrity["files"]["listed"] > 3000
    assert integrity["extensions"]["count"] >= 9


def test_hashing_keeps_up_with_sha256sum(folder: Path) -> None:
    """The same files, all warm, by turns, as many processes as threads; the best of three each. Some builds of
    sha256sum do without the processor's own instructions for it; openssl does not, and is measured where it is."""
    info = next(folder.glob("*.dist-info"))
    listed = [str(record.located(str(folder), path)) for path, digest, _ in record.entries(str(info)) if digest]
    files = [name for name in listed if not name.endswith(".pyc")]
    text = "\0".join(files).encode()
    size = sum(os.path.getsize(name) for name in files)
    count = str(record.workers())
    parallel = ["xargs", "-0", "-P", count, "-n", "64"]
    peers = {"sha256sum": ["sha256sum"], "openssl": ["openssl", "dgst", "-sha256", "-r"]}
    times: dict[str, list[float]] = {name: [] for name, words in peers.items() if shutil.which(words[0])}
    ours = []
    for _ in range(ROUNDS):
        for name, seconds in times.items():
            began = time.perf_counter()
            subprocess.run([*parallel, *peers[name]], input=text, stdout=subprocess.DEVNULL, check=True)
            seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        found = record.verify(str(info), lambda: False)
        ours.append(time.perf_counter() - began)
        assert found["finished"] and found["verified"] == found["listed"]
    ratios = {name: min(seconds) / min(ours) for name, seconds in times.items()}
    keep(
        "hashing",
        {
            "install": WHOLE,
            "files": len(files),
            "bytes": size,
            "threads": int(count),
            "doctor_mb_per_s": size / min(ours) / 1e6,
            "sha256sum_mb_per_s": size / min(times["sha256sum"]) / 1e6,
            "ratio": ratios["sha256sum"],
            "openssl_ratio": ratios.get("openssl"),
            "seconds": {"doctor": ours, **times},
        },
    )
    assert min(ratios.values()) >= 0.7
