"""Runs a command until enough is captured, sending it prompts if asked to."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.errors import UnavailableError, UsageError
from draftproof.proof.capture.places import Place
from draftproof.proof.capture.recorder.settings import Settings

POLL_SECONDS = 1.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """``prompts`` are sent to ``endpoint`` as soon as it answers, round after round, until enough is captured.
    ``stop``: end the command then; else wait until it ends by itself. ``timeout``: seconds for the capturing."""

    settings: Settings
    prompts: tuple[str, ...] = ()
    endpoint: str | None = None
    max_tokens: int = 128
    stop: bool = False
    timeout: float = 1800.0


@dataclass(frozen=True)
class Outcome:
    folder: Path | None
    rounds: int
    complete: bool
    exit_code: int | None  # of the command, None if it was ended


def watch(place: Place, command: Sequence[str], wanted: Wanted, say: Say) -> Outcome:
    """Raises UnavailableError if the command cannot be started."""
    child = place.start(command, wanted.settings)
    over = threading.Event()
    sender = _Sender(wanted, over, say)
    try:
        sender.start()
        manifest = _wait(place, child, wanted, say)
        over.set()
        stopped = wanted.stop and child.poll() is None
        if stopped:
            say("enough is captured: ending the command")
            place.stop(child)
        else:
            child.wait()
        manifest = place.manifest() or manifest
        rounds = len(manifest["rounds"]) if manifest else 0
        complete = bool(manifest and manifest.get("complete"))
        return Outcome(place.fetch(), rounds, complete, None if stopped else child.returncode)
    except KeyboardInterrupt:
        over.set()
        place.stop(child)
        manifest = place.manifest()
        return Outcome(place.fetch(), len(manifest["rounds"]) if manifest else 0, False, None)
    finally:
        over.set()
        place.close()


def _wait(place: Place, child: subprocess.Popen[bytes], wanted: Wanted, say: Say) -> dict[str, Any] | None:
    """Until the capture is complete, the command has ended, or it took too long."""
    deadline, told = time.monotonic() + wanted.timeout, -1
    manifest: dict[str, Any] | None = None
    while time.monotonic() < deadline:
        manifest = place.manifest() or manifest
        rounds = len(manifest.get("rounds", ())) if manifest else 0
        if manifest and rounds != told:
            told = rounds
            say(f"captured {rounds} of {wanted.settings.rounds} rounds")
        if (manifest and manifest.get("complete")) or child.poll() is not None:
            return manifest
        time.sleep(POLL_SECONDS)
    say(f"--timeout {wanted.timeout:g}: no more than {max(told, 0)} rounds came")
    return manifest


class _Sender(threading.Thread):
    """Asks the server one prompt after the other while it is wanted."""

    def __init__(self, wanted: Wanted, over: threading.Event, say: Say) -> None:
        super().__init__(daemon=True)
        self._wanted, self._over, self._say = wanted, over, say

    def run(self) -> None:
        if not self._wanted.prompts or self._wanted.endpoint is None:
            return
        from draftproof.proof.runtime.endpoint import Ask, Endpoint

        endpoint = Endpoint(self._wanted.endpoint, timeout=600.0)
        while not self._over.is_set():
            try:
                self._say(f"{endpoint.name} serves {endpoint.model}: sending prompts")
                break
            except UnavailableError:
                self._over.wait(2.0)
        while not self._over.is_set():
            for prompt in self._wanted.prompts:
                if self._over.is_set():
                    return
                answer = endpoint.ask(Ask(prompt, max_tokens=self._wanted.max_tokens))
                if answer.error is not None:
                    self._say(f"{endpoint.name}: {answer.error}")
                    self._over.wait(2.0)


def endpoint_of(command: Sequence[str]) -> str:
    """Where the command line says it will serve; vLLM's default else. Raises UsageError for a port that is none."""
    words = list(command)
    for i, word in enumerate(words):
        found = re.fullmatch(r"--port(?:=(.*))?", word)
        if found:
            text = found.group(1) or (words[i + 1] if i + 1 < len(words) else "")
            if not text.isdecimal():
                raise UsageError(f"--port {text!r} in the command is no port; give --endpoint URL")
            return f"http://127.0.0.1:{text}"
    return "http://127.0.0.1:8000"
