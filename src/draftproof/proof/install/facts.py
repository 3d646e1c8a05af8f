"""What the probe's answers mean: each fact's value by level of evidence, and what the release would lead one to expect.

A behaviour result overrides a source result, a source result a version; where two of them disagree it is kept, so that
a rule can say so.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

State = Literal["good", "bad", "cost", "neutral", "unknown"]
_ACCELERATORS = ("cu", "cpu", "rocm", "xpu")  # local labels of official wheels: not another tree


@dataclass(frozen=True)
class Value:
    """``since``: first release that has it, None if none has; ``matrix``: entry of the version matrix."""

    value: str
    state: State
    says: str
    since: str | None = None
    matrix: str | None = None


@dataclass(frozen=True)
class Fact:
    engine: str
    id: str
    asks: str
    values: tuple[Value, ...]
    change: str | None = None
    headline: str = ""
    headline_if_bad: bool = False

    def named(self, value: str) -> Value:
        return next((v for v in self.values if v.value == value), Value(value, "unknown", value))

    def expected(self, version: str) -> Value | None:
        """What a plain release of this version has; None if the version says nothing (dev, fork, unreadable)."""
        try:
            parsed = Version(version)
        except InvalidVersion:
            return None
        if parsed.is_devrelease or (parsed.local and not parsed.local.startswith(_ACCELERATORS)):
            return None
        known = [v for v in self.values if v.since is not None and Version(v.since) <= Version(parsed.public)]
        return max(known, key=lambda v: Version(v.since or "0")) if known else None


@dataclass(frozen=True)
class Held:
    """A fact as it is in one install. ``level``: "behaviour", "source" or "" (cannot tell, ``how`` says why).
    ``other``: what the level below says, if it says something else; ``expected``: what the release would have."""

    fact: Fact
    value: Value | None
    level: str
    where: str
    how: str
    other: Value | None = None
    expected: Value | None = None

    @property
    def state(self) -> State:
        return "unknown" if self.value is None else self.value.state

    @property
    def diverges(self) -> bool:
        return self.value is not None and self.expected is not None and self.value.value != self.expected.value

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.fact.id,
            "asks": self.fact.asks,
            "value": None if self.value is None else self.value.value,
            "says": "cannot tell" if self.value is None else self.value.says,
            "state": self.state,
            "level": self.level,
            "where": self.where,
            "how": self.how,
            "source_says": None if self.other is None else self.other.says,
            "release_says": None if self.expected is None else self.expected.says,
        }


@cache
def known(engine: str) -> dict[str, Fact]:
    """The facts of an engine by id, in the order they are shown; empty for one that is not known."""
    text = (resources.files("draftproof.proof.install") / "facts.toml").read_text(encoding="utf-8")
    found = [Fact(**{**e, "values": tuple(Value(**v) for v in e["values"])}) for e in tomllib.loads(text)["fact"]]
    return {f.id: f for f in found if f.engine == engine}


def held(engine: Mapping[str, Any], version: str | None) -> list[Held]:
    """All facts of one engine's part of a probe report. ``version`` None: nothing is expected of it."""
    source = engine.get("source") or {}
    behaviour = (engine.get("behaviour") or {}).get("facts") or {}
    facts = known(str(engine.get("package")))
    return [_held(f, source.get(f.id), behaviour.get(f.id), version) for f in facts.values() if source or behaviour]


def _held(fact: Fact, source: Any, behaviour: Any, version: str | None) -> Held:
    expected = fact.expected(version) if version else None
    read, called = _value(fact, source), _value(fact, behaviour)
    chosen, level, given = (called, "behaviour", behaviour) if called else (read, "source" if read else "", source)
    given = given or behaviour or {"where": "", "how": "was not asked"}
    other = read if called and read and read.value != called.value else None
    return Held(fact, chosen, level, given["where"], given["how"], other, expected)


def _value(fact: Fact, given: Any) -> Value | None:
    return fact.named(given["value"]) if isinstance(given, Mapping) and given.get("value") else None
