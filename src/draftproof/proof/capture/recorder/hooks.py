"""Wraps the drafter's call in vLLM, once its module is imported; nothing is imported that the engine does not."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from .settings import from_environment

log = logging.getLogger("draftproof.capture")
MARK = "_draftproof_capture"
Action = Callable[[Any], None]


class Runs:
    """The recording that is going on in this process."""

    recorder: Any = None


def install() -> None:
    """For every runner that this vLLM has. Twice does no harm. What is set wrongly is said, and nothing recorded."""
    try:
        settings = from_environment(os.environ)
    except ValueError as error:
        log.warning("draftproof capture is off: %s", error)
        return
    if settings is None or Runs.recorder is not None:
        return
    # The carried copy and an installed draftproof may both be found: the first one records.
    if sys.__dict__.setdefault(MARK, __name__) != __name__:
        return
    from .recorder import Recorder

    Runs.recorder = Recorder(settings)
    from . import vllm_v1, vllm_v2

    def on_v1(module: Any) -> None:
        wrap(module, "DFlashProposer", vllm_v1.Session)
        vllm_v1.remember_runner(module)

    after_import("vllm.v1.spec_decode.dflash", on_v1)
    after_import(
        "vllm.v1.worker.gpu.spec_decode.dflash.speculator",
        lambda module: wrap(module, "DFlashSpeculator", vllm_v2.Session),
    )


def wrap(module: Any, class_name: str, session_type: Any) -> None:
    """Let every ``propose`` of the class be seen by a session; what a session does wrong ends the recording only."""
    owner = getattr(module, class_name, None)
    if owner is None or hasattr(owner.propose, MARK):
        return
    original = owner.propose
    sessions: dict[int, Any] = {}

    @functools.wraps(original)
    def propose(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = Runs.recorder
        if recorder is None or not recorder.open:
            return original(self, *args, **kwargs)
        session = None
        try:
            session = sessions.get(id(self))
            if session is None or session.recorder is not recorder:
                session = sessions[id(self)] = session_type(self, recorder)
            session.before(args, kwargs)
        except Exception as error:
            session = None
            _give_up(recorder, error)
        drafts = original(self, *args, **kwargs)
        if session is not None:
            try:
                session.after(drafts)
            except Exception as error:
                _give_up(recorder, error)
        return drafts

    setattr(propose, MARK, True)
    owner.propose = propose


def _give_up(recorder: Any, error: Exception) -> None:
    recorder.open = False
    log.warning("draftproof capture ends, serving goes on: %s: %s", type(error).__name__, " ".join(str(error).split()))


def after_import(name: str, action: Action) -> None:
    """Run ``action`` on module ``name``: now if it is there, else as soon as somebody imports it."""
    if name in sys.modules:
        action(sys.modules[name])
        return
    sys.meta_path.insert(0, _Waiting(name, action))


class _Waiting(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, action: Action) -> None:
        self.name, self.action = name, action

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Acting(spec.loader, self.action)
        return spec


class _Acting(importlib.abc.Loader):
    """The module's own loader, and then the action."""

    def __init__(self, loader: Any, action: Action) -> None:
        self._loader, self._action = loader, action

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self._loader.exec_module(module)
        try:
            self._action(module)
        except Exception as error:
            log.warning("draftproof capture is off: %s: %s", type(error).__name__, error)
