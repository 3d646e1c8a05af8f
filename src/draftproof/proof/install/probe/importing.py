"""Importability, in a child with a time limit: the package, its extensions, the operators they must register."""

from __future__ import annotations

import ast
import importlib
import os
import sys
import time
from typing import Any

from . import children, wire
from .extensions import DRIVERS


def run(request: dict[str, Any]) -> None:
    """Child's side. ``request``: package, extensions (dotted names), prefix, operators (namespace → names)."""
    speaker = wire.Speaker(children.MARK, os.fdopen(os.dup(1), "w", encoding="ascii"))
    os.dup2(2, 1)  # what the engine prints is not the report
    if request["prefix"] is not None:
        sys.path.insert(0, request["prefix"])
    began = time.monotonic()
    report: dict[str, Any] = {"package": _try(request["package"]), "extensions": {}, "operators": {}}
    for name in request["extensions"]:
        report["extensions"][name] = _try(name)
    if not report["package"]:
        module = sys.modules[request["package"]]
        report["file"] = getattr(module, "__file__", None)
        report["version"] = str(getattr(module, "__version__", "")) or None
    report["operators"] = _registered(request["operators"])
    report["seconds"] = round(time.monotonic() - began, 2)
    speaker.report(report)
    os._exit(0)  # destructors of half-imported extensions have crashed before


def _try(name: str) -> str:
    """ "" if the import succeeds, else its error in one line."""
    try:
        importlib.import_module(name)
    except BaseException as error:  # modules raise SystemExit, and worse
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return ""


def driver_missing(error: str) -> bool:
    """Does an import fail only because this machine has no graphics driver? Then the install is not at fault."""
    return any(library in error for library in DRIVERS) or "NVIDIA driver" in error


def _registered(wanted: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    torch: Any = sys.modules.get("torch")
    found: dict[str, dict[str, Any]] = {}
    for namespace, names in wanted.items() if torch is not None else ():
        space = getattr(torch.ops, namespace)
        missing = [name for name in names if not hasattr(space, name)]
        found[namespace] = {"wanted": len(names), "missing": len(missing), "such_as": missing[:5]}
    return found


def operators(file: str) -> dict[str, list[str]]:
    """Names that a source calls as ``torch.ops.<namespace>.<name>``, without importing it."""
    try:
        with open(file, encoding="utf-8") as stream:
            tree = ast.parse(stream.read())
    except (OSError, SyntaxError, ValueError):
        return {}
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            space = node.value
            if isinstance(space.value, ast.Attribute) and space.value.attr == "ops" and _is_torch(space.value.value):
                found.setdefault(space.attr, set()).add(node.attr)
    return {namespace: sorted(names) for namespace, names in found.items()}


def _is_torch(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "torch"
