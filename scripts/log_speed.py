"""``make log-speed``: how fast, and in how much memory, ``diagnose`` reads a long log. Into results/log-speed.json.

The log is made here: access lines as of ten requests a second, and vLLM's two lines that it prints every ten seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from draftproof.bench.provenance import provenance
from draftproof.bench.results import write_result

SCHEMA = "draftproof.log-speed/1"
LIMIT_S, LIMIT_MB = 20.0, 200.0
ACCESS = '(APIServer pid=7) INFO:     10.0.{}.{}:51234 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
THROUGHPUT = (
    "(APIServer pid=7) INFO 05-01 19:{:02d}:{:02d} [loggers.py:257] Engine 000: Avg prompt throughput: 812.4 tokens/s, "
    "Avg generation throughput: {:.1f} tokens/s, Running: 12 reqs, Waiting: 0 reqs, GPU KV cache usage: 31.4%, "
    "Prefix cache hit rate: 44.0%\n"
)
ACCEPTANCE = (
    "(APIServer pid=7) INFO 05-01 19:{:02d}:{:02d} [metrics.py:101] SpecDecoding metrics: Mean acceptance length: "
    "3.10, Accepted throughput: 1050.0 tokens/s, Drafted throughput: 3500.0 tokens/s, Accepted: 10500 tokens, Drafted: "
    "35000 tokens, Per-position acceptance rate: 0.800, 0.550, 0.350, 0.200, 0.120, 0.060, 0.020, Avg Draft acceptance "
    "rate: 30.0%\n"
)


def write_log(file: Path, size: int) -> int:
    """A log of at least ``size`` bytes; how many lines it has."""
    lines = written = 0
    with file.open("w", encoding="utf-8", buffering=1 << 20) as out:
        while written < size:
            at = lines // 100
            clock = (at // 60 % 60, at % 60)
            block = [ACCESS.format(lines // 250 % 250, i) for i in range(98)]
            block += [THROUGHPUT.format(*clock, 100 + at % 50), ACCEPTANCE.format(*clock)]
            written += out.write("".join(block))
            lines += len(block)
    return lines


def measure(words: list[str]) -> dict[str, Any]:
    """Wall and processor seconds and the largest memory of a command; its JSON answer."""
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        child = subprocess.Popen(words, stdout=out)
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - began
        out.seek(0)
        answer = json.loads(out.read())
    code = os.waitstatus_to_exitcode(status)
    spent = {"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime, "memory_mb": used.ru_maxrss / 1024}
    return spent | {"exit_code": code, "verdict": answer.get("verdict")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("results/log-speed.json"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        lines = write_log(log, given.megabytes * 1_000_000)
        words = [sys.executable, "-m", "draftproof.cli", "diagnose", "--json"]
        found = measure([*words, "--log", str(log), "--engine", "vllm==0.25.1"])
        start = measure([*words, "--log", str(_head(log, Path(folder) / "short.log")), "--engine", "vllm==0.25.1"])
        size = log.stat().st_size
    document = {"schema_version": SCHEMA, "bytes": size, "lines": lines, "long": found, "start_up": start}
    write_result(given.out, document | {"provenance": provenance() | {"command": "make log-speed"}})
    print(json.dumps({"long": found, "start_up": start}))
    return 0 if found["seconds"] <= LIMIT_S and found["memory_mb"] <= LIMIT_MB else 1


def _head(log: Path, short: Path) -> Path:
    with log.open(encoding="utf-8") as lines:
        short.write_text("".join(next(lines) for _ in range(1000)), encoding="utf-8")
    return short


if __name__ == "__main__":
    sys.exit(main())
