"""A peer's process: a job as JSON on its standard input, the answer as the last line of its standard output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from draftproof.errors import UnavailableError


def run_child(
    command: Sequence[str],
    job: Mapping[str, Any],
    *,
    peer: str,
    env: Mapping[str, str],
    timeout_s: float,
    remedy: str,
) -> dict[str, Any]:
    """The child's answer. Where there is none, the error names ``peer`` and what it said last, or ``remedy``.

    The child leads a process group of its own: when it takes too long, or we are interrupted, its workers end
    with it.
    """
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(env),
            start_new_session=True,
        )
    except OSError as error:
        raise UnavailableError(f"{command[0]} does not start: {error.strerror or error}") from None
    with child:
        try:
            out, complaints = child.communicate(json.dumps(job), timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _kill(child)
            raise UnavailableError(f"{peer} took longer than {timeout_s:.0f} s: {remedy}") from None
        except BaseException:
            _kill(child)
            raise
    if child.returncode != 0:
        said = (complaints.strip() or "nothing").splitlines()[-1]
        status = f"signal {-child.returncode}" if child.returncode < 0 else f"status {child.returncode}"
        raise UnavailableError(f"{peer} ended with {status}; it said: {said}")
    return _answer(out, peer)


def _answer(out: str, peer: str) -> dict[str, Any]:
    last = (out.strip() or "nothing").splitlines()[-1]
    try:
        answer = json.loads(last)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise UnavailableError(f"{peer} ended without an answer; its last words: {last[:200]}")
    return answer


def _kill(child: subprocess.Popen[str]) -> None:
    """The whole group. Only while the child is not yet waited for: then its number is still its own."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (AttributeError, OSError):  # Windows; already gone
        child.kill()
