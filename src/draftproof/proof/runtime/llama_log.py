"""Lines of llama.cpp: per-request draft acceptance and timings, running draft statistics, the examples' summary."""

from __future__ import annotations

import re

from draftproof.proof.runtime.windows import Window, window_of

_REQUEST = re.compile(
    r"draft acceptance(?: rate)?\s*=\s*([\d.]+|-?nan)\s*\(\s*(-?\d+) accepted /\s*(-?\d+) generated\)"
    r"(?:,\s*mean acceptance length\s*=\s*([\d.]+))?(?:,\s*acceptance rate per position\s*=\s*\(([^)]*)\))?"
)
_TOTALS = re.compile(
    r"statistics\s+(?P<kind>[\w-]+):.*?#gen drafts\s*=\s*(?P<drafts>\d+),.*?#gen tokens\s*=\s*(?P<drafted>\d+),"
    r"\s*#acc tokens\s*=\s*(?P<accepted>\d+)(?:,\s*#mean acc len\s*=\s*(?P<length>[\d.]+))?"
    r"(?:,\s*#acc rate/pos\s*=\s*\((?P<rates>[^)]*)\))?"
)
_EXAMPLE = re.compile(r"\b(n_drafted|n_accept|n_draft|n_predict)\s*=\s*(\d+)")
_EVAL = re.compile(
    r"(?<!prompt )\beval time\s*=\s*([\d.]+) ms /\s*(\d+) tokens \(\s*[\d.]+ ms per token,\s*([\d.]+) tokens per second"
)
_SLOT = re.compile(r"\bid\s+(\d+) \| task (-?\d+)")


def windows(line: str) -> list[Window | str]:
    """Per-request counts of a ``print_timing`` line, or the running totals of a ``statistics`` line (cumulative)."""
    made: list[Window | str] = []
    for found in _REQUEST.finditer(line):
        _, accepted, drafted, length, rates = found.groups()
        made.append(
            window_of(
                accepted=float(accepted),
                drafted=float(drafted),
                length=float(length) if length else None,
                rates=_rates(rates),
                replica=_slot(line),
            )
        )
    if totals := _TOTALS.search(line):
        drafts, drafted, accepted = (float(totals[name]) for name in ("drafts", "drafted", "accepted"))
        rates = _rates(totals["rates"])
        hits = tuple(round(rate * drafts) for rate in rates) if rates else None
        if accepted > drafted or drafts > drafted:
            return ["draft statistics that contradict themselves"]
        made.append(Window(drafts, drafted, accepted, hits, replica=f"statistics {totals['kind']}", cumulative=True))
    return made


def example_field(line: str) -> tuple[str, float] | None:
    """One line of the summary that llama-speculative prints: ``n_drafted = 430``."""
    found = _EXAMPLE.search(line)
    return (found.group(1), float(found.group(2))) if found else None


def eval_speed(line: str) -> tuple[float, float] | None:
    """(milliseconds, tokens) of a request's generation."""
    found = _EVAL.search(line)
    return (float(found.group(1)), float(found.group(2))) if found else None


def _rates(text: str | None) -> list[float] | None:
    if not text:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return None


def _slot(line: str) -> str:
    found = _SLOT.search(line)
    return f"slot {found.group(1)}" if found else ""
