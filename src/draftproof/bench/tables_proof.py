"""What the tools say of engines whose state is known, as Markdown. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_Table = tuple[list[str], list[list[str]]]


def story(document: Mapping[str, Any]) -> _Table:
    """(head, rows): engine by engine what is known of it, its acceptance, and what was said."""
    rows = [
        [
            str(row["engine"]),
            ", ".join(row.get("known") or ()) or "healthy",
            *(_refused(row) if row.get("error") else _ran(row)),
            "yes" if row.get("right") else "**no**",
        ]
        for row in document["rows"]
    ]
    return ["engine", "known", "rounds", "τ", "diagnose, from counters and files", "replay", "right"], rows


def story_remarks(document: Mapping[str, Any]) -> Iterator[str]:
    """Acceptance of the healthy vLLM beside that of the reference engine."""
    found = document.get("acceptance")
    if found:
        told = [f"{name} {_tau(found[key])}" for name, key in (("vLLM", "vllm"), ("the reference engine", "reference"))]
        yield (
            f"τ on the same {found['prompts']} prompts, 95 % intervals: {told[0]}, {told[1]}; "
            f"{found['same_text']} texts are the same."
        )


def captures(document: Mapping[str, Any]) -> _Table:
    """(head, rows): every fault that was switched on inside a live vLLM, and what ``replay`` said of it."""
    rows = []
    for case in document["cases"]:
        agreed = case["agreement"] or {"equal": 0, "near_ties": 0, "tokens": 0}
        rows.append(
            [
                case["case"],
                ", ".join(case["said"]) or case["verdict"],
                case["certainty"],
                case["first_wrong"] or "–",
                f"{agreed['equal'] + agreed['near_ties']} of {agreed['tokens']}",
                "–" if case["taps_error"] is None else f"{case['taps_error']:.1e}",
                "yes" if case["right"] else "**no**",
            ]
        )
    head = ["inside vLLM", "replay", "certainty", "first wrong", "drafts equal", "taps, relative error", "right"]
    return head, rows


def _ran(row: Mapping[str, Any]) -> list[str]:
    diagnosed, replayed = row["diagnose"], row.get("replay")
    said = f"{diagnosed['verdict']}: {_codes(diagnosed['codes'])}" if diagnosed["codes"] else diagnosed["verdict"]
    proof = "no capture of this engine"
    if replayed:
        proof = f"{', '.join(replayed['said']) or replayed['verdict']}, {replayed['certainty']}"
    return [str(row["rounds"]), f"{row['tau']:.2f}", said, proof]


def _refused(row: Mapping[str, Any]) -> list[str]:
    beforehand = (row.get("check") or {}).get("codes") or ()
    return ["–", "–", f"does not run; `check` beforehand: {_codes(beforehand) or 'nothing'}", "–"]


def _codes(codes: Sequence[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)


def _tau(told: Mapping[str, Any]) -> str:
    interval = told.get("tau_ci95")
    return f"{told['tau']:.2f}" + (f" ({interval[0]:.2f}–{interval[1]:.2f})" if interval else "")
