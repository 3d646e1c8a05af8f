"""The recorder as a folder of its own, which vLLM finds as a plugin when it is on ``PYTHONPATH``.

Nothing is installed into the engine's environment: the folder holds a copy of ``recorder`` and the entry point
beside it, and goes with the process.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import draftproof

PACKAGE = "draftproof_capture"
GROUP = "vllm.general_plugins"


def sources() -> dict[str, str]:
    """Relative path → text of everything in the folder."""
    folder = resources.files("draftproof.proof.capture") / "recorder"
    found = {
        f"{PACKAGE}/{file.name}": file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".py")
    }
    info = f"{PACKAGE}-{draftproof.__version__}.dist-info"
    found[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {draftproof.__version__}\n"
    found[f"{info}/entry_points.txt"] = f"[{GROUP}]\n{PACKAGE} = {PACKAGE}:register\n"
    return found


def unpack(folder: Path) -> Path:
    """Write the plugin into ``folder`` and return it."""
    for name, text in sources().items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def python_path(folder: str, before: str | None) -> str:
    """``PYTHONPATH`` with the plugin in front."""
    return f"{folder}:{before}" if before else folder
