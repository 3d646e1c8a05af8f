"""Where rules register: the decorator carries the code's page, so code, documentation and ``--explain`` are one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from draftproof.proof.case import Case
from draftproof.proof.findings import Area, Evidence, Finding, Page, Question
from draftproof.proof.sanity import sane

Said = Iterator[Finding | Question]
# ``earlier``: codes already found with medium or high confidence; rules about causes of a symptom come after it.
Rule = Callable[[Case, frozenset[str]], Said]

PAGES: dict[str, Page] = {}
_RULES: dict[str, tuple[int, Rule]] = {}


@dataclass(frozen=True)
class Judged:
    """Findings in order of severity, then confidence; questions without repetition."""

    findings: tuple[Finding, ...]
    questions: tuple[Question, ...]

    @property
    def codes(self) -> frozenset[str]:
        return frozenset(f.code for f in self.findings if f.counts)


def rule(
    code: str,
    area: Area,
    severity: str,
    *,
    meaning: str,
    derived: str,
    remedy: str,
    probe: str,
    sources: Iterable[str] = (),
    stage: int = 1,
) -> Callable[[Rule], Rule]:
    """Register the function as the rule of ``code``. ``stage`` orders them: 0 what the numbers are worth, 1 facts and
    symptoms, 2 causes that rest on other findings, 3 judgements over all of those."""

    def register(function: Rule) -> Rule:
        if code in PAGES:
            raise ValueError(f"{code} has a rule already")
        PAGES[code] = Page(code, area, severity, meaning, derived, remedy, probe, tuple(sources))
        _RULES[code] = (stage, function)
        return function

    return register


def judge(case: Case, *, areas: Iterable[Area] | None = None) -> Judged:
    """What the rules say about a case, impossible measurements left out. ``areas`` limits them (None: all)."""
    case, _ = sane(case)
    wanted = None if areas is None else set(areas)
    findings: list[Finding] = []
    questions: dict[tuple[str, str], Question] = {}
    for stage in sorted({stage for stage, _ in _RULES.values()}):
        earlier = frozenset(f.code for f in findings if f.counts)
        for code, (its, function) in _RULES.items():
            if its != stage or (wanted is not None and PAGES[code].area not in wanted):
                continue
            for said in function(case, earlier):
                if isinstance(said, Question):
                    known = questions.get((said.fact, said.how))
                    codes = tuple(dict.fromkeys([*(known.codes if known else ()), *said.codes, code]))
                    questions[said.fact, said.how] = Question(said.fact, said.how, codes)
                else:
                    findings.append(_completed(said))
    if wanted is None:
        findings = _with_proof(case, findings)
    order = {"error": 0, "warning": 1, "info": 2}
    findings.sort(key=lambda f: (not f.counts, order[f.severity], -f.confidence, f.code))
    return Judged(tuple(findings), tuple(questions.values()))


def _with_proof(case: Case, findings: list[Finding]) -> list[Finding]:
    """What a replay of the running engine has proven stands above what rules conclude of the same code."""
    shown = captured(case)
    codes = {finding.code for finding in shown} | cleared(case)
    return [*shown, *(finding for finding in findings if finding.code not in codes)]


def cleared(case: Case) -> set[str]:
    """Defects of the engine that a certain, healthy replay has seen not to be there."""
    document = case.engine.options.get("capture")
    if not isinstance(document, dict) or (document.get("verdict"), document.get("certainty")) != ("healthy", "certain"):
        return set()
    from draftproof.proof.capture.verdict import CODES, OF_CACHED_REQUESTS

    return {code for name, code in CODES.items() if name not in OF_CACHED_REQUESTS and PAGES[code].area == "ENGINE"}


def captured(case: Case) -> list[Finding]:
    """The findings of a replay, where the case has one (``draftproof.replay/1`` under ``engine.options.capture``)."""
    document = case.engine.options.get("capture")
    if not isinstance(document, dict):
        return []
    found = []
    for one in document.get("findings", ()):
        if one.get("code") in PAGES:
            evidence = tuple(Evidence(str(e["what"]), str(e["where"])) for e in one.get("evidence", ()))
            sure, remedy, probe = float(one["confidence"]), str(one["remedy"]), str(one["probe"])
            found.append(Finding(one["code"], one["severity"], sure, str(one["says"]), evidence, remedy, probe))
    return found


def _completed(finding: Finding) -> Finding:
    """Remedy and probe of the code's page where the rule has nothing better for this case."""
    page = PAGES[finding.code]
    if finding.remedy and finding.probe:
        return finding
    return Finding(
        finding.code,
        finding.severity,
        finding.confidence,
        finding.says,
        finding.evidence,
        finding.remedy or page.remedy,
        finding.probe or page.probe,
    )
