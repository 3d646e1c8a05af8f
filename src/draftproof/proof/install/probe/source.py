"""Questions to sources by their syntax trees, nothing imported: what is defined, mentioned, added, raised; where."""

from __future__ import annotations

import ast
import os
from typing import Any, Iterator, NamedTuple


class Answer(NamedTuple):
    """``value``: None if it cannot be told, ``where``: file:line it rests on, ``how``: what was read or called."""

    value: str | None
    where: str = ""
    how: str = ""


class Sources:
    """The files of one package. Paths are relative to its folder, with slashes."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.name = os.path.basename(folder)
        self._trees: dict[str, ast.Module | None] = {}
        self.unreadable: dict[str, str] = {}

    def exists(self, path: str) -> bool:
        return os.path.exists(os.path.join(self.folder, *path.split("/")))

    def tree(self, path: str) -> ast.Module | None:
        if path not in self._trees:
            self._trees[path] = self._parsed(path)
        return self._trees[path]

    def _parsed(self, path: str) -> ast.Module | None:
        try:
            with open(os.path.join(self.folder, *path.split("/")), encoding="utf-8") as file:
                return ast.parse(file.read())
        except FileNotFoundError:
            return None
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            self.unreadable[path] = f"{type(error).__name__}: {error}"[:200]
            return None

    def find(self, path: str, name: str) -> ast.AST | None:
        """A function or class, or ``Class.method``, at any depth of ``if`` and ``try``."""
        node: ast.AST | None = self.tree(path)
        for part in name.split("."):
            node = next((n for n in _inside(node) if getattr(n, "name", None) == part), None) if node else None
        return node

    def at(self, path: str, node: ast.AST | None = None) -> str:
        return f"{self.name}/{path}:{getattr(node, 'lineno', 1)}"


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    for child in getattr(node, "body", []) + getattr(node, "orelse", []) + getattr(node, "handlers", []):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child
        elif isinstance(child, (ast.If, ast.Try, ast.ExceptHandler)):
            yield from _inside(child)


def text_in(node: ast.AST | None, text: str) -> ast.AST | None:
    """Where a string literal is exactly ``text`` (docstrings that merely mention it do not count)."""
    for child in ast.walk(node) if node is not None else ():
        if isinstance(child, ast.Constant) and child.value == text:
            return child
    return None


def name_in(node: ast.AST | None, name: str) -> ast.AST | None:
    """Where a name or an attribute of that name is used."""
    for child in ast.walk(node) if node is not None else ():
        if getattr(child, "id", None) == name or getattr(child, "attr", None) == name:
            return child
        if isinstance(child, ast.alias) and child.name == name:
            return child
    return None


def adds_one(node: ast.AST | None) -> ast.AST | None:
    for child in ast.walk(node) if node is not None else ():
        if isinstance(child, ast.BinOp) and isinstance(child.op, ast.Add) and _is(child.right, 1):
            return child
    return None


def raises(node: ast.AST | None, kind: str) -> ast.AST | None:
    for child in ast.walk(node) if node is not None else ():
        if isinstance(child, ast.Raise) and child.exc is not None and name_in(child.exc, kind):
            return child
    return None


def stores(node: ast.AST | None, key: str) -> ast.AST | None:
    """Where ``something[key] = …`` is assigned, or ``key`` stands in a dict display."""
    for child in ast.walk(node) if node is not None else ():
        if isinstance(child, ast.Assign):
            for target in child.targets:
                if isinstance(target, ast.Subscript) and text_in(target.slice, key):
                    return child
        if isinstance(child, ast.Dict) and any(k is not None and _is(k, key) for k in child.keys):
            return child
    return None


def _is(node: ast.AST, value: Any) -> bool:
    return isinstance(node, ast.Constant) and node.value == value
