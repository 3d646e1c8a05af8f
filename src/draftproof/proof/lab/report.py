"""The table of what each fault costs, from the laboratory's counts."""

from __future__ import annotations

from typing import Any

from draftproof.bench.acceptance import AcceptanceCounts
from draftproof.proof.fingerprints import HEALTHY
from draftproof.proof.lab.faults import BY_NAME
from draftproof.proof.lab.pool import Histograms, Pool


def rows(pool: Pool) -> list[dict[str, Any]]:
    """Per fault: τ and rates by condition, and how much of the healthy τ - 1 is left."""
    counted = {name: {c: counts_of(h) for c, h in by.items()} for name, by in pool.items()}
    healthy = counted[HEALTHY]
    table = []
    for name, by in counted.items():
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


def counts_of(by_prompt: Histograms) -> AcceptanceCounts:
    """Rounds by accepted tokens, per prompt, as counts with prompts for groups."""
    most = max(len(row) for row in by_prompt.values()) - 1
    rounds = [(most, k, key) for key, row in by_prompt.items() for k, n in enumerate(row) for _ in range(n)]
    return AcceptanceCounts.from_rounds([(depth, k) for depth, k, _ in rounds], [key for *_, key in rounds])
