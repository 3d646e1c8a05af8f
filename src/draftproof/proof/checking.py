"""``draftproof check``: files, engine and launch line of one deployment, gathered into a case and judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from draftproof.errors import DraftproofError, SpecError, UsageError
from draftproof.proof.card import Card, card
from draftproof.proof.case import Case, Engine
from draftproof.proof.engines import engines
from draftproof.proof.engines.matrix import Row, rows
from draftproof.proof.files.drafter import Found, read_drafter
from draftproof.proof.files.sizes import must_be_sizes
from draftproof.proof.files.target import FoundTarget, read_target
from draftproof.proof.findings import Area
from draftproof.proof.fit import FitRow, fit
from draftproof.proof.launch import Parsed, parse
from draftproof.proof.launch.correct import corrected, starts_no_drafter
from draftproof.proof.launch.line import Problem
from draftproof.proof.layouts import drafter_method, layout_of
from draftproof.proof.rules import Judged, judge
from draftproof.proof.rules.launch_line import PROBLEMS
from draftproof.proof.versions import engine_name

AREAS: tuple[Area, ...] = ("FILES", "ENGINE", "LAUNCH")
ALL = "all"
# The engine a bare ``--engine NAME`` and no launch line is about: its whole history, no one version to blame.
EngineAsked = tuple[str, str | None]


@dataclass(frozen=True)
class Checked:
    case: Case
    judged: Judged
    card: Card
    fit: tuple[FitRow, ...] = ()
    matrix: tuple[Row, ...] = ()
    corrected: str | None = None
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def faults(self) -> int:
        return sum(f.counts and f.severity == "error" for f in self.judged.findings)

    @property
    def risks(self) -> int:
        return sum(f.counts and f.severity == "warning" for f in self.judged.findings)

    @property
    def cannot_tell(self) -> list[str]:
        """Why the question that was asked has no answer, where nothing was found either."""
        asked = [row for row in self.matrix if row.first == row.last]
        blank = [f"{row.title} {row.versions}: {row.note}" for row in asked if row.state == "unknown" and row.note]
        return [*self.unread, *blank]


def parse_engine(text: str) -> list[EngineAsked]:
    """ "vllm==0.20.1" → one release; "vllm" → all of its releases; "all" → all engines."""
    if text.strip().lower() == ALL:
        return [(name, None) for name in engines()]
    name, equals, version = text.partition("==")
    known = engine_name(name)
    if known not in engines():
        raise UsageError(f"--engine {text!r}: known are {', '.join(engines())}, each with ==VERSION or alone, and all")
    if equals and not version.strip():
        raise UsageError(f"--engine {text!r}: a version is missing after ==")
    return [(str(known), version.strip() if equals else None)]


def check(
    drafter: str,
    *,
    target: str | None = None,
    engines_asked: Sequence[EngineAsked] = (),
    launch: str | None = None,
    revision: str | None = None,
    target_revision: str | None = None,
) -> Checked:
    """Read, gather, judge. Raises DraftproofErrors (one line each) for what cannot be read at all."""
    found = read_drafter(drafter, revision)
    parsed = parse(launch) if launch is not None else None
    notes = list(found.notes)
    target_found = _target(target, target_revision, parsed, notes)
    case = gather(found, target_found, engines_asked, parsed)
    _must_be_a_drafter(case, drafter)
    must_be_sizes(case)
    judged = judge(case, areas=AREAS)
    mask = layout_of(case).mask
    tokens = target_found.tokenizer.added if target_found is not None and target_found.tokenizer is not None else {}
    return Checked(
        case,
        judged,
        card(case, tokens.get(mask.value) if mask is not None and type(mask.value) is int else None),
        tuple(fit(case, target_found, judged.codes)) if target_found is not None else (),
        tuple(rows(case, _matrix(engines_asked, case))),
        corrected(case, parsed, judged.findings, drafter) if parsed is not None else None,
        tuple(notes),
        parsed.unread if parsed is not None else (),
    )


def _target(name: str | None, revision: str | None, parsed: Parsed | None, notes: list[str]) -> FoundTarget | None:
    """The target asked for; the launch line's own one only if it is at hand."""
    if name is not None:
        found = read_target(name, revision)
        notes += found.notes
        return found
    if parsed is None or parsed.target is None:
        return None
    try:
        found = read_target(parsed.target, cached_only=True)
    except DraftproofError as error:
        notes.append(f"the launch line's target was not read ({error}); give --target to compare with it")
        return None
    notes += found.notes
    return found


