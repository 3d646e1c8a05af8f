"""Facts that a user states: ``--workload NAME=VALUE``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from draftproof.errors import UsageError
from draftproof.proof.case import Case, Observation

_WORKLOAD = {
    "dataset", "num_prompts", "num_prompt_types", "temperature", "top_p", "top_k", "thinking", "language",
    "concurrency", "context_tokens", "prompt_tokens", "max_tokens", "num_output_tokens", "modality", "tools",
    "tool_choice", "streaming", "structured_output", "reasoning_parser", "request_params",
}  # fmt: skip
# Figures that a user knows and no log prints; they belong to the state under diagnosis.
_FIGURES = {
    "baseline_tok_s", "tok_s", "step_ms", "baseline_step_ms", "speed_reported", "acceptance_reported",
    "mean_acceptance_length", "acceptance_rate", "output", "outcome", "kv_cache_usage", "ttft_s",
}  # fmt: skip
_CONDITIONS = {
    "cached_prefix",
    "repeated_prompt",
    "request_index",
    "enforce_eager",
    "cudagraph_mode",
    "runner",
    "image",
}
_ALIASES = {"context": "context_tokens", "streams": "concurrency", "n": "num_speculative_tokens"}


def with_stated(case: Case, words: Sequence[str]) -> Case:
    """``--workload NAME=VALUE``: requests, conditions, and figures that no log prints."""
    for word in (part for given in words for part in given.split()):
        name, sign, text = word.partition("=")
        name = _ALIASES.get(name, name)
        if not sign or not text:
            raise UsageError(f"--workload {word}: must be NAME=VALUE, as in temperature=0")
        value = _value(text)
        if name == "num_speculative_tokens":
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise UsageError(f"--workload {word}: must be a whole number")
            case = replace(case, k=value)
        elif name == "method":
            case = replace(case, method=text)
        elif name in _WORKLOAD:
            case = replace(case, workload={**case.workload, name: value})
        elif name in _FIGURES | _CONDITIONS:
            case = _into_first(case, name, value)
        else:
            known = ", ".join(sorted(_WORKLOAD | _FIGURES | _CONDITIONS))
            raise UsageError(f"--workload {word}: unknown name {name!r}; known: {known}")
        case = replace(case, origins={**case.origins, f"workload.{name}": "--workload"})
    return case


def _into_first(case: Case, name: str, value: Any) -> Case:
    first = case.primary or Observation("as stated")
    if name in _FIGURES:
        first = replace(first, metrics={**first.metrics, name: value})
        path = f"observations.0.metrics.{name}"
    else:
        first = replace(first, conditions={**first.conditions, name: value})
        path = f"observations.0.conditions.{name}"
    return replace(case, observations=(first, *case.observations[1:]), origins={**case.origins, path: "--workload"})


def _value(text: str) -> Any:
    lowered = text.lower()
    if lowered in ("true", "on", "yes", "false", "off", "no"):
        return lowered in ("true", "on", "yes")
    for read in (int, float):
        try:
            number = read(text)
        except ValueError:
            continue
        if number != number or number in (float("inf"), float("-inf")):
            raise UsageError(f"--workload …={text}: must be a number")
        return number
    return text
