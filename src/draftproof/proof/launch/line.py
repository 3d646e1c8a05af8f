"""A command line as arguments in order, and what it means in the words of a case."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

HIDDEN = "***"
_SECRET = re.compile(
    r"(?:^|[-_])(?:api[-_]?key|token|secret|password|passwd|credentials?)(?:$|[-_](?!s?ize|len|id))", re.I
)
_ASSIGNED_SECRET = re.compile(r"^(\w*(?:KEY|TOKEN|SECRET|PASSWORD)\w*=).+", re.I | re.DOTALL)


@dataclass(frozen=True)
class Argument:
    """``flag`` as written (None: positional), its values, and whether they were joined by "="."""

    flag: str | None
    values: tuple[str, ...] = ()
    joined: bool = False

    def words(self) -> list[str]:
        if self.flag is None:
            return list(self.values)
        if self.joined and self.values:
            return [f"{self.flag}={self.values[0]}", *self.values[1:]]
        return [self.flag, *self.values]


@dataclass(frozen=True)
class Command:
    """``head``: the words that start the engine; ``version``: from an image's tag, where one is named."""

    engine: str
    env: Mapping[str, str]
    head: tuple[str, ...]
    arguments: tuple[Argument, ...]
    version: str | None = None
    build: str | None = None

    def last(self, *flags: str) -> str | None:
        """The value that counts where a flag is repeated; "" for a flag without one; None if it is absent."""
        found = [a for a in self.arguments if a.flag in flags]
        return None if not found else (found[-1].values[0] if found[-1].values else "")

    def has(self, *flags: str) -> bool:
        return any(a.flag in flags for a in self.arguments)

    def repeated(self, *flags: str) -> list[str]:
        return [" ".join(a.values) for a in self.arguments if a.flag in flags]

    def with_env(self, key: str, value: str) -> Command:
        return replace(self, env={**self.env, key: value})

    def without(self, flags: Iterable[str]) -> Command:
        drop = set(flags)
        return replace(self, arguments=tuple(a for a in self.arguments if a.flag not in drop))

    def setting(self, names: tuple[str, ...], value: str) -> Command:
        """One occurrence of a flag with this value: at the place of the first, else at the end."""
        kept: list[Argument] = []
        placed = False
        for argument in self.arguments:
            if argument.flag not in names:
                kept.append(argument)
            elif not placed:
                kept.append(replace(argument, values=(value,)))
                placed = True
        if not placed:
            kept.append(Argument(names[0], (value,)))
        return replace(self, arguments=tuple(kept))

    def redacted(self) -> Command:
        """Without keys and tokens: a line is saved, shown and logged."""
        env = {key: HIDDEN if _SECRET.search(key) else value for key, value in self.env.items()}
        arguments = tuple(
            replace(a, values=(HIDDEN, *a.values[1:])) if a.flag and a.values and _SECRET.search(a.flag) else a
            for a in self.arguments
        )
        head = tuple(_ASSIGNED_SECRET.sub(rf"\1{HIDDEN}", word) for word in self.head)
        return replace(self, env=env, arguments=arguments, head=head)

    def render(self) -> str:
        """To paste into a shell: one flag per line."""
        first = " ".join([*(f"{k}={shlex.quote(v)}" for k, v in self.env.items()), shlex.join(self.head)])
        lines = [first]
        for argument in self.arguments:
            text = shlex.join(argument.words())
            if argument.flag is None and len(lines) == 1:
                lines[0] += f" {text}"
            else:
                lines.append(f"  {text}")
        return " \\\n".join(lines)


@dataclass(frozen=True)
class Problem:
    """Something about the line itself. ``severity``: "error" (the engine refuses it) or "warning" (no effect)."""

    severity: str
    what: str
    remedy: str = ""

    def to_dict(self) -> dict[str, str]:
        return {"severity": self.severity, "what": self.what, "remedy": self.remedy}


@dataclass(frozen=True)
class Parsed:
    """A line in the words of a case: ``options`` as in docs/case.md, ``k``: drafted tokens per step, ``unread``: what
    the line names and nobody could read, so that silence about it is no good answer."""

    command: Command
    target: str | None = None
    drafter: str | None = None
    revision: str | None = None
    method: str | None = None
    k: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    unread: tuple[str, ...] = ()


def whole(text: str | None) -> int | None:
    """A whole number as most parsers take it; None for anything else."""
    try:
        return int(text) if text is not None and len(text) < 20 else None
    except ValueError:
        return None
