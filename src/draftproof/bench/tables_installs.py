"""What ``draftproof doctor`` told of really installed engines, as Markdown. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_Table = tuple[list[str], list[list[str]]]


def releases(document: Mapping[str, Any]) -> _Table:
    """(head, rows): how many cells of the version matrix came out right for each release, its version hidden."""
    rows = []
    for name, told in sorted(document["releases"].items(), key=lambda item: _order(item[0])):
        cells, seconds = told["cells"].values(), told["seconds"]
        rows.append(
            [
                name.replace("==", " "),
                f"{sum(cell['got'] == cell['wanted'] for cell in cells)} of {len(cells)}",
                str(sum(cell["level"] == "behaviour" for cell in cells)),
                f"{seconds['source']:.1f}",
                f"{seconds['behaviour']:.1f}",
            ]
        )
    return ["installed release", "cells right", "by calling", "source, s", "behaviour, s"], rows


def remarks(document: Mapping[str, Any]) -> Iterator[str]:
    """What else was measured on those installs, a sentence each."""
    killed = document.get("killed_installs") or []
    if killed:
        broken = [one for one in killed if not one["sound"]]
        found = sum(bool(one["found"]) for one in broken)
        false = sum(bool(one["found"]) for one in killed if one["sound"])
        yield (
            f"Of {len(killed)} installs killed at a random moment {len(broken)} were left unsound: {found} of these "
            f"were found, and {false} of the {len(killed) - len(broken)} sound ones accused."
        )
    speed = document.get("hashing")
    if speed:
        size = f"{speed['files']:,} files, {speed['bytes'] / 1e6:,.0f} MB, {speed['threads']} threads"
        yield (
            f"Hashing {speed['install'].replace('==', ' ')} ({size}): {speed['doctor_mb_per_s']:.0f} MB/s, "
            f"{speed['ratio']:.2f}× parallel sha256sum ({speed['sha256sum_mb_per_s']:.0f} MB/s)"
            + (f", {speed['openssl_ratio']:.2f}× parallel openssl dgst" if speed.get("openssl_ratio") else "")
            + "."
        )


def _order(name: str) -> tuple[str, list[int]]:
    engine, _, version = name.partition("==")
    return engine, [int(part) for part in version.split(".") if part.isdigit()]
