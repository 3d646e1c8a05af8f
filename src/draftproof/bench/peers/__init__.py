"""Other engines, measured on this machine with the same model: what a benchmark of ours is compared with.

Each module measures one peer and returns a ``PeerResult``. Peers run in processes of their own, so that their
threads and settings are theirs. Measure on a quiet machine: two spinning threads on two busy cores lose most
of their speed, which is why the load average at the start is part of the settings.
"""

from __future__ import annotations

import os
from typing import TypedDict


class PeerResult(TypedDict):
    """One peer's figure. Rates are tokens per second; ``runs`` are the single runs behind the median.

    ``tokens_per_second`` counts decoding only. ``end_to_end`` includes reading the prompts, where the peer
    was given any (else None).
    """

    peer: str
    version: str
    tokens_per_second: float
    runs: list[float]
    end_to_end: float | None
    command: list[str]
    settings: dict[str, object]


def load_average() -> float | None:
    """Processes that wanted a core during the last minute; None where the system does not tell."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):  # Windows
        return None
