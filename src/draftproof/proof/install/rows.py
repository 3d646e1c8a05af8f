"""Rows of a drafter's way through an engine (field, file, engine), as people read them: like layers in one row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

Row = Mapping[str, Any]


def together(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Layers that say the same become one row, "layers 0–4, 6"; other rows stay, in their order."""
    found: dict[tuple[str, ...], tuple[dict[str, Any], list[int]]] = {}
    for row in rows:
        number = row["field"].removeprefix("layer ")
        layer = number.isdigit() and number != row["field"]
        said = (str(row["engine"]), str(row.get("refused"))) if row.get("refused") is None else (str(row["refused"]),)
        key = ("layer", str(row["file"]) * (row.get("refused") is None), *said) if layer else (row["field"],)
        found.setdefault(key, (dict(row), []))[1].extend([int(number)] if layer else [])
    return [{**row, "field": _named(numbers)} if numbers else row for row, numbers in found.values()]


def described(row: Row) -> str:
    """A row that differs, in a sentence."""
    if row.get("refused"):
        return f"{row['field']} ({short(row['file'])}) refused: {row['refused']}"
    note = f" ({row['note']})" if row["note"] else ""
    return f"{row['field']}: the file means {short(row['file'])}, the engine sees {short(row['engine'])}{note}"


def short(value: Any) -> str:
    """A value for a table: runs of equal entries as "5 × sliding_attention", floats without needless digits."""
    if isinstance(value, list) and value:
        runs = [(entry, len(list(same))) for entry, same in groupby(value)]
        return ", ".join(str(entry) if count == 1 else f"{count} × {entry}" for entry, count in runs)
    return (
        f"{value:g}"
        if isinstance(value, float) and abs(value) < 1e6
        else f"{value:.0f}"
        if isinstance(value, float)
        else str(value)
    )


def _named(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    text = ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}–{r[-1]}" for r in runs)
    return f"layer{'s' * (len(numbers) > 1)} {text}"
