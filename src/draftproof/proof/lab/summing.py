"""From counts per prompt to a fingerprint file."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from draftproof.proof.fingerprints import HEALTHY, Fingerprints
from draftproof.proof.lab.faults import BY_NAME, SAME_EFFECT
from draftproof.proof.lab.pool import Histograms, Pool
from draftproof.proof.likeness import Floats, Space, kernel, rates, separation, student

ALIKE_PROMPTS = 64  # of the run for which it is said what can be told apart
ALIKE = 2.56  # closer than this an ideal judge takes one for the other in more than a tenth of such runs
_BREADTHS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)


def fingerprints(
    pool: Pool, conditions: Sequence[str], pair: Mapping[str, Any], provenance: Mapping[str, Any]
) -> Fingerprints:
    """``pool``: counts of ``healthy`` under every condition and of faults under those in which they show."""
    accepted: dict[str, dict[str, list[int]]] = {}
    scatter: dict[str, dict[str, list[float]]] = {}
    correlations: list[Floats] = []
    keys = list(pool[HEALTHY][conditions[0]])
    for name, by in pool.items():
        accepted[name] = {c: _total(by[c]) for c in conditions if c in by}
        scatter[name] = {c: _scatter(by[c], keys) for c in conditions if c in by}
        whole = [by.get(c, pool[HEALTHY][c]) for c in conditions]
        correlations.append(_correlation(np.hstack([_deviations(one, keys) for one in whole])))
    codes = {name: BY_NAME[name].code for name in pool if name != HEALTHY}
    common = np.mean(correlations, axis=0).round(4).tolist()
    made = Fingerprints(pair, list(conditions), len(keys), accepted, scatter, common, codes, provenance=provenance)
    made = replace(made, breadth=_breadth(made))
    return replace(made, alike=alike(made, ALIKE_PROMPTS), alike_prompts=ALIKE_PROMPTS)


def alike(prints: Fingerprints, prompts: int) -> dict[str, list[str]]:
    """Which explanations cannot be told from which, by the fingerprints themselves and by what the code declares."""
    found: dict[str, list[str]] = {name: [] for name in prints.accepted}
    for one, other in itertools.combinations(prints.accepted, 2):
        declared = any({one, other} <= group for group, _ in SAME_EFFECT)
        if declared or separation(prints, one, other, prompts) < ALIKE:
            found[one].append(other)
            found[other].append(one)
    return {name: others for name, others in found.items() if others}


def _total(by_prompt: Histograms) -> list[int]:
    return [int(n) for n in np.sum(list(by_prompt.values()), axis=0)]


def _deviations(by_prompt: Histograms, keys: Sequence[str]) -> Floats:
    """Per prompt and position: accepted minus expected, over the mean number of rounds (a ratio, linearised)."""
    table = np.array([by_prompt[k] for k in keys], dtype=float)
    at_least = table[:, ::-1].cumsum(1)[:, ::-1]
    rounds, hits = at_least[:, :1], at_least[:, 1:]
    mean = rates(table.sum(0).tolist(), hits.shape[1])
    return np.asarray((hits - mean * rounds) / max(float(rounds.mean()), 1e-9))


def _scatter(by_prompt: Histograms, keys: Sequence[str]) -> list[float]:
    """Never below that of independent rounds with half an event more: rare events are seen too seldom by chance."""
    total = np.sum([by_prompt[k] for k in keys], axis=0)
    rounds = max(int(total.sum()), 1)
    mean = rates(total.tolist(), len(total) - 1)
    least = (mean * rounds + 0.5) / (rounds + 1) * (1 - mean) / (rounds / len(keys))
    seen = _deviations(by_prompt, keys).var(axis=0, ddof=1)
    return [round(float(v), 5) for v in np.sqrt(np.maximum(seen, least))]


def _correlation(deviations: Floats) -> Floats:
    scale = deviations.std(axis=0)
    scale[scale == 0] = np.inf  # what never varies is correlated with nothing
    found = (deviations / scale).T @ (deviations / scale) / len(deviations)
    np.fill_diagonal(found, 1.0)
    return np.asarray(found)


def _breadth(prints: Fingerprints) -> float:
    """The one under which each fault, taken as unknown, is most likely by the kernel density of the others."""
    names = [n for n in prints.accepted if n != HEALTHY]
    if len(names) < 3:
        return 0.5
    space = Space(prints, {c: prints.counts(HEALTHY, c) for c in prints.conditions}, paired=True)
    means = {n: space.mean(n) for n in names}

    def value(breadth: float) -> float:
        total = 0.0
        for name in names:
            others = [n for n in names if n != name]
            between = kernel(np.stack([means[n] for n in others]), breadth)
            each = [student(means[name] - means[n], space.covariance(n) + between) for n in others]
            total += float(np.logaddexp.reduce(each))
        return total

    return max(_BREADTHS, key=value)
