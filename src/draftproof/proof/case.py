"""A case: all facts about one deployment, in the format ``draftproof.case/1``, with where each came from.

Collectors fill it (from files, an installed engine, logs, counters, probes), rules read it, and it can be saved and
judged again elsewhere. ``id``, ``source``, ``expect``, ``derivable`` and ``note`` are for people: kept on disk,
invisible to rules.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftproof.proof.findings import CaseError, Evidence

SCHEMA = "draftproof.case/1"
FOR_PEOPLE = ("id", "source", "expect", "derivable", "note")
MAX_BYTES = 64 << 20
Facts = Mapping[str, Any]
_NONE: Facts = {}


@dataclass(frozen=True)
class Engine:
    """``version`` as its packager writes it, None if unknown; ``options``: see docs/case.md; ``launch``: verbatim."""

    name: str | None = None
    version: str | None = None
    options: Facts = field(default_factory=dict)
    launch: str | None = None
    env: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class Drafter:
    """``config``: the literal config.json (or GGUF metadata under ``gguf``), None if unknown; ``tensors``: name →
    {"shape", "dtype"}, None if unknown; ``files``: names, None if unknown."""

    name: str | None = None
    revision: str | None = None
    config: Facts | None = None
    tensors: Facts | None = None
    files: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Target:
    name: str | None = None
    config: Facts | None = None


@dataclass(frozen=True)
class Observation:
    """What was measured under ``conditions``; the first of a case is the state that is to be judged."""

    label: str = ""
    conditions: Facts = field(default_factory=dict)
    metrics: Facts = field(default_factory=dict)
    log: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """``k``: drafted tokens per step as configured, None if unknown. ``origins``: dotted path of a fact (as in
    ``drafter.config.layer_types``) → file, line or counter it was read from."""

    engine: Engine = field(default_factory=Engine)
    method: str | None = None
    k: int | None = None
    drafter: Drafter = field(default_factory=Drafter)
    target: Target = field(default_factory=Target)
    workload: Facts = field(default_factory=dict)
    observations: tuple[Observation, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    for_people: Facts = field(default_factory=dict, compare=False)

    @property
    def primary(self) -> Observation | None:
        return self.observations[0] if self.observations else None

    def where(self, path: str) -> str:
        """Where a fact came from: the most precise origin known for the path or what holds it."""
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            origin = self.origins.get(".".join(parts[:end]))
            if origin is not None:
                rest = ".".join(parts[end:])
                return f"{origin}: {rest}" if rest else origin
        return path

    def evidence(self, path: str, what: str) -> Evidence:
        return Evidence(what, self.where(path))

    def to_dict(self) -> dict[str, Any]:
        """As written to disk; reading it back gives an equal case."""
        people = {name: self.for_people[name] for name in FOR_PEOPLE if name in self.for_people}
        return {
            "schema": SCHEMA,
            **{name: people[name] for name in ("id", "source") if name in people},
            "engine": {**vars(self.engine)},
            "method": self.method,
            "num_speculative_tokens": self.k,
            "drafter": {
                **vars(self.drafter),
                "files": None if self.drafter.files is None else list(self.drafter.files),
            },
            "target": {**vars(self.target)},
            "workload": dict(self.workload),
            "observations": [{**vars(o), "log": list(o.log)} for o in self.observations],
            **({"origins": dict(self.origins)} if self.origins else {}),
            **{name: people[name] for name in ("expect", "derivable", "note") if name in people},
        }


def read_case(file: Path) -> Case:
    """A case from a JSON file. Raises CaseError with place and value for anything that is none."""
    try:
        if file.stat().st_size > MAX_BYTES:
            raise CaseError(f"{file}: {file.stat().st_size} bytes; cases are smaller than {MAX_BYTES}")
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise CaseError(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise CaseError(f"{file}: not UTF-8 text at byte {error.start}") from None
    try:
        loaded = json.loads(text)
    except json.JSONDecodeError as error:
        raise CaseError(f"{file}: not JSON ({error.msg} at line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise CaseError(f"{file}: nested too deeply for a case") from None
    return parse_case(loaded, str(file))


def parse_case(given: Any, where: str = "case") -> Case:
    top = _object(given, where)
    if top.get("schema") != SCHEMA:
        raise CaseError(f"{where}: schema={top.get('schema')!r} is not {SCHEMA!r}")
    known = {
        "schema",
        "engine",
        "method",
        "num_speculative_tokens",
        "drafter",
        "target",
        "workload",
        "observations",
        "origins",
        *FOR_PEOPLE,
    }
    _only(top, known, where)
    return Case(
        engine=_engine(top.get("engine"), f"{where}: engine"),
        method=_text(top.get("method"), f"{where}: method"),
        k=_count(top.get("num_speculative_tokens"), f"{where}: num_speculative_tokens"),
        drafter=_drafter(top.get("drafter"), f"{where}: drafter"),
        target=_target(top.get("target"), f"{where}: target"),
        workload=_object(top.get("workload"), f"{where}: workload"),
        observations=tuple(
            _observation(one, f"{where}: observations[{i}]")
            for i, one in enumerate(_list(top.get("observations"), f"{where}: observations"))
        ),
        origins={k: str(v) for k, v in _object(top.get("origins"), f"{where}: origins").items()},
        for_people={name: top[name] for name in FOR_PEOPLE if name in top},
    )


def _engine(given: Any, where: str) -> Engine:
    fields = _only(_object(given, where), {"name", "version", "options", "launch", "env"}, where)
    return Engine(
        name=_text(fields.get("name"), f"{where}.name"),
        version=_text(fields.get("version"), f"{where}.version"),
        options=_object(fields.get("options"), f"{where}.options"),
        launch=_text(fields.get("launch"), f"{where}.launch"),
        env=_object(fields.get("env"), f"{where}.env"),
    )


def _drafter(given: Any, where: str) -> Drafter:
    fields = _only(_object(given, where), {"name", "revision", "config", "tensors", "files"}, where)
    files = fields.get("files")
    return Drafter(
        name=_text(fields.get("name"), f"{where}.name"),
        revision=_text(fields.get("revision"), f"{where}.revision"),
        config=_maybe(fields.get("config"), f"{where}.config"),
        tensors=_maybe(fields.get("tensors"), f"{where}.tensors"),
        files=None if files is None else tuple(map(str, _list(files, f"{where}.files"))),
    )


def _target(given: Any, where: str) -> Target:
    fields = _only(_object(given, where), {"name", "config"}, where)
    return Target(_text(fields.get("name"), f"{where}.name"), _maybe(fields.get("config"), f"{where}.config"))


def _observation(given: Any, where: str) -> Observation:
    fields = _only(_object(given, where), {"label", "conditions", "metrics", "log"}, where)
    metrics = _object(fields.get("metrics"), f"{where}.metrics")
    for name, value in metrics.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise CaseError(f"{where}.metrics.{name}={value} is no measurement")
    return Observation(
        label=_text(fields.get("label"), f"{where}.label") or "",
        conditions=_object(fields.get("conditions"), f"{where}.conditions"),
        metrics=metrics,
        log=tuple(map(str, _list(fields.get("log"), f"{where}.log"))),
    )


def _only(given: Facts, known: set[str], where: str) -> Facts:
    unknown = sorted(set(map(str, given)) - known)
    if unknown:
        raise CaseError(f"{where}: unknown key {unknown[0]!r}; known: {', '.join(sorted(known))}")
    return given


def _object(given: Any, where: str) -> Facts:
    if given is None:
        return _NONE
    if not isinstance(given, Mapping):
        raise CaseError(f"{where}: {_short(given)} must be an object")
    return dict(given)


def _maybe(given: Any, where: str) -> Facts | None:
    return None if given is None else _object(given, where)


def _list(given: Any, where: str) -> list[Any]:
    if given is None:
        return []
    if not isinstance(given, list | tuple):
        raise CaseError(f"{where}: {_short(given)} must be a list")
    return list(given)


def _text(given: Any, where: str) -> str | None:
    if given is not None and not isinstance(given, str):
        raise CaseError(f"{where}: {_short(given)} must be text")
    return given


def _count(given: Any, where: str) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    raise CaseError(f"{where}: {_short(given)} must be a whole number of at least 0")


def _short(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= 60 else text[:57] + "…"
