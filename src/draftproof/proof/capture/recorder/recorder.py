"""A bounded queue between an engine's step and the disk: the engine copies tensors, a thread does everything else.

Whatever goes wrong here (a full disk, an unwritable folder, a slow one) ends the recording with one log line; no
exception leaves ``add``, ``begin`` or ``close``.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from .folder import CaptureFolder
from .settings import Settings

log = logging.getLogger("draftproof.capture")
WAITING = 64  # rounds that may wait for the disk
IDLE_SECONDS = 1.0  # without a new round: what is there is written
JOIN_SECONDS = 20.0


@dataclass
class Round:
    """One call of the drafter. ``requests``: a name per request, in order. ``tensors``: see ``manifest.TENSORS``;
    ``prefixes``: request index → ids of the tokens before its first row, where the engine skipped rows."""

    requests: list[str]
    tensors: dict[str, Tensor]
    prefixes: dict[int, Tensor] = field(default_factory=dict)

    @property
    def size(self) -> int:
        every = [*self.tensors.values(), *self.prefixes.values()]
        return sum(t.numel() * t.element_size() for t in every)


class Recorder:
    """Takes rounds until a bound of ``settings`` is reached; ``open`` says whether it wants more."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.open = True
        self.begun = False
        self.rounds = 0
        self.path: str | None = None
        self._bytes = 0
        self._queue: queue.Queue[Round | str] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None

    def begin(self, facts: dict[str, Any], weights: dict[str, Tensor] | None = None) -> None:
        """Once, before the first round: what holds for the whole run. ``weights``: hashed by the thread."""
        self.begun = True
        self._thread = threading.Thread(
            target=self._write, args=(facts, weights or {}), name="draftproof-capture", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)

    def add(self, one: Round) -> None:
        """Queue a round whose tensors nobody will write to any more."""
        if not self.open:
            return
        self._bytes += one.size
        try:
            self._queue.put_nowait(one)
        except queue.Full:
            self._end("the disk is slower than the engine")
            return
        self.rounds += 1
        if self.rounds >= self.settings.rounds:
            self._end("rounds")
        elif self._bytes >= self.settings.bytes:
            self._end("bytes")

    def close(self, why: str = "exit") -> None:
        """Write what is left and wait for it, a while."""
        self._end(why)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(JOIN_SECONDS)

    def _end(self, why: str) -> None:
        if self.open and self._thread is not None:
            threading.Thread(target=self._queue.put, args=(why,), daemon=True).start()
        self.open = False

    def _write(self, facts: dict[str, Any], weights: dict[str, Tensor]) -> None:
        try:
            folder = CaptureFolder(self.settings, facts)
            self.path = str(folder.path)
            folder.hash_weights(weights)
            weights.clear()
            while True:
                try:
                    item = self._queue.get(timeout=IDLE_SECONDS)
                except queue.Empty:
                    folder.flush()
                    continue
                if isinstance(item, str):
                    folder.finish(item)
                    return
                folder.take(item)
        except Exception as error:
            self.open = False
            log.warning(
                "draftproof capture ends, serving goes on: %s: %s", type(error).__name__, " ".join(str(error).split())
            )
            while not self._queue.empty():  # nobody must wait for a reader that is gone
                self._queue.get_nowait()
