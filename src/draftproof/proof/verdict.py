"""One verdict per case: faulty, suspicious, inconclusive or healthy; the causes ranked; what to measure next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from draftproof.proof.case import Case
from draftproof.proof.commands import command
from draftproof.proof.comparing import comparisons
from draftproof.proof.findings import HIGH, Finding, Question
from draftproof.proof.quantities import acceptance
from draftproof.proof.rules import PAGES, judge
from draftproof.proof.rules.serving_cache import broken_output
from draftproof.proof.sanity import sane

Kind = Literal["faulty", "suspicious", "inconclusive", "healthy"]
# What is seen, whatever the cause; everything else of warning or error severity names something that can be changed.
SYMPTOMS = frozenset(
    {
        "ACCEPTANCE_EXACT_ZERO",
        "ACCEPTANCE_LOW",
        "ACCEPTANCE_BELOW_REFERENCE",
        "ACCEPTANCE_CLIFF_AT_POSITION",
        "ACCEPTANCE_TAIL_STEEP",
        "ACCEPTANCE_DROPS_WITH_CONTEXT",
        "ACCEPTANCE_DROPS_WITH_CONCURRENCY",
        "ACCEPTANCE_DROPS_ON_CACHE_HIT",
        "ACCEPTANCE_DROPS_OVER_TIME",
        "ACCEPTANCE_DIFFERS_BETWEEN_BUILDS",
        "SPEC_SLOWER_THAN_BASELINE",
        "METRIC_INCONSISTENT",
        "TP_RANK_DIVERGENCE",
    }
)
_OF_THE_WHOLE = {
    "HEALTHY",
    "TOO_FEW_SAMPLES",
    "ACCEPTANCE_LOW",
    "ACCEPTANCE_EXACT_ZERO",
    "ACCEPTANCE_BELOW_REFERENCE",
    "BASELINE_MISSING",
    "K_TOO_LARGE",
    "RATE_MISREAD",
}
_EXPLAINS = {"error": 1.0, "warning": 0.6, "info": 0.1}


@dataclass(frozen=True)
class Cause:
    """``probability``: that this one explains what is seen, as if exactly one of the causes (or none) did;
    ``command``: the remedy to type or the line to change, empty where none is known."""

    finding: Finding
    probability: float
    command: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"probability": round(self.probability, 3), **self.finding.to_dict(), "command": self.command}


@dataclass(frozen=True)
class Verdict:
    """``causes``: the likeliest first, candidates included; ``others``: symptoms and remarks. ``next_probe``: the
    one measurement that would tell most now, empty if nothing is open."""

    kind: Kind
    confidence: float
    causes: tuple[Cause, ...]
    others: tuple[Finding, ...]
    questions: tuple[Question, ...]
    next_probe: str

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (*(cause.finding for cause in self.causes), *self.others)

    @property
    def codes(self) -> frozenset[str]:
        """Codes of medium or high confidence."""
        return frozenset(finding.code for finding in self.findings if finding.counts)

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.kind,
            "confidence": round(self.confidence, 3),
            "causes": [cause.to_dict() for cause in self.causes],
            "other_findings": [finding.to_dict() for finding in self.others],
            "questions": [question.to_dict() for question in self.questions],
            "next_probe": self.next_probe,
        }


def conclude(case: Case, pairs: Sequence[Case] = ()) -> Verdict:
    """Judge a case by all rules and say what follows. ``pairs``: comparisons of probes, each a case of its own; what
    they show beyond the case itself counts as well, except for what a single small group says of the whole."""
    case, _ = sane(case)
    judged = judge(case)
    found = list(judged.findings)
    for pair in pairs:
        found += _new(judge(pair).findings, found)
    counting = [finding for finding in found if finding.counts and finding.code != "HEALTHY"]
    kind = _kind(case, counting)
    kept = tuple(f for f in found if f.code != "HEALTHY" or (kind == "healthy" and case.observations))
    ranked = rank([finding for finding in kept if _is_cause(finding)])
    causes = tuple(replace(cause, command=command(case, cause.finding.code)) for cause in ranked)
    others = tuple(finding for finding in kept if not _is_cause(finding))
    questions = (
        *_relevant(judged.questions, kept),
        *(_unexplained(case) if kind in ("healthy", "inconclusive") else ()),
    )
    probe = _next_probe(kind, causes, others, questions)
    return Verdict(kind, _confidence(kind, kept), causes, others, questions, probe)


def _new(findings: Sequence[Finding], known: Sequence[Finding]) -> list[Finding]:
    """Findings of a comparison that are not there yet; about the sample and its level the main case speaks alone."""
    taken = {finding.code for finding in known if finding.counts}
    return [f for f in findings if f.counts and f.code not in taken and f.code not in _OF_THE_WHOLE]


def _kind(case: Case, counting: list[Finding]) -> Kind:
    severities = {finding.severity for finding in counting}
    if "error" in severities:
        return "faulty"
    if "warning" in severities:
        return "suspicious"
    codes = {finding.code for finding in counting}
    if "TOO_FEW_SAMPLES" in codes or not _answerable(case, codes):
        return "inconclusive"
    return "healthy"


def _answerable(case: Case, codes: set[str]) -> bool:
    first = case.primary
    if first is None:
        drafter = case.drafter
        return not (drafter.config is None and drafter.tensors is None and drafter.files is None)
    if first.metrics.get("speed_reported") == "poor" and "BASELINE_MISSING" in codes:
        return False
    # A run that broke for a reason no rule knows is not healthy, however well it drafted.
    return acceptance(case).known and not broken_output(first)


def _is_cause(finding: Finding) -> bool:
    return finding.severity != "info" and finding.code not in SYMPTOMS


def rank(findings: list[Finding]) -> tuple[Cause, ...]:
    """Odds of each against those of the others and of "none of these", which weighs 1: a single error of confidence
    c keeps the probability c. A warning is a risk that no measurement confirms, so being sure of the risk is not
    being sure that it explains what is seen."""
    explains = [f.confidence * _EXPLAINS[f.severity] for f in findings]
    odds = [chance / max(1.0 - chance, 0.01) for chance in explains]
    total = 1.0 + sum(odds)
    causes = [Cause(finding, weight / total) for finding, weight in zip(findings, odds, strict=True)]
    return tuple(sorted(causes, key=lambda cause: (not cause.finding.counts, -cause.probability, cause.finding.code)))


def _confidence(kind: Kind, findings: tuple[Finding, ...]) -> float:
    """That of the strongest finding; a healthy verdict has that of the acceptance estimate."""
    severity = {"faulty": "error", "suspicious": "warning"}.get(kind)
    if severity is not None:
        return max(f.confidence for f in findings if f.severity == severity and f.counts)
    named = {"healthy": ("HEALTHY",), "inconclusive": ("TOO_FEW_SAMPLES", "BASELINE_MISSING")}[kind]
    return max((f.confidence for f in findings if f.code in named), default=HIGH)


def _unexplained(case: Case) -> Iterator[Question]:
    """Another observation accepts clearly more and no rule says why: what else sets the two apart?"""
    for one in comparisons(case):
        plain = one.other.conditions.get("drafter") is False or one.other.conditions.get("phase") == "training"
        if one.ratio is not None and one.ratio <= 0.85 and not plain and not one.axes & {"workload", "method"}:
            label = one.other.label or f"observation {one.index}"
            known = f"known: {', '.join(sorted(one.axes))}" if one.axes else "nothing in the record does"
            yield Question(
                f"what sets the state apart from {label!r}, which accepts more ({known})", "conditions in --case"
            )


def _relevant(questions: tuple[Question, ...], kept: tuple[Finding, ...]) -> tuple[Question, ...]:
    """Questions that could still change something: of codes not yet found, those of found candidates first."""
    settled = {finding.code for finding in kept if finding.level == "high"}
    candidates = {finding.code for finding in kept if not finding.counts}
    left = [q for q in questions if not q.codes or not set(q.codes) <= settled]
    return tuple(sorted(left, key=lambda q: not candidates & set(q.codes)))


def _next_probe(
    kind: Kind, causes: tuple[Cause, ...], others: tuple[Finding, ...], questions: tuple[Question, ...]
) -> str:
    """The probe of the likeliest cause that is not certain; with a certain one and rivals, that of the next rival;
    without causes that of the strongest symptom, else the first open question."""
    open_causes = [cause for cause in causes if cause.finding.level != "high"]
    if open_causes:
        return _tell(open_causes[0].finding, [c.finding.code for c in causes if c is not open_causes[0]])
    if causes:
        return _tell(causes[0].finding, []) if kind != "healthy" else ""
    symptoms = [finding for finding in others if finding.code in SYMPTOMS and finding.counts]
    if symptoms:
        return _tell(symptoms[0], [])
    if kind == "inconclusive":
        for code in ("TOO_FEW_SAMPLES", "BASELINE_MISSING"):
            if found := next((finding for finding in others if finding.code == code), None):
                return found.remedy
        if questions:
            return f"{questions[0].fact}: {questions[0].how}"
    return ""


def _tell(finding: Finding, rivals: list[str]) -> str:
    against = f" (tells {finding.code} from {', '.join(rivals[:2])})" if rivals else ""
    return (finding.probe or PAGES[finding.code].probe) + against
