"""Repetition: small models fall into loops, and a drafter predicts a loop perfectly. Such tokens teach nothing and
flatter τ, so they are cut from training answers and left out of measurements, by this one rule."""

from __future__ import annotations

from collections.abc import Sequence

GRAM = 6  # tokens that must have occurred before, in a row, for a position to count as repeated
WINDOW = 48  # positions looked at together
SHARE = 0.85  # of them repeated: a loop. Below 1, since loops often count ("2. …", "3. …") as they go.


def loop_start(ids: Sequence[int], *, gram: int = GRAM, window: int = WINDOW, share: float = SHARE) -> int | None:
    """Index at which an answer starts to repeat itself, or None.

    A position is repeated if the ``gram`` tokens that end there occurred before in this answer. The answer loops
    from the first repeated position on that begins a ``window`` of which at least ``share`` is repeated.
    """
    seen: set[tuple[int, ...]] = set()
    repeated: list[bool] = []
    for end in range(1, len(ids) + 1):
        piece = tuple(ids[max(end - gram, 0) : end])
        repeated.append(len(piece) == gram and piece in seen)
        seen.add(piece)
    count = 0
    for i, flag in enumerate(repeated):
        count += flag - (repeated[i - window] if i >= window else 0)
        if count >= share * window:
            return repeated.index(True, max(i - window + 1, 0))
    return None
