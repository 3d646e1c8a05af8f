"""Other engines, measured on this machine with the same model: what a benchmark of ours is compared with.

Each module measures one peer and returns a ``PeerResult`` (one prompt at a time) or a ``ThroughputResult`` (many
at once). Peers run in processes of their own, so that their threads and settings are theirs. Measure on a quiet
machine: two spinning threads on two busy cores lose most of their speed, which is why the load average at the
start is part of the settings.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypedDict

from draftproof.errors import UsageError


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


class ThroughputResult(TypedDict):
    """One peer's figure for ``streams`` prompts at once, each answered with the same number of tokens.

    ``tokens``: new tokens of one run; ``seconds``: a run's, prompts included (the median over ``runs``, which are
    seconds as well); ``tokens_per_second``: the one over the other. ``token_ids``: the answers in the order of the
    prompts, for comparing them; too long for a result file. ``acceptance``: the peer's own counters over all runs
    (rounds, drafted, accepted, accepted_at_least), None without a drafter.
    """

    peer: str
    version: str
    streams: int
    tokens: int
    seconds: float
    tokens_per_second: float
    runs: list[float]
    token_ids: list[list[int]]
    acceptance: dict[str, Any] | None
    command: list[str]
    settings: dict[str, object]


def check_prompts(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Prompts as plain lists of token ids; an error if one is empty or there is none."""
    rows = [[int(token) for token in prompt] for prompt in prompts]
    if not rows or not all(rows):
        raise UsageError("prompts: at least one is needed, and none may be empty")
    return rows


def load_average() -> float | None:
    """Processes that wanted a core during the last minute; None where the system does not tell."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):  # Windows
        return None
