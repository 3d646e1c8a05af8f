"""How each release of an engine would run a drafter: honoured, silently different, refused, or not to be told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from draftproof.drafters.formats import read_spec
from draftproof.errors import SpecError
from draftproof.proof.case import Case, Engine
from draftproof.proof.engines import RESPECTS, Applied, EngineFacts, applied, engines
from draftproof.proof.traits import answer
from draftproof.proof.versions import Build, Fit, build_of_engine, engine_name, parse_version

State = Literal["honoured", "different", "minor", "refused", "unknown"]
_WORST: tuple[State, ...] = ("honoured", "unknown", "minor", "different", "refused")
_SURE = 0.6
WORDS: dict[State, str] = {
    "honoured": "honoured",
    "minor": "honoured, at a cost",
    "different": "silently different",
    "refused": "refused",
    "unknown": "cannot tell",
}
# Circumstances that files alone may not tell.
UNKNOWN_WORDS = {
    "runner_v1": "on the V1 runner",
    "runner_v2": "on the V2 runner",
    "sampled": "above temperature 0",
    "drafts_greedily": "draft_sample_method is not set",
    "p_min_unset": "the flag is not given",
    "vocab_differs": "the target's vocabulary is padded otherwise",
    "wrapper_target": "the target is a multimodal wrapper",
    "no_own_head": "the checkpoint has no head of its own",
    "mask_sidecar": "the checkpoint has mask_embedding.pt",
    "gemma_target": "the target is a Gemma model",
    "lacks vllm#41703": "the build lacks that change",
}


@dataclass(frozen=True)
class Cell:
    """One respect in which a release does something else than the files ask. ``when``: it may, or it does."""

    respect: str
    state: State
    says: str
    remedy: str
    source: str
    probe: str
    fact: str
    code: str
    sure: bool

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Row:
    """A release, or several next to each other for which the same holds."""

    engine: str
    title: str
    first: str
    last: str
    state: State
    cells: tuple[Cell, ...]
    note: str = ""

    @property
    def versions(self) -> str:
        sign = "b" if self.engine == "llama.cpp" else ""
        return f"{sign}{self.first}" if self.first == self.last else f"{sign}{self.first} – {sign}{self.last}"

    def to_dict(self) -> dict[str, Any]:
        cells = [cell.to_dict() for cell in self.cells]
        return {
            "engine": self.engine,
            "first": self.first,
            "last": self.last,
            "state": self.state,
            "note": self.note,
            "cells": cells,
        }


def rows(case: Case, wanted: Iterable[tuple[str, str | None]]) -> list[Row]:
    """One row for each (engine, version); all releases of an engine, those that agree joined, where no version is
    given."""
    found: list[Row] = []
    for name, version in wanted:
        known = engines()[name]
        if version is not None:
            found.append(_row(case, known, version))
        else:
            found += _joined(_row(case, known, release) for release in known.releases)
    return found


def _row(case: Case, known: EngineFacts, version: str) -> Row:
    options = case.engine.options if engine_name(case.engine.name) == known.name else {}
    env = case.engine.env if engine_name(case.engine.name) == known.name else {}
    sign = "b" if known.name == "llama.cpp" and not version.startswith("b") else ""
    engine = Engine(known.name, sign + version, {k: v for k, v in options.items() if k != "build"}, None, env)
    build = build_of_engine(engine)
    note = beyond(known, build)
    if build.low is None:
        return Row(
            known.name, known.title, version, version, "unknown", (), f"{version!r} is no version of its releases"
        )
    facts = [one for one in applied(replace(case, engine=engine), build) if one.fit is not Fit.NO]
    there = replace(case, engine=engine)
    cells = sorted(
        (_cell(there, one) for one in facts), key=lambda c: (RESPECTS.index(c.respect), -_WORST.index(c.state))
    )
    if any(c.state == "refused" and c.respect == "support" for c in cells):
        cells = [c for c in cells if c.state == "refused"]  # what it would do with what it does not load is idle
    boundary = [c.state for c in cells if c.fact in _unsure_boundaries(facts)]
    state: State = max((*(c.state for c in cells if c.sure), *boundary), key=_WORST.index, default="honoured")
    if note and state in ("honoured", "minor"):
        state = "unknown"
    if known.name == "draftproof":
        cells = [*cells, *_own(case)]
        state = "refused" if any(c.state == "refused" for c in cells) else state
    plain = version.removeprefix("b") if known.name == "llama.cpp" else version
    return Row(known.name, known.title, plain, plain, state, tuple(cells), note)


def _own(case: Case) -> Iterator[Cell]:
    """This project's engine is asked itself: its own reader refuses what it cannot run."""
    try:
        sentences = read_spec(case.drafter.config or {}).unsupported()
    except SpecError as error:
        sentences = [str(error)]
    for sentence in sentences:
        yield Cell("support", "refused", sentence, "", "drafters/formats", "draftproof generate", "own", "", True)


def _unsure_boundaries(facts: Iterable[Applied]) -> set[str]:
    """Facts that would hold if only it were known in which release they begin or end."""
    return {one.fact.id for one in facts if one.holds is True and (one.fact.cap < _SURE or one.fit is Fit.MAYBE)}


def _cell(case: Case, one: Applied) -> Cell:
    fact = one.fact
    sure = one.holds is True and fact.cap >= _SURE and one.fit is not Fit.MAYBE
    state: State = "unknown" if not sure else "refused" if fact.effect == "refused" else "different"
    if fact.minor and sure:
        state = "minor"
    says = fact.says if sure else f"{fact.says} ({_condition(case, one)})"
    return Cell(fact.respect, state, says, fact.remedy, fact.source, fact.probe, fact.id, fact.code, sure)


def _condition(case: Case, one: Applied) -> str:
    """What is not known about this drafter or set-up, in words."""
    if one.holds is None:
        open_ones = [name for name in one.fact.when if answer(case, name) is None]
        known = [UNKNOWN_WORDS[name] for name in open_ones if name in UNKNOWN_WORDS]
        return "if " + " and ".join(known) if known else "if the rest of the file is as it seems"
    return "the boundary is not known exactly"


def beyond(known: EngineFacts, build: Build) -> str:
    """A remark on releases that nobody has read yet."""
    newest = parse_version(known.name, known.releases[-1])
    if newest is not None and build.low is not None and build.low > newest[1]:
        sign = "b" if known.name == "llama.cpp" else ""
        return f"newer than what was read (up to {sign}{known.releases[-1]})"
    return (
        "" if build.plain else f"not a plain release ({build.why_not_plain}): probe the source with draftproof doctor"
    )


def _joined(found: Iterator[Row]) -> list[Row]:
    joined: list[Row] = []
    for row in found:
        before = joined[-1] if joined else None
        if before is not None and (before.state, before.cells, before.note) == (row.state, row.cells, row.note):
            joined[-1] = replace(before, last=row.last)
        else:
            joined.append(row)
    return joined
