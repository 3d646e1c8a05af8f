"""What each step of the walk says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "wrong", "unknown"]


@dataclass(frozen=True)
class Stage:
    """``says``: one sentence with figures. ``faults``: names of the laboratory's faults that this step is direct
    evidence of, or ``other:CODE`` where the laboratory has none of that kind; ``figures``: what was measured."""

    name: str
    status: Status
    says: str
    faults: tuple[str, ...] = ()
    figures: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "status": self.status,
            "says": self.says,
            "faults": list(self.faults),
            "figures": self.figures,
        }


def listed(texts: list[str], most: int = 4) -> str:
    """The first few, and how many more there are."""
    more = len(texts) - most
    return "; ".join(texts[:most]) + (f"; and {more} more" if more > 0 else "")
