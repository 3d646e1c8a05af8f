"""The blind test: does the comparison name a fault from prompts that its fingerprints have never seen?

A run is a draw of prompts, without replacement within the run, from those held back; runs of one fault share the held
back prompts, so they are not independent of each other. The counts of the drawn prompts under all conditions are summed
and compared; nothing else of the run is shown to the judge.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.proof.fingerprints import HEALTHY, NONE, Fingerprints
from draftproof.proof.lab.faults import BY_NAME
from draftproof.proof.lab.pool import Pool
from draftproof.proof.likeness import PRIOR_HEALTHY, PRIOR_NONE, Match, match

SURE = 0.9  # of a fault that is told as found, not as possible
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 1.0)


@dataclass(frozen=True)
class Run:
    """``truth``: what was injected, NONE where its fingerprint was hidden from the judge; ``answer``: the first
    explanation and its probability; ``right``: it is the truth; ``alike``: it is one declared not to be told from it;
    ``rank``: place of the truth, from 1."""

    injected: str
    truth: str
    answer: str
    probability: float
    right: bool
    alike: bool
    rank: int

    @property
    def good(self) -> bool:
        return self.right or self.alike


def runs_of(
    pool: Pool,
    prints: Fingerprints,
    names: Sequence[str],
    count: int,
    prompts: int,
    *,
    seed: int,
    conditions: Sequence[str] | None = None,
    hidden: bool = False,
) -> list[Run]:
    """``count`` runs, the ``names`` in turn. ``conditions``: those that the judge sees, None: all. ``hidden``: the
    fingerprint of what is injected, and of what is alike, is withheld."""
    keys = sorted(pool[HEALTHY][prints.conditions[0]])
    made = []
    for index, name in zip(range(count), itertools.cycle(names), strict=False):
        chosen = random.Random(f"{seed} {name} {index}").sample(keys, min(prompts, len(keys)))
        observed = {}
        for condition in conditions or prints.conditions:
            by_prompt = pool[name].get(condition) or pool[HEALTHY][condition]
            observed[condition] = [sum(column) for column in zip(*(by_prompt[k] for k in chosen), strict=True)]
        others = tuple(prints.alike.get(name, ()))
        without = (name, *others) if hidden else ()
        made.append(_run(match(prints, observed, paired=True, without=without), name, NONE if hidden else name, others))
    return made


def _run(found: Sequence[Match], injected: str, truth: str, alike: Sequence[str]) -> Run:
    first, order = found[0], [m.name for m in found]
    rank = order.index(truth) + 1
    return Run(injected, truth, first.name, first.probability, rank == 1, truth != NONE and first.name in alike, rank)


def summary(
    faulty: Sequence[Run], healthy: Sequence[Run], hidden: Sequence[Run], prints: Fingerprints
) -> dict[str, Any]:
    """Shares of runs, and the same by fault. A fault that cannot be told from health on this pair is counted apart:
    it does nothing here that could be found."""
    shows = [r for r in faulty if HEALTHY not in prints.alike.get(r.injected, ())]
    return {
        "fault_runs": len(faulty),
        "first": _share(r.right for r in faulty),
        "first_or_alike": _share(r.good for r in faulty),
        "of_faults_that_show": {
            "runs": len(shows),
            "first": _share(r.right for r in shows),
            "first_or_alike": _share(r.good for r in shows),
            "called_healthy": _share(r.answer == HEALTHY for r in shows),
        },
        "healthy_runs": len(healthy),
        "healthy_called_faulty": _share(r.answer not in (HEALTHY, NONE) for r in healthy),
        "healthy_called_faulty_surely": _share(
            r.answer not in (HEALTHY, NONE) and not r.alike and r.probability >= SURE for r in healthy
        ),
        "healthy_called_none": _share(r.answer == NONE for r in healthy),
        "hidden_runs": len(hidden),
        "hidden_called_none": _share(r.answer == NONE for r in hidden),
        "hidden_called_healthy": _share(r.answer == HEALTHY for r in hidden),
        "hidden_given_the_right_code": _share(
            r.answer in BY_NAME and _code(r.answer) == _code(r.injected) for r in hidden
        ),
        "calibration": calibration(faulty, healthy, hidden),
        "by_fault": [_of_fault(name, faulty, prints) for name in dict.fromkeys(r.injected for r in faulty)],
        "alike": {name: list(others) for name, others in prints.alike.items()},
    }


def _code(name: str) -> str:
    return BY_NAME[name].code


def _of_fault(name: str, runs: Sequence[Run], prints: Fingerprints) -> dict[str, Any]:
    own = [r for r in runs if r.injected == name]
    taken = sorted({r.answer for r in own if not r.right})
    return {
        "name": name,
        "runs": len(own),
        "first": _share(r.right for r in own),
        "first_or_alike": _share(r.good for r in own),
        "taken_for": taken,
        "alike": list(prints.alike.get(name, ())),
    }


def calibration(faulty: Sequence[Run], healthy: Sequence[Run], hidden: Sequence[Run]) -> list[dict[str, float]]:
    """How often the first answer was right where its probability lay in a bin, with runs weighted as the priors say
    such cases occur."""
    parts = ((faulty, 1 - PRIOR_HEALTHY - PRIOR_NONE), (healthy, PRIOR_HEALTHY), (hidden, PRIOR_NONE))
    weighted = [(run, share / len(runs)) for runs, share in parts if runs for run in runs]
    rows = []
    for low, high in itertools.pairwise(BINS):
        inside = [(r, w) for r, w in weighted if low < r.probability <= high or (low == 0.0 == r.probability)]
        total = sum(w for _, w in inside)
        if inside:
            mean = sum(r.probability * w for r, w in inside) / total
            right = sum(r.good * w for r, w in inside) / total
            rows.append({"low": low, "high": high, "runs": len(inside), "weight": total, "said": mean, "right": right})
    return rows


def _share(hits: Iterable[bool]) -> float | None:
    listed = list(hits)
    return sum(listed) / len(listed) if listed else None
