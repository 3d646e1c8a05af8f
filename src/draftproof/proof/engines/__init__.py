"""The version matrix as data: what each engine's releases do with a drafter. One TOML file per engine.

A fact names a version range, what it is about (``respect``), the drafters and circumstances it holds for, what the
engine does then (``different`` from what the file asks, or ``refused``), and where that was read and how to probe it.
Rules and the matrix read these entries; no version number stands in code.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from draftproof.proof.case import Case
from draftproof.proof.layouts import drafter_method
from draftproof.proof.traits import TRAITS, WITH_ARGUMENT, Answer, holds
from draftproof.proof.versions import Build, Fit

REVISIONS = "revisions.toml"
Effect = Literal["different", "refused"]
RESPECTS = (
    "support",
    "ids",
    "window",
    "causality",
    "rope",
    "length",
    "embeddings",
    "mask vector",
    "head",
    "weights",
    "cache drop",
    "sampling default",
)


@dataclass(frozen=True)
class Fact:
    """``start`` ≤ version < ``until``; ``when``: names of traits, all must hold; ``minor``: costs something without
    contradicting the training; ``cap``: the most confidence the entry deserves, below 1 where a boundary is not known
    exactly; ``code``: its finding."""

    id: str
    engine: str
    respect: str
    effect: Effect
    says: str
    source: str
    probe: str
    start: str | None = None
    until: str | None = None
    methods: tuple[str, ...] = ()
    when: tuple[str, ...] = ()
    code: str = ""
    remedy: str = ""
    severity: str = ""
    minor: bool = False
    cap: float = 1.0

    def concerns(self, method: str | None) -> bool:
        return not self.methods or method in self.methods

    def holds(self, case: Case) -> Answer:
        return holds(case, self.when)

    @property
    def range(self) -> str:
        if self.start is None:
            return "all versions" if self.until is None else f"before {self.until}"
        return f"{self.start} on" if self.until is None else f"{self.start} to before {self.until}"


@dataclass(frozen=True)
class EngineFacts:
    """``counts``: does its flag want drafted tokens (N) or the block (B)? ``flag``: how a drafter is given to it;
    ``skips``: parts of tensor names that its DFlash code has no place for."""

    name: str
    title: str
    releases: tuple[str, ...]
    counts: str
    flag: str
    facts: tuple[Fact, ...]
    skips: tuple[str, ...] = ()


@cache
def engines() -> dict[str, EngineFacts]:
    """All engines of the matrix by name. Raises ValueError naming file and entry for data that is not valid."""
    found: dict[str, EngineFacts] = {}
    for entry in sorted(files(__name__).iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".toml") and entry.name != REVISIONS:
            one = _engine(entry.name, tomllib.loads(entry.read_text(encoding="utf-8")))
            found[one.name] = one
    return found


@cache
def known_revisions() -> dict[str, tuple[str, ...]]:
    """Published drafter → revisions with a known result."""
    data = tomllib.loads(files(__name__).joinpath(REVISIONS).read_text(encoding="utf-8"))
    return {entry["name"]: tuple(entry["revisions"]) for entry in data["known"]}


def facts(code: str | None = None, engine: str | None = None) -> Iterator[Fact]:
    """Facts of a finding code and of one engine, or all."""
    for one in engines().values():
        if engine is None or one.name == engine:
            yield from (fact for fact in one.facts if code is None or fact.code == code)


@dataclass(frozen=True)
class Applied:
    """A fact whose version range touches the build: how far, and whether its conditions hold (None: unknown)."""

    fact: Fact
    fit: Fit
    holds: Answer


def applied(case: Case, build: Build, code: str | None = None) -> Iterator[Applied]:
    """Facts that may hold for this drafter on this build; those known not to hold are left out."""
    method = drafter_method(case)
    for fact in facts(code, build.engine):
        fit = build.fit(fact.engine, fact.start, fact.until)
        if fit is Fit.NO or not fact.concerns(method):
            continue
        answer = fact.holds(case)
        if answer is not False:
            yield Applied(fact, fit, answer)


def _engine(file: str, data: dict[str, Any]) -> EngineFacts:
    name = data["engine"]
    entries = tuple(_fact(file, name, entry) for entry in data.get("fact", ()))
    if len({fact.id for fact in entries}) != len(entries):
        raise ValueError(f"{file}: two facts have the same id")
    return EngineFacts(
        name,
        data["title"],
        tuple(data["releases"]),
        data["counts"],
        data["flag"],
        entries,
        tuple(data.get("skips", ())),
    )


def _fact(file: str, engine: str, entry: dict[str, Any]) -> Fact:
    given = dict(entry)
    where = f"{file}: {given.get('id', 'a fact without id')}"
    start, when, methods = given.pop("from", None), tuple(given.pop("when", ())), tuple(given.pop("methods", ()))
    try:
        fact = Fact(engine=engine, start=start, when=when, methods=methods, **given)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None
    if fact.respect not in RESPECTS or fact.effect not in ("different", "refused"):
        raise ValueError(f"{where}: respect={fact.respect!r} or effect={fact.effect!r} is unknown")
    for name in when:
        head, _, argument = name.removeprefix("not ").partition(" ")
        if head not in (WITH_ARGUMENT if argument else TRAITS):
            raise ValueError(f"{where}: {name!r} is no known circumstance")
    return fact
