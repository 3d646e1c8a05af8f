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
            "tried": len(self.tried),
        }


def search(
    truth: Truth,
    requests: Sequence[RequestTrace],
    suspected: Sequence[str] = (),
    wrong_mask: int | None = None,
    report: Report = lambda line: None,
) -> Search:
    """``suspected``: faults that earlier steps have direct evidence of; where they alone restore the drafts, nothing
    else is tried. ``wrong_mask``: the token that was seen in the mask's place."""
    found = Search(agreement(truth.healthy, truth, requests))
    if found.healthy.full or not requests:
        return found
    trial = _Trial(truth, requests, wrong_mask, found, report)
    known = tuple(name for name in dict.fromkeys(suspected) if fits(name, truth))
    if known and trial.restores(_ordered(known)):
        return found
    for fault in candidates(truth):
        if (fault.name,) != known:
            trial.restores((fault.name,))
    if not found.restoring:
        for pair in _pairs([*known, *trial.best(known)]):
            trial.restores(pair)
    found.restoring.sort(key=lambda c: len(c.faults))
    return found


@dataclass(frozen=True)
class _Trial:
    """Tries sets of faults on the same requests."""

    truth: Truth
    requests: Sequence[RequestTrace]
    wrong_mask: int | None
    found: Search
    report: Report

    def restores(self, names: tuple[str, ...]) -> bool:
        """Full agreement under these faults? The first block that differs ends the trial."""
        wiring = wired(self.truth, names, self.wrong_mask)
        tried = Candidate(names, agreement(wiring, self.truth, self.requests, first_only=True))
        self.found.tried.append(tried)
        self.report(f"{' + '.join(names)}: {'restores all drafts' if tried.agreement.full else 'no'}")
        if tried.agreement.full:
            self.found.restoring.append(tried)
        return tried.agreement.full

    def best(self, known: Sequence[str]) -> list[str]:
        """Single faults that bring more agreement than none, the best first, on a part of the drafts."""
        sample = shortened(self.requests, SAMPLE)
        base = agreement(self.truth.healthy, self.truth, sample).share
        shares = {}
        for fault in candidates(self.truth):
            wiring = wired(self.truth, [fault.name], self.wrong_mask)
            shares[fault.name] = agreement(wiring, self.truth, sample).share
        better = sorted((name for name, share in shares.items() if share > base), key=lambda name: -shares[name])
        return better[:BEST]


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
