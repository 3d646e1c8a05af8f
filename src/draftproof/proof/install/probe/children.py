"""Runs a part of the probe in a Python process of its own: what imports or calls foreign code may hang or crash."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any

from . import wire

MARK = "draftproof-child"
_PROCESSES: list[subprocess.Popen[bytes]] = []
QUIET = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONFAULTHANDLER": "1",
}


def call(module: str, function: str, request: Any, seconds: float) -> dict[str, Any]:
    """``module.function(request)`` in a child; its report, or ``{"failed": one line}``.

    The child gets an empty home in memory where there is one (/dev/shm), so that libraries that create caches when
    imported leave nothing behind.
    """
    if seconds <= 0:
        return {"failed": "no time was left", "unfinished": True}
    script = wire.bundle(wire.SENT["sources"], request, module, function)
    home = tempfile.mkdtemp(prefix="draftproof-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    try:
        return _run(script, home, seconds)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _run(script: str, home: str, seconds: float) -> dict[str, Any]:
    old = os.path.expanduser("~")
    environment = {**os.environ, **QUIET, "HOME": home, "XDG_CACHE_HOME": home, "TMPDIR": home}
    environment.setdefault("PYTHONUSERBASE", os.path.join(old, ".local"))
    child = subprocess.Popen(
        [sys.executable, "-B", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    _PROCESSES.append(child)
    try:
        out, err = child.communicate(script.encode("ascii"), timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(child)
        child.communicate()
        return {"failed": f"not done within {seconds:.0f} s", "unfinished": True}
    finally:
        _PROCESSES.remove(child)
    listener = wire.Listener(MARK)
    for line in out.decode("utf-8", "replace").splitlines():
        listener.line(line)
    if listener.value is not None:
        return listener.value
    return {"failed": _last_words(child.returncode, err.decode("utf-8", "replace"))}


def stop_all() -> None:
    """For whoever ends the probe: nothing of it may stay."""
    for child in list(_PROCESSES):
        _kill(child)


def _kill(child: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (OSError, AttributeError):
        child.kill()


def signal_name(number: int) -> str:
    """``ended by SIGABRT``"""
    try:
        return f"ended by {signal.Signals(number).name}"
    except ValueError:
        return f"ended by signal {number}"


def _last_words(code: int, err: str) -> str:
    if code < 0:
        return signal_name(-code)
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"ended with exit code {code} and no word"
