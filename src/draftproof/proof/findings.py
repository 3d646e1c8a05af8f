"""What a rule says: findings, and the questions it would need answered first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from draftproof.errors import DraftproofError

Severity = Literal["info", "warning", "error"]
Area = Literal["FILES", "INSTALL", "ENGINE", "LAUNCH", "RUNTIME", "WORKLOAD", "METRICS", "COST", "SERVING", "TRAINING"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
HIGH, MEDIUM = 0.9, 0.6  # lower bounds; below MEDIUM a finding is a candidate and accuses nobody


@dataclass(frozen=True)
class Evidence:
    """One fact that a finding rests on. ``where``: file, line, counter or key that can be looked up again."""

    what: str
    where: str


@dataclass(frozen=True)
class Page:
    """The page of a code: what ``--explain`` prints and docs/findings.md is made of. ``severity`` may name the
    condition under which it rises; ``derived``: the facts that prove it; ``sources``: public threads and files."""

    code: str
    area: Area
    severity: str
    meaning: str
    derived: str
    remedy: str
    probe: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """``says``: one sentence with the values found. ``confidence`` 0 … 1: HIGH when every condition is a fact of the
    case, MEDIUM when one is inferred, less for a candidate. ``remedy``: a command or a line to change, for this
    case; ``probe``: the one measurement that would settle it."""

    code: str
    severity: Severity
    confidence: float
    says: str
    evidence: tuple[Evidence, ...] = ()
    remedy: str = ""
    probe: str = ""

    def __post_init__(self) -> None:
        if not 0.0 <= self.confidence <= 1.0:
            raise ValueError(f"{self.code}: confidence={self.confidence!r} lies outside 0 … 1")

    @property
    def level(self) -> Literal["high", "medium", "low"]:
        return "high" if self.confidence >= HIGH else "medium" if self.confidence >= MEDIUM else "low"

    @property
    def counts(self) -> bool:
        """Does it take part in the verdict? Candidates do not."""
        return self.confidence >= MEDIUM

    def to_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": self.severity,
            "confidence": round(self.confidence, 3),
            "level": self.level,
            "says": self.says,
            "evidence": [{"what": e.what, "where": e.where} for e in self.evidence],
            "remedy": self.remedy,
            "probe": self.probe,
        }


@dataclass(frozen=True)
class Question:
    """A fact that rules of ``codes`` lack; ``how``: the flag or command that would bring it."""

    fact: str
    how: str
    codes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        return {"fact": self.fact, "how": self.how, "codes": list(self.codes)}


class CaseError(DraftproofError):
    """A case file that is none: names the place, the value and what is allowed."""
