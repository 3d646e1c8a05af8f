"""What a case knows about tensors: shapes that are there, names that are known to be missing."""

from __future__ import annotations

from draftproof.proof.case import Case


def shape(case: Case, name: str) -> tuple[int, ...] | None:
    """Shape of a tensor in the checkpoint, None if the tensor or its shape is unknown."""
    entry = (case.drafter.tensors or {}).get(name)
    found = entry.get("shape") if isinstance(entry, dict) else None
    if not isinstance(found, list | tuple) or not all(type(n) is int for n in found):
        return None
    return tuple(found)


def names(case: Case) -> frozenset[str]:
    return frozenset(map(str, case.drafter.tensors or {}))


def reported_absent(case: Case) -> frozenset[str]:
    """Names that a reading of the files (``tensors_absent`` of any observation) says are missing."""
    found: set[str] = set()
    for observation in case.observations:
        listed = observation.metrics.get("tensors_absent")
        if isinstance(listed, list | tuple):
            found.update(map(str, listed))
    return frozenset(found)


def complete(case: Case) -> bool:
    """Is the list of tensors that of a whole drafter? Then what is not in it is missing. Excerpts name a few."""
    known = {name.removeprefix("model.") for name in names(case)}
    layers = sum(name.startswith(("layers.", "blk.", "midlayer.")) for name in known)
    return layers >= 5 and ("fc.weight" in known or any(name.startswith("fc.") for name in known))


def absent(case: Case, name: str) -> bool:
    """Is the tensor known to be missing?"""
    if name in reported_absent(case):
        return True
    found = names(case)
    return complete(case) and name not in found and f"model.{name}" not in found
