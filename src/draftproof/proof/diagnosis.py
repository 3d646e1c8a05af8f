"""Everything that ``diagnose`` says about a case, as one document: verdict, figures, what is published, break-even."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.proof.break_even import BreakEven, break_even
from draftproof.proof.case import Case
from draftproof.proof.comparing import fact
from draftproof.proof.fingerprints import Fingerprints
from draftproof.proof.likeness import Match
from draftproof.proof.meanings import Figure, figures
from draftproof.proof.published import Published, of_drafter, plain_name
from draftproof.proof.quantities import Acceptance, acceptance
from draftproof.proof.resemblance import curves, resembles
from draftproof.proof.sanity import sane
from draftproof.proof.verdict import Verdict, conclude

SCHEMA = "draftproof.diagnose/1"


@dataclass(frozen=True)
class Expected:
    """A published measurement of the same drafter and how far this pair is from it. ``ratio``: accepted tokens per
    draft here, relative to the published ones. ``unlike``: what differs, or is not known, between the two."""

    row: Published
    ratio: float | None
    unlike: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        row = {name: value for name, value in vars(self.row).items() if value not in (None, ())}
        return {"published": row, "ratio": self.ratio, "unlike": list(self.unlike)}


@dataclass(frozen=True)
class Report:
    case: Case
    verdict: Verdict
    acceptance: Acceptance
    figures: dict[str, Figure]
    expected: tuple[Expected, ...]
    break_even: BreakEven | None
    notes: tuple[str, ...] = ()
    resembles: tuple[Match, ...] = ()
    likely: tuple[tuple[str, tuple[float, ...]], ...] = ()  # name → rates, of the healthy pair and the first matches

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA,
            **self.verdict.to_dict(),
            "acceptance": {name: figure.to_dict() for name, figure in self.figures.items()},
            "low_line": self.acceptance.line,
            "expected": [one.to_dict() for one in self.expected],
            "break_even": self.break_even.to_dict() if self.break_even is not None else None,
            "resembles": [vars(match) for match in self.resembles],
            "notes": list(self.notes),
        }


def report(
    case: Case,
    notes: tuple[str, ...] = (),
    pairs: Sequence[Case] = (),
    fingerprints: Fingerprints | None = None,
    condition: str | None = None,
) -> Report:
    """``pairs``: comparisons that probes made, judged beside the case; ``condition``: the one of ``fingerprints``
    that the counts are from, None: as the observation says."""
    case, impossible = sane(case)
    it, notes = acceptance(case), (*notes, *impossible)
    alike = () if fingerprints is None else resembles(case, fingerprints, condition, pairs)
    likely = () if fingerprints is None else curves(case, fingerprints, condition, alike)
    verdict = conclude(case, pairs)
    return Report(case, verdict, it, figures(it), expected(case, it), break_even(case), notes, alike, likely)


def expected(case: Case, it: Acceptance, most: int = 3) -> tuple[Expected, ...]:
    """The published rows of this drafter, those nearest in their conditions first."""
    found = [Expected(row, _ratio(it, row), _unlike(case, row)) for row in of_drafter(case.drafter.name)]
    return tuple(sorted(found, key=lambda one: len(one.unlike))[:most])


def _ratio(it: Acceptance, row: Published) -> float | None:
    """On the positions that both have, where the published curve is known; else on the lengths as they are."""
    if it.length is None or (not it.k_sure and it.rate is not None):
        return None
    if row.curve and it.curve:
        shared = min(len(row.curve), len(it.curve))
        return sum(it.curve[:shared]) / sum(row.curve[:shared])
    return (it.length - 1) / (row.length - 1)


def _unlike(case: Case, row: Published) -> tuple[str, ...]:
    pairs = {
        "dataset": (fact(case, "dataset"), row.dataset),
        "temperature": (fact(case, "temperature"), row.temperature),
        "thinking": (fact(case, "thinking"), row.thinking),
        "k": (case.k, row.k),
        "revision": (case.drafter.revision, row.revision),
    }
    return tuple(name for name, (mine, its) in pairs.items() if its is not None and not _same(mine, its))


def _same(mine: object, its: object) -> bool:
    if isinstance(mine, str) and isinstance(its, str):
        return plain_name(mine) == plain_name(its)
    return mine == its
