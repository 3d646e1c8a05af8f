"""What to record, and how much of it at most; from environment variables, since engines pass those on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "DRAFTPROOF_CAPTURE"
ROUNDS, BYTES, TOP = 64, 256 << 20, 8


@dataclass(frozen=True)
class Settings:
    """``folder`` holds one sub-folder per recording process. ``rounds`` and ``bytes`` end the recording, whichever
    comes first; ``top``: draft logits kept per drafted token; ``redact``: token ids of rows only as keyed hashes."""

    folder: str
    rounds: int = ROUNDS
    bytes: int = BYTES
    top: int = TOP
    redact: bool = False

    def __post_init__(self) -> None:
        for name, value in (("ROUNDS", self.rounds), ("BYTES", self.bytes)):
            if value < 1:
                raise ValueError(f"{PREFIX}_{name}={value}: must be at least 1")

    def variables(self) -> dict[str, str]:
        """As ``from_environment`` reads them."""
        return {
            PREFIX: self.folder,
            f"{PREFIX}_ROUNDS": str(self.rounds),
            f"{PREFIX}_BYTES": str(self.bytes),
            f"{PREFIX}_REDACT": "1" if self.redact else "0",
        }


def from_environment(env: Mapping[str, str]) -> Settings | None:
    """None: nothing is to be recorded. Raises ValueError with name and value for numbers that are none."""
    folder = env.get(PREFIX)
    if not folder:
        return None
    redact = env.get(f"{PREFIX}_REDACT", "0")
    if redact not in ("0", "1"):
        raise ValueError(f"{PREFIX}_REDACT={redact!r}: must be 0 or 1")
    return Settings(folder, _number(env, "ROUNDS", ROUNDS), _number(env, "BYTES", BYTES), redact=redact == "1")


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(f"{PREFIX}_{name}", "")
    if not text:
        return default
    if not text.isdecimal():
        raise ValueError(f"{PREFIX}_{name}={text!r}: must be a whole number")
    return int(text)
