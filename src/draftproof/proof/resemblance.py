"""Which fault of a laboratory's fingerprints an observation resembles."""

from __future__ import annotations

from draftproof.proof.fingerprints import FingerprintError, Fingerprints, Match, exactly
from draftproof.proof.quantities import Acceptance


def resembles(it: Acceptance, fingerprints: Fingerprints, condition: str) -> tuple[Match, ...]:
    """Explanations, most probable first. Needs counts per position: raises where there are none."""
    if not it.curve or not it.drafts:
        raise FingerprintError(
            "fingerprints are compared with counts per position, and the evidence has none: give a log or metrics with "
            "the per-position acceptance and the number of drafts"
        )
    at_least = [round(it.drafts), *(round(it.drafts * p) for p in it.curve)]
    for i in range(1, len(at_least)):  # rounded printed rates may rise by one round
        at_least[i] = min(at_least[i], at_least[i - 1])
    return tuple(fingerprints.match(exactly(at_least), condition))
