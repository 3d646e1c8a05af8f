"""Which fault of a laboratory's fingerprints the observations of a case resemble, and whose fingerprints fit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from draftproof.proof.case import Case, Observation
from draftproof.proof.comparing import fact
from draftproof.proof.fingerprints import HEALTHY, NONE, FingerprintError, Fingerprints, exactly, shipped
from draftproof.proof.likeness import Match, match, rates
from draftproof.proof.quantities import Acceptance, acceptance

_LONG = 384  # tokens of context, where the fingerprints do not say what they call long


def resembles(case: Case, prints: Fingerprints, condition: str | None, more: Iterable[Case] = ()) -> tuple[Match, ...]:
    """Explanations, most probable first. ``condition``: that of the first observation, None: as its own conditions
    say; ``more``: comparisons whose observations count as well. Raises without counts per position."""
    seen: dict[str, Sequence[int]] = {}
    first = case.primary
    for it in (first, *(one for pair in more for one in pair.observations)):
        if it is None:
            continue
        where = condition if it is first and condition is not None else condition_of(it, case, prints)
        counts = _counts(acceptance(replace(case, observations=(it,))))
        if counts is not None and (where in prints.conditions or it is first):
            seen.setdefault(where, counts)
    if not seen:
        raise FingerprintError(
            "fingerprints are compared with counts per position, and the evidence has none: give a log or metrics with "
            "the per-position acceptance and the number of drafts"
        )
    return tuple(match(prints, seen))


def curves(
    case: Case, prints: Fingerprints, condition: str | None, found: Sequence[Match], most: int = 2
) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Rates by position of the healthy pair and of the first faults, as the laboratory counted them under the
    condition of the first observation."""
    where = condition or (condition_of(case.primary, case, prints) if case.primary is not None else "")
    if where not in prints.conditions:
        return ()
    names = [HEALTHY, *[m.name for m in found if m.name not in (HEALTHY, NONE)][:most]]
    return tuple((name, tuple(rates(prints.counts(name, where), prints.positions).tolist())) for name in names)


def condition_of(it: Observation, case: Case, prints: Fingerprints) -> str:
    """The laboratory's word for how an observation was made. Several streams are no condition of their own: on a right
    engine rows do not depend on their company."""
    own = replace(case, observations=(it,))
    heat, context = fact(own, "temperature"), fact(own, "context_tokens") or fact(own, "context")
    if isinstance(heat, int | float) and heat > 0.05:
        return "sampled"
    if it.conditions.get("cached_prefix") is True:
        return "cached"
    if isinstance(context, int | float) and context >= prints.pair.get("long_tokens", _LONG):
        return "long"
    return "short"


def _counts(it: Acceptance) -> list[int] | None:
    """Drafts by accepted tokens; None without a curve or their number."""
    if not it.curve or not it.drafts:
        return None
    at_least = [round(it.drafts), *(round(it.drafts * p) for p in it.curve)]
    for i in range(1, len(at_least)):  # rounded printed rates may rise by one round
        at_least[i] = min(at_least[i], at_least[i - 1])
    return exactly(at_least)


def of_pair(case: Case, folder: str | None) -> tuple[Fingerprints | None, str]:
    """The shipped fingerprints of the case's drafter, and a note. ``folder``: where its weights may lie; other weights
    under the same name have no fingerprints here."""
    name = Path(case.drafter.name or "").name.lower()
    found = next((p for p in shipped() if name and Path(str(p.pair.get("drafter"))).name.lower() == name), None)
    if found is None:
        return None, ""
    weights = Path(folder) / "model.safetensors" if folder is not None else None
    if weights is None or not weights.is_file():
        return found, f"compared with the fingerprints of {name}, by its name; --drafter FOLDER compares its weights"
    with weights.open("rb") as file:
        same = hashlib.file_digest(file, "sha256").hexdigest() == found.pair.get("weights_sha256")
    if same:
        return found, f"compared with the shipped fingerprints of {name}"
    return (
        None,
        f"the shipped fingerprints of {name} are of other weights and were left out; draftproof lab makes new ones",
    )
