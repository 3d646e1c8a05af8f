"""Takes functions out of an installed package and makes them callable, without importing the package.

A module's names are bound when first used: functions, classes and constants from the module's own source, imports
of the standard library (and of ``REAL`` packages) for real, everything else as a stand-in that records its use. So a
function runs with its own shipped code although the package's compiled parts cannot be loaded here, and an answer
that leans on a stand-in is recognised as none.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import os
import sys
import types
from typing import Any, Iterator

REAL = ("transformers", "typing_extensions", "packaging")
_KEPT = ("staticmethod", "classmethod", "property", "dataclass", "cached_property")


class Absent(Exception):
    """The package has no such module, function or class."""


class Leaned(Exception):
    """A decision would have depended on a stand-in."""


class Stand:
    """Stands in for what cannot be imported. Calls are recorded; it can be called, subclassed and decorated with, but
    not compared or tested: an answer must not depend on it."""

    __hash__ = object.__hash__

    _name: str
    _used: set[str]

    def __init__(self, name: str, used: set[str]) -> None:
        self.__dict__.update(_name=name, _used=used)

    def __getattr__(self, name: str) -> Stand:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stand(f"{self._name}.{name}", self._used)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and callable(args[0]):
            return args[0]  # used as a decorator
        self._used.add(self._name)
        return Stand(f"{self._name}()", self._used)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __getitem__(self, key: Any) -> Stand:
        return self

    def __eq__(self, other: object) -> bool:
        raise Leaned(f"it depends on {self._name}, which cannot be loaded here")

    def __bool__(self) -> bool:
        raise Leaned(f"it depends on {self._name}, which cannot be loaded here")

    def __instancecheck__(self, value: Any) -> bool:
        return False  # nothing here was made by a library that could not be loaded

    def __iter__(self) -> Iterator[Any]:
        self._used.add(self._name)
        return iter(())

    def __or__(self, other: Any) -> Stand:
        return self

    __ror__ = __or__


class Space(dict):  # type: ignore[type-arg]
    """A module's globals, filled when a name is looked up."""

    def __init__(self, linker: Linker, module: str) -> None:
        super().__init__(__name__=f"linked:{module}", __builtins__=builtins)
        sys.modules.setdefault(self["__name__"], types.ModuleType(self["__name__"]))  # dataclasses look it up
        self.module = module
        self.linker = linker
        self.file = linker.file(module)
        with open(self.file, encoding="utf-8") as stream:
            self.tree = ast.parse(stream.read(), self.file)
        self.table = {name: node for node in _flat(self.tree.body) for name in _bound(node)}

    def __missing__(self, name: str) -> Any:
        node = self.table.get(name)
        if node is None:
            return self.linker.starred(self, name)
        value = self.linker.value(self, name, node)
        self.setdefault(name, value)
        return self[name]


