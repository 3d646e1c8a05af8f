"""Which single fault of the laboratory, or which pair, makes the reference draft what the engine drafted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from draftproof.drafters.dflash import DFlashDrafter
from draftproof.proof.capture.reading import RequestTrace
from draftproof.proof.capture.replay.reference import Agreement, agreement, shortened
from draftproof.proof.capture.replay.truth import Truth
from draftproof.proof.lab.faults import BY_NAME, FAULTS, Fault
from draftproof.proof.lab.wiring import Wiring

TAP_FAULTS = frozenset({"taps-one-early", "taps-one-late", "taps-reordered", "last-tap-post-norm"})
ORDER_OF_REQUESTS = frozenset({"state-leaks"})  # depends on what ran before, which a capture need not hold
SAMPLE = 400  # drafted tokens that candidates are tried on before all are
BEST = 6  # single faults that are tried in pairs
LAST = ("window-ignored", "window-off-by-one")  # what they take away, others of a pair must have changed before
Report = Callable[[str], None]


@dataclass(frozen=True)
class Candidate:
    """One or more faults at once, and how far the reference then agrees."""

    faults: tuple[str, ...]
    agreement: Agreement

    def to_dict(self) -> dict[str, Any]:
        return {"faults": list(self.faults), **self.agreement.to_dict()}


@dataclass
class Search:
    """``healthy``: agreement without any fault. ``restoring``: what brings full agreement, fewest faults first."""

    healthy: Agreement
    restoring: list[Candidate] = field(default_factory=list)
    tried: list[Candidate] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {
            "healthy": self.healthy.to_dict(),
            "restoring": [c.to_dict() for c in self.restoring],
            "nearest": [c.to_dict() for c in sorted(self.tried, key=lambda c: -c.agreement.share)[:5]],
            "tried": len(self.tried),
        }


def search(
    truth: Truth,
    requests: Sequence[RequestTrace],
    suspected: Sequence[str] = (),
    wrong_mask: int | None = None,
    report: Report = lambda line: None,
) -> Search:
    """``suspected``: faults that earlier steps have direct evidence of; tried together first. ``wrong_mask``: the
    token that was seen in the mask's place."""
    found = Search(agreement(truth.healthy, truth, requests))
    if found.healthy.full or not requests:
        return found
    sample = shortened(requests, SAMPLE)
    whole = sum(len(s.drafts) for r in sample for s in r.steps) == found.healthy.tokens

    def attempt(names: tuple[str, ...]) -> Candidate:
        wiring = wired(truth, names, wrong_mask)
        tried = Candidate(names, agreement(wiring, truth, sample))
        if tried.agreement.full:
            total = tried.agreement if whole else agreement(wiring, truth, requests)
            tried = Candidate(names, total)
            if total.full:
                found.restoring.append(tried)
        found.tried.append(tried)
        report(f"{' + '.join(names)}: {tried.agreement}")
        return tried

    known = tuple(name for name in dict.fromkeys(suspected) if fits(name, truth))
    if len(known) > 1:
        attempt(_ordered(known))
    singles = [attempt((fault.name,)) for fault in candidates(truth)]
    if not found.restoring:
        base = agreement(truth.healthy, truth, sample)
        best = sorted(singles, key=lambda c: -c.agreement.share)[:BEST]
        names = [c.faults[0] for c in best if c.agreement.share > base.share or c.faults[0] in known]
        for pair in _pairs([*known, *names]):
            attempt(pair)
    found.restoring.sort(key=lambda c: len(c.faults))
    return found


def candidates(truth: Truth) -> list[Fault]:
    """Faults of the drafter's side that can show on this drafter with the taps as they were given."""
    return [fault for fault in FAULTS if fits(fault.name, truth)]


def fits(name: str, truth: Truth) -> bool:
    fault = BY_NAME.get(name)
    return (
        fault is not None
        and fault.change is not None
        and name not in TAP_FAULTS | ORDER_OF_REQUESTS
        and fault.unfit(truth.healthy.spec) is None
    )


def wired(truth: Truth, names: Iterable[str], wrong_mask: int | None = None) -> Wiring:
    """The healthy parts with these faults, one after the other."""
    wiring = truth.healthy
    for name in names:
        change = BY_NAME[name].change
        assert change is not None
        wiring = change(wiring, truth.target)
        if name == "mask-token-wrong" and wrong_mask is not None:
            wiring = wiring.with_spec(mask_token_id=wrong_mask)
    return wiring


def _ordered(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: name in LAST))


def _pairs(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Pairs of which at most one brings a drafter class of its own."""
    unique = list(dict.fromkeys(names))
    return [_ordered(pair) for pair in combinations(unique, 2) if sum(map(_own_class, pair)) <= 1]


def _own_class(name: str) -> bool:
    """Does the fault replace the class that runs the parts?"""
    probe = _Probe()
    change = BY_NAME[name].change
    assert change is not None
    try:
        change(probe, None)  # type: ignore[arg-type]
    except Exception:
        return False
    return probe.made


class _Probe:
    """Stands for a wiring and notices ``made_by``."""

    made = False

    def made_by(self, make: type[DFlashDrafter]) -> _Probe:
        self.made = True
        return self
