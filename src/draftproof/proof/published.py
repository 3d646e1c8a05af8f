"""Published acceptance lengths, and what of them may be compared with a case."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import resources

from draftproof.proof.case import Case
from draftproof.proof.comparing import fact


@dataclass(frozen=True)
class Published:
    """One published measurement. ``length``: mean acceptance length, bonus included; ``low``/``high``: where a range
    was published (``length`` is its middle). ``thinking``, ``temperature``, ``k``, ``language``: None if not stated.
    ``curve``: unconditional per-position rates, empty if not published."""

    drafter: str
    length: float
    source: str
    dataset: str | None = None
    target: str | None = None
    revision: str | None = None
    engine: str | None = None
    method: str = "dflash"
    temperature: float | None = None
    thinking: bool | None = None
    language: str | None = None
    k: int | None = None
    concurrency: str | None = None
    low: float | None = None
    high: float | None = None
    curve: tuple[float, ...] = ()
    note: str | None = None


@lru_cache(maxsize=1)
def rows() -> tuple[Published, ...]:
    text = resources.files("draftproof.proof").joinpath("data/published.toml").read_text(encoding="utf-8")
    known = {field.name for field in fields(Published)}
    found = []
    for row in tomllib.loads(text)["measurement"]:
        unknown = set(row) - known
        if unknown:
            raise ValueError(f"published.toml: unknown key {sorted(unknown)[0]!r}")
        found.append(Published(**{**row, "curve": tuple(row.get("curve", ()))}))
    return tuple(found)


def plain_name(name: str | None) -> str:
    """Data set and model names as people write them, made equal: case, blanks and punctuation do not count."""
    return re.sub(r"[^a-z0-9]", "", (name or "").lower())


def of_drafter(name: str | None) -> list[Published]:
    """Rows of a drafter, by the name behind the owner: mirrors keep it."""
    wanted = plain_name((name or "").rsplit("/", 1)[-1])
    return [row for row in rows() if wanted and plain_name(row.drafter.rsplit("/", 1)[-1]) == wanted]


def comparable(case: Case) -> Published | str | None:
    """The row with the same drafter, data, language, temperature and thinking mode; a question if one of these is
    unknown for a drafter that has rows; None if there is nothing to compare."""
    mine = [row for row in rows() if row.drafter == case.drafter.name]
    if not mine:
        return None
    dataset, temperature, thinking = (fact(case, name) for name in ("dataset", "temperature", "thinking"))
    if not isinstance(dataset, str):
        return "the data set of the requests"
    mine = [row for row in mine if plain_name(row.dataset) == plain_name(dataset)]
    if not mine:
        return None
    if not isinstance(temperature, int | float):
        return "the temperature of the requests"
    if not isinstance(thinking, bool):
        return "whether the requests think"
    language = fact(case, "language")
    for row in mine:
        same_language = language is None or plain_name(str(language)) in ("en", "english")
        same_k = row.k is None or case.k is None or case.k == row.k
        if row.temperature == temperature and row.thinking == thinking and same_language and same_k:
            return row
    return None


_THINKING = (
    (re.compile(r"z-lab/Qwen3-[48]B-DFlash-b16"), False),
    (re.compile(r"z-lab/Qwen3\.[56]-.+-DFlash"), True),
)


def thinking_trained(name: str | None) -> bool | None:
    """Was this published drafter trained on answers with thinking? None if that is not published."""
    return next((mode for pattern, mode in _THINKING if pattern.fullmatch(name or "")), None)
