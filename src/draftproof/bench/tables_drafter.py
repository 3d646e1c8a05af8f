"""What a drafter is worth, and what each fault would make of it, as Markdown. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def evaluation(document: Mapping[str, Any]) -> _Table:
    """(head, rows) of ``draftproof evaluate``."""
    rows = [
        [
            f"{name} ({told['prompts']})",
            _tau(told),
            " ".join(f"{rate:.2f}" for rate in told["rates"]),
            str(told["rounds"]),
            str(told["looping"]),
        ]
        for name, told in document["workloads"].items()
    ]
    return ["prompts (count)", "τ (95 %)", "accepted at least 1, 2, …", "rounds", "answers cut at a loop"], rows


def faults(document: Mapping[str, Any]) -> _Table:
    """(head, rows) of ``draftproof lab``: τ by condition, and what is left of the healthy τ - 1 where it is worst."""
    conditions = list(document["faults"][0]["conditions"])
    rows = []
    for told in document["faults"]:
        by = told["conditions"]
        left = [c["left"] for c in by.values() if c["left"] is not None]
        rows.append(
            [
                told["name"],
                told["says"],
                *(_short(by.get(c)) for c in conditions),
                f"{100 * min(left):.0f} %" if left else "–",
            ]
        )
    return ["fault", "what it is", *(f"τ {c}" for c in conditions), "left"], rows


def _tau(told: Mapping[str, Any]) -> str:
    if told["tau"] is None:
        return "–"
    interval = told.get("tau_ci95")
    return f"{told['tau']:.2f}" + (f" ({interval[0]:.2f}–{interval[1]:.2f})" if interval else "")


def _short(told: Mapping[str, Any] | None) -> str:
    return "–" if told is None or told["tau"] is None else f"{told['tau']:.2f}"