class Linker:
    """``root``: the folder that holds ``package``. ``used``: stand-ins that were called on the way."""

    def __init__(self, root: str, package: str) -> None:
        self.root, self.package = root, package
        self.spaces: dict[str, Space] = {}
        self.used: set[str] = set()
        self.replaced: dict[tuple[str, str], Any] = {}

    def file(self, module: str) -> str:
        base = os.path.join(self.root, *module.split("."))
        for file in (base + ".py", os.path.join(base, "__init__.py")):
            if os.path.isfile(file):
                return file
        raise Absent(module)

    def space(self, module: str) -> Space:
        if module not in self.spaces:
            self.spaces[module] = Space(self, module)
        return self.spaces[module]

    def get(self, module: str, name: str) -> Any:
        """A function, class or constant; ``Class.method`` gives the bare function, without its class being made."""
        space = self.space(module)
        outer, _, inner = name.partition(".")
        node = space.table.get(outer)
        if node is None:
            raise Absent(f"{module}.{name}")
        if not inner:
            return space[outer]
        before = space.get(inner)
        self._compiled(space, self.method(module, outer, inner))
        function = space.pop(inner)
        if before is not None:
            space[inner] = before  # a function of the module that bears the method's name
        return function

    def where(self, module: str, name: str) -> str:
        """``path:line`` of a definition, relative to the root."""
        space = self.space(module)
        outer, _, inner = name.partition(".")
        node: ast.AST | None = space.table.get(outer)
        if node is not None and inner:
            node = self.method(module, outer, inner)
        line = getattr(node, "lineno", 1)
        return f"{os.path.relpath(space.file, self.root)}:{line}"

    def method(self, module: str, owner: str, name: str) -> ast.FunctionDef:
        node = self.space(module).table.get(owner)
        for item in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(item, ast.FunctionDef) and item.name == name:
                return item
        raise Absent(f"{module}.{owner}.{name}")

    def instance(self, module: str, owner: str, **values: Any) -> Any:
        """An object with these attributes and the class's own methods, taken out one by one as they are called."""
        return _Instance(self, module, owner, values)

    def value(self, space: Space, name: str, node: ast.stmt) -> Any:
        if (space.module, name) in self.replaced:
            return self.replaced[space.module, name]
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return self._imported(space, name, node)
        made = self._compiled(space, node)
        self._registrations(space, name)
        return made[name] if name in made else space[name]

    def _registrations(self, space: Space, name: str) -> None:
        """A table that decorators fill (``@register(…)``) is only right once the decorated functions have run."""
        for other in space.table.values():
            if isinstance(other, ast.FunctionDef):
                for decorator in other.decorator_list:
                    maker = (
                        decorator.func.id
                        if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name)
                        else ""
                    )
                    definition = space.table.get(maker)
                    if (
                        isinstance(definition, ast.FunctionDef)
                        and name in _names(definition)
                        and other.name not in space
                    ):
                        space.setdefault(name, space.get(name))
                        space[other.name] = None  # not again while it is made
                        self._compiled(space, other)

    def _compiled(self, space: Space, node: ast.stmt) -> Space:
        """Runs one top-level statement in the module's globals; annotations are never evaluated."""
        tree = ast.Module(body=[_FUTURE, _plain(node, space)], type_ignores=[])
        exec(compile(ast.fix_missing_locations(tree), space.file, "exec"), space)
        return space

    def _imported(self, space: Space, name: str, node: ast.Import | ast.ImportFrom) -> Any:
        for alias in node.names:
            if (alias.asname or alias.name.partition(".")[0]) == name:
                break
        if isinstance(node, ast.Import):
            return self._module(alias.name if alias.asname else name)
        module = self._absolute(space.module, space.file, node)
        if module.partition(".")[0] != self.package:
            outer = self._module(module)
            return (
                Stand(f"{module}.{alias.name}", self.used) if isinstance(outer, Stand) else getattr(outer, alias.name)
            )
        try:
            return self.space(module)[alias.name]
        except (Absent, KeyError, SyntaxError, OSError):
            return Stand(f"{module}.{alias.name}", self.used)

    def starred(self, space: Space, name: str) -> Any:
        """A name that ``from own.module import *`` may have brought. Raises KeyError if not: builtins come next."""
        for node in _flat(space.tree.body):
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*" and not hasattr(builtins, name):
                module = self._absolute(space.module, space.file, node)
                try:
                    return self.space(module)[name]
                except (Absent, KeyError, SyntaxError, OSError):
                    continue
        raise KeyError(name)

    def _module(self, name: str) -> Any:
        top = name.partition(".")[0]
        if top in REAL or top in _STANDARD:
            try:
                return importlib.import_module(name)
            except Exception:
                return Stand(name, self.used)
        return Stand(name, self.used)

    def _absolute(self, module: str, file: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.split(".")
        keep = len(parts) - node.level + (1 if os.path.basename(file) == "__init__.py" else 0)
        return ".".join(parts[:keep] + ([node.module] if node.module else []))


class _Instance:
    def __init__(self, linker: Linker, module: str, owner: str, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
        self.__dict__["_source"] = (linker, module, owner)

    def __getattr__(self, name: str) -> Any:
        linker, module, owner = self.__dict__["_source"]
        try:
            node = linker.method(module, owner, name)
        except Absent:
            raise AttributeError(f"{owner}.{name}") from None
        function = linker.get(module, f"{owner}.{name}")
        if any(isinstance(d, ast.Name) and d.id in ("property", "cached_property") for d in node.decorator_list):
            return function(self)
        return function.__get__(self)


_FUTURE = ast.ImportFrom(module="__future__", names=[ast.alias(name="annotations", asname=None)], level=0)
_STANDARD = getattr(sys, "stdlib_module_names", frozenset(sys.builtin_module_names)) | {
    *("abc", "collections", "contextlib", "copy", "dataclasses", "enum", "functools", "inspect", "itertools", "json"),
    *("logging", "math", "os", "pathlib", "re", "sys", "time", "types", "typing", "warnings", "importlib"),
}


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Top-level statements, also those in ``if`` and ``try``."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _flat(node.orelse)
            yield from _flat(node.body)
        elif isinstance(node, ast.Try):
            for handler in node.handlers:
                yield from _flat(handler.body)
            yield from _flat(node.body)
        else:
            yield node


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _plain(node: ast.stmt, space: Space) -> ast.stmt:
    """The statement without decorators that belong to other modules (compilation, caching, registration there)."""
    if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return node
    kept = []
    for decorator in node.decorator_list:
        inner = decorator.func if isinstance(decorator, ast.Call) else decorator
        own = isinstance(inner, ast.Name) and isinstance(space.table.get(inner.id), ast.FunctionDef)
        if own or (isinstance(inner, ast.Name) and inner.id in ("dataclass",)):
            kept.append(decorator)
    body = node.body
    if isinstance(node, ast.ClassDef):
        body = [_plain_method(item) for item in body]
    fields = {field: getattr(node, field) for field in node._fields}
    return ast.copy_location(type(node)(**{**fields, "decorator_list": kept, "body": body}), node)


def _plain_method(node: ast.stmt) -> ast.stmt:
    if not isinstance(node, ast.FunctionDef):
        return node
    kept = [d for d in node.decorator_list if isinstance(d, ast.Name) and d.id in _KEPT]
    fields = {field: getattr(node, field) for field in node._fields}
    return ast.copy_location(type(node)(**{**fields, "decorator_list": kept}), node)
