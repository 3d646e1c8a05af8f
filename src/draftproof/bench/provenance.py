"""Where a result comes from: command, versions, machine and how busy it was, sources. Needs no torch."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from draftproof import __version__
from draftproof.runtime import usable_cores

LIBRARIES = ("torch", "transformers", "tokenizers", "numpy")
_THREAD_SETTINGS = ("OMP_", "GOMP_", "KMP_", "MKL_NUM", "DRAFTPROOF_")


def provenance(seed: int | None = None) -> dict[str, Any]:
    """Plain data for a result file. ``seed``: the one that chose prompts or tokens, if any did."""
    return {
        "command": shlex.join(["draftproof", *(short_path(argument) for argument in sys.argv[1:])]),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "machine": machine(),
        "git": git_state(Path(__file__).parent),
        "seed": seed,
    }


def short_path(text: str) -> str:
    """A path outside the working folder by its last part: where it lies on this machine is nobody's business."""
    outside = text.startswith(("/", "~", "../")) and not text.endswith("/")
    return text.rpartition("/")[2] if outside else text


def versions() -> dict[str, str]:
    found = {"draftproof": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """The processor, what of it may be used, and the load at this moment (a busy one measures nothing)."""
    return {
        "system": platform.platform(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "threads": _threads(),
        "settings": {k: v for k, v in sorted(os.environ.items()) if k.startswith(_THREAD_SETTINGS)},
        "load_average": load_average(),
    }


def load_average() -> list[float] | None:
    """Running processes over 1, 5 and 15 minutes; None where the system does not tell."""
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except (AttributeError, OSError):
        return None


def _threads() -> int | None:
    """torch's own count if it is loaded; this module does not load it."""
    torch = sys.modules.get("torch")
    return int(torch.get_num_threads()) if torch is not None else None


def cpu_name() -> str:
    """The processor's name where the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and whether tracked files differ from it; None outside a checkout or before the first commit."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        dirty = _git(folder, "status", "--porcelain", "--untracked-files=no") != ""
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": dirty}


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()