def gather(
    found: Found, target: FoundTarget | None, asked: Sequence[EngineAsked], parsed: Parsed | None = None
) -> Case:
    """The facts as a case, each with where it came from."""
    origins = dict(found.origins)
    case = Case(drafter=found.drafter)
    if target is not None:
        case = replace(case, target=target.target)
        origins |= target.origins
    case = replace(case, engine=_engine(asked, parsed), method=drafter_method(case))
    if parsed is not None:
        origins["engine.options"] = origins["engine.launch"] = "launch line"
        origins["num_speculative_tokens"] = "launch line"
        method = "dflash2" if parsed.method == "dflash" and case.method == "dflash2" else parsed.method
        case = replace(case, method=method or case.method, k=parsed.k, workload=dict(parsed.workload))
    if case.engine.version is not None:
        origins["engine.version"] = "--engine" if any(version for _, version in asked) else "launch line"
    return replace(case, origins=origins)


def _engine(asked: Sequence[EngineAsked], parsed: Parsed | None) -> Engine:
    """The engine that is judged: the launch line's, with the version asked for; else the first version asked for."""
    with_version = [(name, version) for name, version in asked if version is not None]
    if parsed is None:
        name, version = with_version[0] if with_version else (None, None)
        if name is None and len(asked) == 1:
            name = asked[0][0]
        return Engine(name, _spelt(name, version))
    name = parsed.command.engine
    versions = [version for other, version in with_version if other == name]
    others = [other for other, _ in asked if other != name]
    if others and not versions and len(asked) == 1:
        raise UsageError(f"--engine {others[0]} and a launch line of {name} contradict each other")
    options: dict[str, Any] = dict(parsed.options)
    problems = list(parsed.problems)
    if starts_no_drafter(parsed) and not parsed.unread and not any(p.severity == "error" for p in problems):
        problems.append(Problem("warning", "the line starts no drafter", "Use the corrected line."))
    if problems:
        options[PROBLEMS] = [problem.to_dict() for problem in problems]
    version = versions[0] if versions else parsed.command.version
    return Engine(name, _spelt(name, version), options, parsed.command.render(), dict(parsed.command.env))


def _spelt(name: str | None, version: str | None) -> str | None:
    if name == "llama.cpp" and version is not None and version.isdecimal():
        return f"b{version}"
    return version


def _matrix(asked: Sequence[EngineAsked], case: Case) -> list[EngineAsked]:
    if asked:
        return list(dict.fromkeys(asked))
    name = engine_name(case.engine.name)
    return [(name, case.engine.version)] if name in engines() else []


def _must_be_a_drafter(case: Case, name: str) -> None:
    layout = layout_of(case)
    config = case.drafter.config or {}
    names = config.get("architectures")
    eagle = isinstance(names, list) and any("eagle" in str(n).lower() or "mtp" in str(n).lower() for n in names[:8])
    if layout.kind != "unknown" or eagle or drafter_method(case) is not None:
        return
    what = f"architectures={names!r}"[:80] if names else f"keys {sorted(map(str, config))[:6]}"[:120]
    raise SpecError(
        f"{name!r} is no drafter ({what}): its config would have dflash_config, target_layer_ids or "
        "speculators_model_type; a target model's does not"
    )
