"""Checks of single configuration values, and how a wrong one is shown in an error line."""

from __future__ import annotations

import math

from draftproof.errors import SpecError

# Lower and upper bound of every whole number, by its name in a config file. The upper bounds are far above
# any real drafter: they only keep a broken file from making the program allocate without end.
LIMITS: dict[str, tuple[int, int]] = {
    "hidden_size": (1, 2**20),
    "num_hidden_layers": (1, 512),
    "num_attention_heads": (1, 2**14),
    "num_key_value_heads": (1, 2**14),
    "head_dim": (2, 2**14),
    "intermediate_size": (1, 2**24),
    "max_position_embeddings": (1, 2**40),
    "vocab_size": (2, 2**31 - 1),
    "draft_vocab_size": (1, 2**31 - 1),
    "target_hidden_size": (1, 2**20),
    "num_target_layers": (1, 4096),
    "block_size": (2, 1024),
    "sliding_window": (1, 2**40),
    "swa_window_size": (1, 2**40),
    "max_window_layers": (0, 4096),
    "conv_kernel_size": (1, 64),
    "conv_group_size": (1, 2**20),
    "selector_rank": (1, 2**16),
    "selector_top_k": (1, 2**16),
}
MAX_TAP = LIMITS["num_target_layers"][1]


def show(value: object, limit: int = 60) -> str:
    """``repr`` for an error line: never more than ``limit`` characters, whatever the value is."""
    try:
        text = repr(value if not isinstance(value, str) else value[: limit + 1])
    except (ValueError, RecursionError):  # an integer too long to print, or a structure too deep
        text = f"<{type(value).__name__} too large to show>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def check_integer(name: str, value: object, lo: int, hi: int) -> int:
    """``value`` if it is a whole number in range (a bool is not a number)."""
    if type(value) is not int:
        raise SpecError(f"{name}={show(value)} must be a whole number from {lo} to {hi}")
    if not lo <= value <= hi:
        raise SpecError(f"{name}={show(value)} is out of range: allowed are {lo} to {hi}")
    return value


def check_number(name: str, value: object, *, upto: float = math.inf) -> float:
    """``value`` as a float if it is finite, above zero and at most ``upto``."""
    allowed = "a finite number above 0" + (f" and at most {upto:g}" if upto != math.inf else "")
    if type(value) not in (int, float):
        raise SpecError(f"{name}={show(value)} must be {allowed}")
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        number = math.inf
    if not (0.0 < number <= upto and math.isfinite(number)):
        raise SpecError(f"{name}={show(value)} is out of range: it must be {allowed}")
    return number
