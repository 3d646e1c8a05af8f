"""Random numbers addressed by position instead of drawn in order.

A speculative engine looks at a different number of tokens per round depending on the block length, the method
and its luck. A generator with a state would therefore give one seed many texts. Here each number is a pure
function of (seed, position in the sequence, purpose), so a token at position i is decided by the same number
however the rounds were cut: target-sampled verification gives exactly the text of plain sampling.

Why re-using a draft's number in a later round does not bend the law: the token committed at position i is a
function of numbers at positions ≤ i only, and a draft behind the first rejection is thrown away without
having influenced anything. When position i + 1 is drafted again, its numbers are still independent of the
past.
"""

from __future__ import annotations

from enum import IntEnum

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15  # odd, 2^64 / golden ratio: consecutive positions land far apart
_TO_UNIT = 2.0**-52


class Purpose(IntEnum):
    """What a number decides. Each purpose has its own stream, so one position may need several numbers."""

    TARGET = 0
    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3


def _scramble(x: int) -> int:
    """SplitMix64's output function (Steele, Lea, Flood: Fast Splittable PRNGs, OOPSLA 2014), a bijection."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


class RequestRng:
    """Uniform numbers of one request. Stateless and safe to share between threads.

    ``seed``: any integer; taken modulo 2^64.
    """

    __slots__ = ("_keys", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        # Scrambled twice, so that neighbouring seeds and neighbouring purposes start at unrelated points.
        base = _scramble((seed + _GAMMA) & _MASK)
        self._keys = tuple(_scramble((base + (p + 1) * _GAMMA) & _MASK) for p in Purpose)

    def uniform(self, position: int, purpose: Purpose) -> float:
        """A float64 strictly inside (0, 1) with 52 random bits, the same for the same arguments always.

        ``position``: index of the token being decided, counted from the start of the sequence or of the
        answer (the caller keeps to one of them).
        """
        x = (self._keys[purpose] + position * _GAMMA) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK  # _scramble, inlined: this is the hot path
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        return (((x ^ (x >> 31)) >> 12) + 0.5) * _TO_UNIT  # 52 bits, not 53: the half must not round up to 1

    def __repr__(self) -> str:
        return f"RequestRng(seed={self.seed})"
