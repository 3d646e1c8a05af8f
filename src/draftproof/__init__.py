"""draftproof runs DFlash speculative decoding with exactly the target's text, and shows that it does.

The names below are loaded on first use, so that commands which need no model start without importing torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_LAZY = {
    "Engine": "draftproof.engine.engine",
    "SamplingParams": "draftproof.engine.types",
    "RequestOutput": "draftproof.engine.types",
    "DrafterSpec": "draftproof.drafters.spec",
}
__all__ = ["DrafterSpec", "Engine", "RequestOutput", "SamplingParams", "__version__"]

if TYPE_CHECKING:
    from draftproof.drafters.spec import DrafterSpec
    from draftproof.engine.engine import Engine
    from draftproof.engine.types import RequestOutput, SamplingParams


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'draftproof' has no attribute {name!r}")
