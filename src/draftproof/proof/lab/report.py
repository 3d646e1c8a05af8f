"""From the laboratory's counts to a fingerprint file and to the table of what each fault costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from draftproof.bench.acceptance import AcceptanceCounts
from draftproof.proof.fingerprints import HEALTHY, Fingerprints, design_effect, exactly
from draftproof.proof.lab.faults import BY_NAME, SAME_EFFECT
from draftproof.proof.lab.runs import Counts

SIGNIFICANT = 0.05  # a fault whose τ lies this much of (τ - 1) below the healthy one shows


def fingerprints(runs: Mapping[str, Counts], pair: Mapping[str, Any], provenance: Mapping[str, Any]) -> Fingerprints:
    """``runs``: counts per condition of ``healthy`` and of every fault."""
    spread = max(design_effect(per_prompt(counts)) for counts in runs[HEALTHY].values())
    return Fingerprints(
        pair=pair,
        accepted={
            name: {condition: exactly(counts.at_least) for condition, counts in by.items()} for name, by in runs.items()
        },
        codes={name: BY_NAME[name].code for name in runs if name != HEALTHY},
        spread=spread,
        same=[sorted(group) for group in SAME_EFFECT],
        provenance=provenance,
    )


def per_prompt(counts: AcceptanceCounts) -> list[tuple[int, int]]:
    """(accepted tokens, rounds) of every prompt."""
    if counts.groups is None:
        return []
    labels = np.array(counts.groups)
    drafted = counts.depths > 0
    return [
        (int(counts.accepted[drafted & (labels == name)].sum()), int((drafted & (labels == name)).sum()))
        for name in dict.fromkeys(counts.groups)
    ]


def rows(runs: Mapping[str, Counts]) -> list[dict[str, Any]]:
    """Per fault: τ and rates by condition, and how much of the healthy τ - 1 is left."""
    healthy = runs[HEALTHY]
    table = []
    for name, by in runs.items():
        conditions = {}
        for condition, counts in by.items():
            base = healthy[condition].tau
            left = None if counts.tau is None or not base or base <= 1 else (counts.tau - 1) / (base - 1)
            conditions[condition] = {
                "rounds": counts.rounds,
                "tau": counts.tau,
                "tau_ci95": counts.tau_ci95(),
                "rates": [p.rate for p in counts.positions()],
                "at_least": counts.at_least,
                "left": left,
            }
        fault = BY_NAME.get(name)
        table.append(
            {
                "name": name,
                "code": fault.code if fault else None,
                "says": fault.says if fault else "as trained",
                "conditions": conditions,
            }
        )
    return table
