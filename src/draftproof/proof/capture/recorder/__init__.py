"""What runs inside an engine's own environment and writes captures: standard library, torch and safetensors only.

vLLM finds ``register`` through the entry-point group ``vllm.general_plugins``. ``draftproof capture`` copies this
folder next to an entry point of its own and puts it on the engine's ``PYTHONPATH``, so nothing is installed there;
therefore every import in here is relative, and Python 3.10 must be able to read it.
"""

from __future__ import annotations

import os

VARIABLE = "DRAFTPROOF_CAPTURE"


def register() -> None:
    """vLLM calls this in each of its processes. Without ``DRAFTPROOF_CAPTURE`` nothing is imported, nothing wrapped."""
    if not os.environ.get(VARIABLE):
        return
    from .hooks import install

    install()
