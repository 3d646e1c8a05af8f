"""Measurements that cannot be: taken out before anything is concluded from them, and named."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from draftproof.proof.case import Case, Observation

_MOST = 1e12  # no counter, length or speed of a real server is larger
_SHARES = {
    "acceptance_rate", "acceptance_ratio_committed", "first_position_acceptance", "accuracy", "train_accuracy",
    "kv_cache_usage", "prefix_cache_hit_rate",
}  # fmt: skip
_NUMBERS = {
    "num_drafts", "num_draft_tokens", "num_accepted_tokens", "mean_acceptance_length", "printed_mean_acceptance_length",
    "mean_drafted_per_step", "attempts", "tokens_per_step", "tokens_without_draft", "tokens_per_run",
    "max_accepted_per_round", "tok_s", "baseline_tok_s", "tok_s_relative", "speed_relative_to_earlier", "step_ms",
    "baseline_step_ms", "itl_ms", "ttft_s", "prefix_cache_hits", "prefix_cache_queries", "tool_calls_ok",
    "tool_calls_total", "first_divergence_token", "unclaimed_tensors",
}  # fmt: skip
_WORDS = {
    "acceptance_reported", "speed_reported", "prefix_cache_reported", "tool_calls_reported", "output", "outcome",
    "finish_reason", "mask_row_norm_reported",
}  # fmt: skip
_LONGEST = 512


def sane(case: Case) -> tuple[Case, tuple[str, ...]]:
    """The case without impossible measurements, and one sentence for each. A sane case comes back as it is."""
    notes: list[str] = []
    observations = tuple(_sane(case, i, seen, notes) for i, seen in enumerate(case.observations))
    return (replace(case, observations=observations) if notes else case), tuple(notes)


def _sane(case: Case, index: int, seen: Observation, notes: list[str]) -> Observation:
    kept = {}
    for key, value in seen.metrics.items():
        why = None if value is None else _wrong(key, value)
        if why is None:
            kept[key] = value
        else:
            shown = str(value) if len(str(value)) <= 40 else str(value)[:39] + "…"
            notes.append(f"{case.where(f'observations.{index}.metrics.{key}')} = {shown} left out: {why}")
    drafted, accepted = kept.get("num_draft_tokens"), kept.get("num_accepted_tokens")
    if drafted is not None and accepted is not None and accepted > drafted:
        notes.append(f"observations.{index}: {accepted} accepted of {drafted} drafted tokens left out: more than all")
        del kept["num_draft_tokens"], kept["num_accepted_tokens"]
    curve, k = kept.get("accepted_per_position"), seen.conditions.get("num_speculative_tokens", case.k)
    if isinstance(curve, list | tuple) and isinstance(k, int) and len(curve) > k > 0 and any(curve[k:]):
        notes.append(f"observations.{index}: a curve of {len(curve)} positions, but {k} drafted tokens; one is wrong")
    conditions = dict(seen.conditions)
    drafted_per_step = conditions.get("num_speculative_tokens")
    if drafted_per_step is not None and _no_number(drafted_per_step, _LONGEST) is not None:
        notes.append(
            f"observations.{index}: num_speculative_tokens = {str(drafted_per_step)[:40]} left out: no such count"
        )
        del conditions["num_speculative_tokens"]
    if len(kept) == len(seen.metrics) and len(conditions) == len(seen.conditions):
        return seen
    return replace(seen, metrics=kept, conditions=conditions)


def _wrong(key: str, value: Any) -> str | None:
    """Why a value cannot be a measurement of that name; None if it can."""
    if key in _WORDS:
        return None if isinstance(value, str) else "must be a word"
    if key in _NUMBERS | _SHARES:
        return _no_number(value, 1.0 if key in _SHARES else _MOST)
    plain = key.removesuffix("_range")
    if plain != key and plain in _NUMBERS | _SHARES:
        pair = isinstance(value, list | tuple) and len(value) == 2
        return _no_list(value, 1.0 if plain in _SHARES else _MOST) if pair else "must be two numbers"
    if key in ("accepted_per_position", "tap_rms"):
        return _no_list(value, 1.0 if key == "accepted_per_position" else _MOST)
    return None


def _no_list(value: Any, most: float) -> str | None:
    if not isinstance(value, list | tuple) or len(value) > _LONGEST:
        return f"must be a list of at most {_LONGEST} numbers"
    return next((why for one in value if (why := _no_number(one, most)) is not None), None)


def _no_number(value: Any, most: float) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "must be a number"
    if not math.isfinite(value):
        return "must be finite"
    return None if 0 <= value <= most else f"must lie between 0 and {most:g}"
