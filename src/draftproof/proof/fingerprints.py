"""What each fault leaves behind in the counts of accepted tokens: the file that ``draftproof lab`` writes.

Per fault and condition it holds how many rounds accepted exactly 0, 1, … N drafted tokens, and how much the rates
scatter from prompt to prompt, because rounds of one answer resemble each other: a thousand rounds of five answers are
not a thousand independent facts. ``draftproof.proof.likeness`` compares observations with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from draftproof.errors import DraftproofError

SCHEMA = "draftproof.fingerprints/2"
HEALTHY, NONE = "healthy", "none of these"


class FingerprintError(DraftproofError):
    """A fingerprint file that is none, or one that does not fit the observation."""


@dataclass(frozen=True)
class Fingerprints:
    """``accepted[name][condition]``: rounds by accepted tokens 0 … N, of ``prompts`` prompts. ``scatter``: likewise,
    for positions 1 … N, the standard deviation of one prompt's rate about the mean, as the delta method gives it for
    a ratio. ``correlation``: of these deviations, over all conditions in the order of ``conditions`` and positions
    within. ``codes[name]``: the finding a fault belongs to. ``breadth``: how far, in standard deviations between
    faults, one unlike all known ones may lie from the nearest. ``alike[name]``: what it cannot be told from in runs
    of ``alike_prompts`` prompts. A fault without counts for a condition leaves it healthy."""

    pair: Mapping[str, Any]
    conditions: Sequence[str]
    prompts: int
    accepted: Mapping[str, Mapping[str, Sequence[int]]]
    scatter: Mapping[str, Mapping[str, Sequence[float]]]
    correlation: Sequence[Sequence[float]]
    codes: Mapping[str, str]
    breadth: float = 0.5
    alike: Mapping[str, Sequence[str]] = field(default_factory=dict)
    alike_prompts: int = 0
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA, **asdict(self)}

    @property
    def positions(self) -> int:
        return len(self.accepted[HEALTHY][self.conditions[0]]) - 1

    def counts(self, name: str, condition: str) -> Sequence[int]:
        return self.accepted[name].get(condition) or self.accepted[HEALTHY][condition]

    def spread(self, name: str, condition: str) -> Sequence[float]:
        return self.scatter[name].get(condition) or self.scatter[HEALTHY][condition]


def exactly(at_least: Sequence[int]) -> list[int]:
    """[rounds, accepted ≥ 1, ≥ 2, …] → rounds by exactly accepted tokens 0, 1, …"""
    following = [*at_least[1:], 0]
    counts = [a - b for a, b in zip(at_least, following, strict=True)]
    if any(n < 0 for n in counts):
        raise FingerprintError(f"counts {list(at_least)} rise from one position to the next")
    return counts


def read_fingerprints(file: Path) -> Fingerprints:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FingerprintError(f"{file}: cannot be read ({getattr(error, 'strerror', None) or 'no text'})") from None
    return _parse(text, str(file))


@lru_cache(maxsize=1)
def shipped() -> tuple[Fingerprints, ...]:
    """Those of the project's own pairs."""
    folder = resources.files("draftproof.proof") / "data" / "fingerprints"
    listed = folder.iterdir() if folder.is_dir() else ()
    files = sorted((f for f in listed if f.name.endswith(".json")), key=lambda f: f.name)
    return tuple(_parse(f.read_text(encoding="utf-8"), f.name) for f in files)


def _parse(text: str, name: str) -> Fingerprints:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise FingerprintError(f"{name}: not JSON ({error.msg} at line {error.lineno})") from None
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA:
        raise FingerprintError(f"{name}: not {SCHEMA}; make fingerprints with draftproof lab")
    try:
        found = Fingerprints(**{key: value for key, value in data.items() if key != "schema_version"})
        found.positions  # noqa: B018 - the healthy counts are there
    except (TypeError, KeyError, IndexError) as error:
        raise FingerprintError(f"{name}: damaged ({error}); make it again with draftproof lab") from None
    return found
