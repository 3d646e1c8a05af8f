"""The result of the benchmark under load as Markdown. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_LABELS = {
    "plain": "target alone",
    "drafter": "with the drafter",
    "drafter-tree": "DDTree",
    "never-right": "drafter never right",
}
_Table = Sequence[Sequence[str]]


def engine_sections(document: Mapping[str, Any]) -> list[tuple[str, Sequence[str], _Table]]:
    """(sentence, head, rows) of each table."""
    sections = [_streams(document["streams"])]
    if document.get("first_token") or document.get("acceptance"):
        sections.append(_prefix(document))
    if document.get("peers"):
        sections.append(_peers(document))
    return sections


def _streams(streams: Mapping[str, Any]) -> tuple[str, Sequence[str], _Table]:
    ways = list(next(iter(streams.values())))
    head = ["streams", *(f"{_LABELS[w]}, tok/s" for w in ways), *(f"{_LABELS[w]} ÷ alone" for w in ways[1:])]
    head += ["drafted a round", "τ", "host share"]
    rows = []
    for count, told in streams.items():
        last = told.get("drafter", told["plain"])
        rows.append(
            [
                count,
                *(f"{told[w]['tokens_per_s']['median']:.0f}" for w in ways),
                *(f"{told[w]['ratio_to_plain']['median']:.2f}" for w in ways[1:]),
                f"{last['drafted_per_round']:.2f}",
                f"{last['tokens_per_round']:.2f}",
                f"{100 * last['host_share']:.1f} %",
            ]
        )
    return "Throughput by streams; the policy chooses how much is drafted, down to nothing.", head, rows


def _prefix(document: Mapping[str, Any]) -> tuple[str, Sequence[str], _Table]:
    rows = []
    first = document.get("first_token")
    if first:
        what = f"first token after a prefix of {first['prefix_tokens']} tokens"
        rows.append([what, f"{1000 * first['cold_s']:.0f} ms", f"{1000 * first['cached_s']:.0f} ms"])
    acceptance = document.get("acceptance")
    if acceptance:
        what = f"τ over {acceptance['requests']} requests (95 % interval)"
        rows.append([what, *(_tau(acceptance[name]) for name in ("cold", "cached"))])
        tokens = [f"{acceptance[name]['cached_tokens']}" for name in ("cold", "cached")]
        rows.append([f"prompt tokens found in the cache, of {acceptance['prompt_tokens']}", *tokens])
    return "The prefix cache holds the target's and the drafter's keys and values.", ["", "cold", "cached"], rows


def _tau(told: Mapping[str, Any]) -> str:
    low, high = told["tau_ci95"]
    return f"{told['tau']:.3f} ({low:.3f}–{high:.3f})"


def _peers(document: Mapping[str, Any]) -> tuple[str, Sequence[str], _Table]:
    counts = list(document["streams"])
    rows = []
    for name, told in document["peers"].items():
        if "skipped" in told:
            rows.append([name, told["skipped"], *("–" for _ in counts[1:])])
            continue
        rates = told["streams"]
        rows.append([name, *(f"{rates[c]:.0f}" if c in rates else "–" for c in counts)])
    return "Peers on the same prompts, tok/s by streams.", ["peer", *counts], rows
