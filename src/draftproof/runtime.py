"""Process-wide settings that must be made before torch is imported: OpenMP threads and how they wait.

A decoding pass is a few hundred short parallel regions. Threads that go to sleep between them cost
milliseconds to wake on small virtual machines; threads that spin for ever burn a core while a chat waits for
its user. So: spin for a bounded time, then sleep. Whatever the user has set in the environment wins.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from draftproof.errors import UsageError

SPIN_COUNT = "2000000"  # a few milliseconds: longer than the host work between two passes


def usable_cores() -> int:
    """Cores this process may run on (respects taskset and container affinity)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


def configure_threads(threads: int | None = None) -> str:
    """Set OpenMP's thread count and wait policy; returns one line that says what holds now.

    Must run before torch is imported to have an effect on the wait policy. ``threads`` None takes one thread
    per usable core, at most 16 (decoding is bound by memory bandwidth long before).
    """
    cores = usable_cores()
    if threads is not None and threads < 1:
        raise UsageError(f"threads={threads} is out of range: it must be at least 1")
    inherited = os.environ.get("OMP_NUM_THREADS", "")
    chosen = threads or (int(inherited) if inherited.isdigit() and int(inherited) > 0 else min(cores, 16))
    os.environ["OMP_NUM_THREADS"] = str(chosen)
    late = " (torch was already loaded: wait policy unchanged)" if "torch" in sys.modules else ""
    if "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ:
        waiting = os.environ.get("OMP_WAIT_POLICY") or f"GOMP_SPINCOUNT={os.environ['GOMP_SPINCOUNT']}"
        policy = f"{waiting}, as the environment says"
    elif chosen > cores:
        policy = "sleep at once (more threads than cores)"
        os.environ["OMP_WAIT_POLICY"] = "passive"
    else:
        policy = "spin briefly, then sleep"
        os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT
    if late:
        import torch

        torch.set_num_threads(chosen)
    return f"threads: {chosen} of {cores} cores; waiting threads {policy}{late}"


def cache_dir() -> Path:
    """Where de-quantised targets and compiled kernels are kept: $DRAFTPROOF_CACHE or ~/.cache/draftproof."""
    given = os.environ.get("DRAFTPROOF_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    if given:
        return Path(given)
    return (Path(base) if base else Path.home() / ".cache") / "draftproof"


def allow_many_connections() -> None:
    """Idle connections cost a descriptor each; the usual soft limit of 1024 is far below what the machine allows."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else 1 << 20
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
