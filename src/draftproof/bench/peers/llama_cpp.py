"""llama.cpp's decoding speed, as its own ``llama-bench`` measures it on a GGUF file.

The binary is the one ``DRAFTPROOF_LLAMA_BENCH`` names, else the first ``llama-bench`` on PATH. It decodes
``new_tokens`` tokens from an empty context, without sampling; that favours it a little over engines measured
behind real prompts.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draftproof.bench.peers import PeerResult, load_average
from draftproof.errors import CheckpointError, UnavailableError, UsageError

BINARY_VARIABLE = "DRAFTPROOF_LLAMA_BENCH"
KEPT_SETTINGS = (
    "model_type",
    "model_size",
    "n_threads",
    "type_k",
    "type_v",
    "flash_attn",
    "repack",
    "backends",
)


def find_llama_bench() -> Path:
    """The llama-bench to run; an error that says how to name one, if there is none."""
    named = os.environ.get(BINARY_VARIABLE)
    found = named or shutil.which("llama-bench")
    if not found:
        raise UnavailableError(f"llama-bench is not on PATH: build llama.cpp and set {BINARY_VARIABLE} to its binary")
    if not os.access(found, os.X_OK) or Path(found).is_dir():
        raise UnavailableError(f"{BINARY_VARIABLE}={found}: not an executable file")
    return Path(found)


def measure_llama_cpp(
    gguf: Path | str,
    *,
    new_tokens: int = 128,
    threads: int = 2,
    runs: int = 5,
    extra_args: Sequence[str] = (),
    timeout_s: float = 900.0,
) -> PeerResult:
    """Run ``llama-bench`` on one model file and take the median of its runs."""
    for name, value in (("new_tokens", new_tokens), ("threads", threads), ("runs", runs)):
        if value < 1:
            raise UsageError(f"{name}={value} is out of range: it must be at least 1")
    if not Path(gguf).is_file():
        raise CheckpointError(f"{gguf}: no such GGUF file")
    binary = find_llama_bench()
    command = [str(binary), "-m", str(gguf), "-p", "0", "-n", str(new_tokens), "-t", str(threads)]
    command += ["-r", str(runs), "-o", "json", *extra_args]
    load = load_average()
    row = _parse(_run(command, timeout_s), new_tokens)
    samples = [float(rate) for rate in row["samples_ts"]]
    settings = {key: row[key] for key in KEPT_SETTINGS if key in row}
    return PeerResult(
        peer="llama.cpp",
        version=_version(binary, row),
        tokens_per_second=statistics.median(samples),
        runs=samples,
        end_to_end=None,
        command=command,
        settings={**settings, "new_tokens": new_tokens, "cpu": row.get("cpu_info"), "load_average": load},
    )


def _run(command: list[str], timeout_s: float) -> str:
    """Standard output of a command; its last line of complaint becomes the error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"llama-bench took longer than {timeout_s:.0f} s: lower new_tokens or runs") from None
    except OSError as error:
        raise UnavailableError(f"{command[0]} does not start: {error.strerror or error}") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        status = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        hint = "; it was built for another CPU" if done.returncode == -4 else ""  # SIGILL
        raise UnavailableError(f"llama-bench ended with {status}{hint}; it said: {said}")
    return done.stdout


def _parse(output: str, new_tokens: int) -> dict[str, Any]:
    """The decoding row of ``-o json``."""
    try:
        rows = json.loads(output)
        row = next(row for row in rows if row["n_gen"] == new_tokens and row["n_prompt"] == 0)
        if not row["samples_ts"]:
            raise KeyError("samples_ts")
    except (ValueError, KeyError, TypeError, StopIteration):
        raise UnavailableError(
            f"llama-bench answered without a decoding row of {new_tokens} tokens: is it a recent llama.cpp?"
        ) from None
    return dict(row)


def _version(binary: Path, row: dict[str, Any]) -> str:
    """Build number and commit; the binary's own words where it was built outside git and has neither."""
    if row.get("build_number"):
        return f"b{row['build_number']} ({row.get('build_commit', 'unknown')})"
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("version:")]
    return lines[0].removeprefix("version:").strip() if lines else "unknown"
