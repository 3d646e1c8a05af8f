"""What a replay has proven, in the words of findings; needs no torch, so that diagnose can use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from draftproof.proof.findings import Evidence, Finding
from draftproof.proof.rules import PAGES

if TYPE_CHECKING:
    from draftproof.proof.capture.manifest import Manifest
    from draftproof.proof.capture.replay.reference import Agreement
    from draftproof.proof.capture.replay.search import Candidate
    from draftproof.proof.capture.replay.stages import Stage

SCHEMA = "draftproof.replay/1"
Kind = Literal["faulty", "healthy", "inconclusive"]
Certainty = Literal["certain", "probable", "open"]
CONFIDENCE = {"certain": 0.99, "probable": 0.75, "open": 0.4}
# The laboratory's names → finding codes, for those a replay can name. A test compares this with the laboratory.
CODES = {
    "taps-one-early": "AUX_LAYER_OFFSET",
    "taps-one-late": "AUX_LAYER_OFFSET",
    "taps-reordered": "DRAFT_PATH_DEFECT",
    "last-tap-post-norm": "DRAFT_PATH_DEFECT",
    "window-ignored": "ENGINE_SWA_IGNORED",
    "window-off-by-one": "ENGINE_SWA_IGNORED",
    "causality-flipped-sliding": "ENGINE_CAUSALITY_MISMATCH",
    "causality-flipped-full": "ENGINE_CAUSALITY_MISMATCH",
    "anchor-masked": "DRAFT_PATH_DEFECT",
    "mask-token-wrong": "MASK_TOKEN_INVALID",
    "mask-row-zero": "MASK_EMBEDDING_NOT_LOADED",
    "positions-shifted": "DRAFT_PATH_DEFECT",
    "rope-base-wrong": "ROPE_MISMATCH",
    "rope-partial": "ROPE_MISMATCH",
    "hidden-norm-skipped": "DRAFT_PATH_DEFECT",
    "context-normed-twice": "DRAFT_PATH_DEFECT",
    "context-k-norm-first": "DRAFT_PATH_DEFECT",
    "embedding-scaled": "GEMMA_SCALING_MISSING",
    "head-random": "LM_HEAD_NOT_SHARED",
    "head-overwritten": "LM_HEAD_OVERWRITTEN",
    "vocabulary-unmapped": "D2T_MISSING",
    "cached-context-lost": "PREFIX_CACHE_DRAFT_KV",
    "last-block-lost": "PREFIX_CACHE_DRAFT_KV",
    "stale-rows": "DRAFT_PATH_DEFECT",
    "state-leaks": "STATE_LEAK_BETWEEN_REQUESTS",
    "half-precision": "DRAFT_FP16_OVERFLOW",
    "quantised-badly": "QUANTIZED_DRAFTER_UNSUPPORTED",
}
# A capture without a prefix-cache hit, or of one request alone, says nothing of these.
OF_CACHED_REQUESTS = frozenset({"cached-context-lost", "last-block-lost", "state-leaks"})


@dataclass(frozen=True)
class Proven:
    """``faults``: what is wrong, in the order of the walk. ``rivals``: other sets of faults that explain the drafts
    as well. ``certainty`` is "certain" when the faults are seen directly or alone bring the drafts back."""

    kind: Kind
    certainty: Certainty
    faults: tuple[str, ...]
    rivals: tuple[tuple[str, ...], ...]
    says: str
    evidence: tuple[Evidence, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(code_of(name) for name in self.faults))

    def findings(self) -> list[Finding]:
        """One error per code; remedy, probe and sources are those of its page."""
        found = []
        for code in self.codes:
            names = [name for name in self.faults if code_of(name) == code]
            page = PAGES[code]
            says = f"Proven by replay ({', '.join(map(plain, names))}): {self.says}"
            found.append(
                Finding(code, "error", CONFIDENCE[self.certainty], says, self.evidence, page.remedy, page.probe)
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.kind,
            "certainty": self.certainty,
            "faults": list(self.faults),
            "rivals": [list(names) for names in self.rivals],
            "says": self.says,
            "findings": [finding.to_dict() for finding in self.findings()],
            "sources": {code: list(PAGES[code].sources) for code in self.codes},
        }


def code_of(fault: str) -> str:
    return fault.removeprefix("other:") if fault.startswith("other:") else CODES[fault]


def plain(fault: str) -> str:
    return "of another kind" if fault.startswith("other:") else fault


def proven(
    stages: Sequence[Stage], restoring: Sequence[Candidate], healthy: Agreement | None, manifest: Manifest
) -> Proven:
    """From what the steps say. Steps before the drafts are direct evidence; what the drafts need besides is added."""
    direct = [name for stage in stages if stage.name != "drafts" and stage.status == "wrong" for name in stage.faults]
    evidence = tuple(
        Evidence(stage.says, f"{manifest.path.name}: {stage.name}") for stage in stages if stage.status == "wrong"
    )
    if healthy is not None and not healthy.full and restoring:
        best = restoring[0].faults
        rivals = tuple(c.faults for c in restoring[1:] if len(c.faults) == len(best))
        if not rivals or set(best) <= set(direct):
            return _faulty(stages, (*_taps(direct), *best), (), "certain", evidence)
        return _faulty(stages, (*_taps(direct), *best), rivals, "probable", evidence)
    if direct:
        unexplained = healthy is not None and not healthy.full and not _hides(direct)
        return _faulty(stages, tuple(direct), (), "probable" if unexplained else "certain", evidence)
    if healthy is not None and not healthy.full:
        says = f"The engine's drafts are not the reference's ({healthy}), and no fault that is known explains them."
        return Proven("faulty", "open", ("other:DRAFT_PATH_DEFECT",), (), says, evidence)
    if healthy is None or all(stage.status == "unknown" for stage in stages[:4]):
        return Proven("inconclusive", "open", (), (), "The capture does not hold what a verdict needs.")
    open_ones = [stage.name for stage in stages if stage.status == "unknown"]
    doubt = f"; not checked: {', '.join(open_ones)}" if open_ones else ""
    says = f"{manifest.engine_name} runs this drafter as its files say: "
    says += f"{healthy} drafted tokens are the reference's{doubt}."
    return Proven("healthy", "probable" if open_ones else "certain", (), (), says)


def _taps(direct: Sequence[str]) -> tuple[str, ...]:
    """The replay runs on the taps as given, so what is wrong with them comes on top of what restores the drafts."""
    return tuple(
        name for name in direct if name.startswith("tap") or name in ("last-tap-post-norm", "other:AUX_LAYER_OFFSET")
    )


def _hides(direct: Sequence[str]) -> bool:
    """Values that a hash cannot bring back explain drafts that cannot be repeated."""
    return any(name.startswith("other:") or name == "head-random" for name in direct)


def _faulty(
    stages: Sequence[Stage],
    faults: tuple[str, ...],
    rivals: tuple[tuple[str, ...], ...],
    certainty: Certainty,
    evidence: tuple[Evidence, ...],
) -> Proven:
    first = next(stage for stage in stages if stage.status == "wrong")
    return Proven("faulty", certainty, tuple(dict.fromkeys(faults)), rivals, first.says, evidence)
