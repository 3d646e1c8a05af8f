"""A ``draftproof serve`` process: started, watched, ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import IO, Any

from draftproof.errors import UnavailableError

_END_S = 90


class ServerProcess:
    """``arguments``: those of ``draftproof serve``, without port and host. Ready when made."""

    def __init__(self, arguments: Sequence[str], log: IO[bytes]) -> None:
        began = perf_counter()
        command = [sys.executable, "-m", "draftproof.cli", "serve", *arguments, "--port", "0", "--json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise UnavailableError(f"the server did not start (exit code {code}): {' '.join(command)}; see its log")
        ready = json.loads(line)
        self.url: str = ready["url"]
        self.engine: dict[str, Any] = ready["engine"]
        self.start_s = perf_counter() - began

    def memory_mb(self) -> float:
        """Resident memory; 0 where the system does not tell."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return 0.0
        return float(next((line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")), 0)) / 1024

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit code; negative: the signal it died of."""
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise UnavailableError(f"the server did not end within {_END_S} s") from None

    def stop(self) -> int:
        if self._process.poll() is None:
            self.send(signal.SIGTERM)
        return self.wait()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
