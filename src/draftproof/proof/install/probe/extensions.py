"""Compiled files of a distribution: whole, for this machine and this Python, with every library they need."""

from __future__ import annotations

import os
import re
from typing import Any

from . import elf
from .libraries import Libraries

_SHARED = re.compile(r"\.so(\.\d+)*$")
_TAGGED = re.compile(r"\.(?P<tag>cpython-\d+[a-z]*|pypy\d+[-\w]*)(?:-[\w]+)*\.so$")
DRIVERS = ("libcuda.so", "libnvidia-ml.so", "libamdhip64.so", "libnvcuda", "libze_loader.so")


def check(
    site: str, files: list[str], suffixes: list[str] | None, machine: str, path: list[str]
) -> dict[str, list[dict[str, Any]] | int]:
    """``files``: paths relative to ``site``; only those that are shared objects and there are looked at.

    ``suffixes``: of the interpreter that will import them; None if that is not known (then no ABI is judged).
    """
    shared = [f for f in files if _SHARED.search(f) and os.path.isfile(os.path.join(site, f))]
    names = {os.path.basename(f) for f in files}
    libraries = Libraries(path)
    found: dict[str, Any] = {"count": len(shared), "broken": [], "machine": [], "abi": [], "needs": []}
    for file in shared:
        full = os.path.join(site, file)
        try:
            head = elf.read(full)
        except elf.Broken as error:
            found["broken"].append({"path": file, "says": str(error)})
            continue
        except OSError as error:
            found["broken"].append({"path": file, "says": error.strerror or "cannot be read"})
            continue
        if head["machine"] != machine:
            found["machine"].append({"path": file, "says": f"made for {head['machine']}, this machine is {machine}"})
            continue
        wrong = _abi(file, files, suffixes)
        if wrong:
            found["abi"].append({"path": file, "says": wrong})
        for library in head["needed"]:
            if not libraries.find(library, os.path.dirname(full), head["search"]):
                found["needs"].append(
                    {"path": file, "library": library, "own": library in names, "driver": _driver(library)}
                )
    return found


def _driver(library: str) -> bool:
    """Part of a graphics driver: no package brings it, and hosts that only build or check do without."""
    return library.startswith(DRIVERS)


def _abi(file: str, files: list[str], suffixes: list[str] | None) -> str:
    """What is wrong with the file's tag. Nothing, if a sibling for this interpreter is there too."""
    match = _TAGGED.search(file)
    tagged = [suffix for suffix in suffixes or () if suffix != ".so"]
    if match is None or suffixes is None or any(file.endswith(suffix) for suffix in tagged):
        return ""
    stem = file[: match.start()]
    if any(stem + suffix in files for suffix in suffixes):
        return ""
    return f"made for {match['tag']}, this Python takes {suffixes[0].split('-linux')[0].lstrip('.')}"


def modules(files: list[str], suffixes: list[str]) -> list[str]:
    """Dotted names of the extension modules among ``files`` that this interpreter would import."""
    found = []
    for file in files:
        for suffix in sorted(suffixes, key=len, reverse=True):
            if file.endswith(suffix) and not os.path.basename(file).startswith("lib"):
                name = file[: -len(suffix)].replace("/", ".")
                if all(part.isidentifier() for part in name.split(".")):
                    found.append(name)
                break
    return found
