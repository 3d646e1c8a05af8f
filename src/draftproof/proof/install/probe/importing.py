"""Importability, in a child with a time limit: the package, its extensions, the operators they must register."""

from __future__ import annotations

import ast
import importlib
import json
import os
import sys
import time
from typing import Any

from . import children, wire
from .extensions import DRIVERS

# A shared library that was found and loaded whole, and is no module: its package loads it by other means.
NO_MODULE = "does not define module export function"


def run(request: dict[str, Any]) -> None:
    """Child's side. ``request``: package, extensions (dotted names), prefix, operators (namespace → names)."""
    speaker = wire.Speaker(children.MARK, os.fdopen(os.dup(1), "w", encoding="ascii"))
    os.dup2(2, 1)  # what the engine prints is not the report
    if request["prefix"] is not None:
        sys.path.insert(0, request["prefix"])
    began = time.monotonic()
    report: dict[str, Any] = {"package": _try(request["package"]), "extensions": {}, "operators": {}}
    wanted, there = request["operators"], _there(request["operators"])
    for name in request["extensions"]:
        report["extensions"][name], registered = _apart(name, wanted)
        there |= registered
    if not report["package"]:
        module = sys.modules[request["package"]]
        report["file"] = getattr(module, "__file__", None)
        report["version"] = str(getattr(module, "__version__", "")) or None
    report["operators"] = _missing(wanted, there)
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


def _apart(name: str, operators: dict[str, list[str]]) -> tuple[str, set[str]]:
    """``_try`` in a fork, and which operators are registered then. In a fork, so that one extension cannot bring down
    the others or the package: builds of one library for several processors register the same operators, and the
    second one in a process aborts it."""
    if not hasattr(os, "fork") or name in sys.modules:
        return _try(name), _there(operators)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w", encoding="ascii") as stream:
            json.dump([_try(name), sorted(_there(operators))], stream)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="ascii") as stream:
        said = stream.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return children.signal_name(os.WTERMSIG(status)), set()
    error, there = json.loads(said)
    return "" if NO_MODULE in error else error, set(there)


def driver_missing(error: str) -> bool:
    """Does an import fail only because this machine has no graphics driver? Then the install is not at fault."""
    return any(library in error for library in DRIVERS) or "NVIDIA driver" in error


def _there(wanted: dict[str, list[str]]) -> set[str]:
    """``namespace.name`` of those that are registered in this process."""
    torch: Any = sys.modules.get("torch")
    spaces = {namespace: getattr(torch.ops, namespace) for namespace in wanted} if torch is not None else {}
    return {f"{space}.{name}" for space in spaces for name in wanted[space] if hasattr(spaces[space], name)}


def _missing(wanted: dict[str, list[str]], there: set[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for namespace, names in wanted.items() if "torch" in sys.modules else ():
        missing = [name for name in names if f"{namespace}.{name}" not in there]
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
