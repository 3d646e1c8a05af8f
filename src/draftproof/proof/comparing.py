"""Which observations of a case may be compared, and what sets them apart.

``conditions`` of an observation hold what differs from the other ones; what they leave out holds for the whole case
(workload, engine options). Keys that mean the same thing form one *axis*, and a comparison proves something about an
axis only if the two observations differ on no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

from draftproof.proof.case import Case, Observation
from draftproof.proof.quantities import FEW_DRAFTS, Acceptance, acceptance, number, ratio

_AXES: Mapping[str, tuple[str, ...]] = {
    "context": ("context_tokens", "prompt_tokens", "context"),
    "concurrency": ("concurrency", "load"),
    "cache": ("cached_prefix", "prefix_caching"),
    "request": ("request_index", "repeated_prompt"),
    "build": ("engine_version", "build", "commit", "package"),
    "runner": ("runner",),
    "graph": ("cudagraph_mode", "cudagraph", "enforce_eager"),
    "capture": ("cudagraph_capture",),
    "revision": ("drafter_revision",),
    "drafter": ("drafter",),
    "target": ("target",),
    "method": ("method",),
    "k": (
        "num_speculative_tokens", "block_size", "block_tokens", "block", "cap", "draft_length", "num_draft_tokens",
        "speculative_num_draft_tokens",
    ),
    "quant": ("draft_quant", "drafter_dtype"),
    "sampling": ("temperature", "top_p", "top_k"),
    "thinking": ("thinking", "reasoning"),
    "workload": ("dataset", "language", "prompts", "tools", "tool_choice", "structured_output"),
    "streaming": ("streaming",),
    "image": ("image", "modality"),
    "time": ("uptime", "generated_tokens"),
    "training": ("phase", "epoch", "epochs", "trainer", "args", "data", "samples", "run"),
    "reference": ("reference",),
    "static": ("static",),
    "positions": ("drafter_positions",),
    "shift": ("layer_id_shift",),
    "draft_ctx": ("draft_ctx_size",),
    "machine": ("hardware", "backend", "draft_device", "tensor_parallel", "tensor_parallel_size"),
}  # fmt: skip
_AXIS_OF = {key: axis for axis, keys in _AXES.items() for key in keys}
_SUFFIXES = ("_range", "_above", "_below", "_min", "_not", "_reported")
_NOT_AXES = {"num_prompts", "num_prompt_types", "per_position_kind", "ci95"}  # size and kind of a measurement


@dataclass(frozen=True)
class Comparison:
    """The primary observation against observation ``index``. ``ratio``: acceptance of the primary one relative to
    the other, None if it cannot be told."""

    index: int
    other: Observation
    axes: frozenset[str]
    mine: Acceptance
    its: Acceptance
    ratio: float | None

    def only(self, *axes: str) -> bool:
        """Do the two differ on at least one of ``axes`` and on nothing else?"""
        return bool(self.axes) and self.axes <= set(axes)

    @property
    def where(self) -> str:
        return f"observations.{self.index}.metrics"


def base_key(key: str) -> str:
    """``concurrency_above`` speaks of ``concurrency``."""
    for suffix in _SUFFIXES:
        if key.endswith(suffix):
            return key.removesuffix(suffix)
    return key


def axis_of(key: str) -> str | None:
    """The axis of a condition; None for keys that set nothing apart."""
    plain = base_key(key)
    return None if plain in _NOT_AXES else _AXIS_OF.get(plain, plain)


def comparisons(case: Case) -> Iterator[Comparison]:
    """The primary observation against every other run; readings of files are no runs."""
    first = case.primary
    if first is None:
        return
    mine = acceptance(case, first)
    for index, other in enumerate(case.observations[1:], start=1):
        if other.conditions.get("static"):
            continue
        its = acceptance(case, other)
        told = None if _noise(mine, its) else ratio(mine, its)
        yield Comparison(index, other, axes_between(case, first, other), mine, its, told)


def _noise(mine: Acceptance, its: Acceptance) -> bool:
    """Too few drafts on a side, or a difference within two standard errors: such a ratio tells nothing."""
    if any(side.drafts is not None and side.drafts < FEW_DRAFTS for side in (mine, its)):
        return True
    errors = (mine.standard_error, its.standard_error)
    if mine.length is None or its.length is None or errors[0] is None or errors[1] is None:
        return False
    return abs(mine.length - its.length) <= 2 * sqrt(errors[0] ** 2 + errors[1] ** 2)


def axes_between(case: Case, one: Observation, other: Observation) -> frozenset[str]:
    keys = {key for key in {*one.conditions, *other.conditions} if not _one_sided_bound(key, one, other)}
    differing = {key for key in keys if _value(case, one, key) != _value(case, other, key)}
    return frozenset(axis for key in differing if (axis := axis_of(key)) is not None)


def fact(case: Case, name: str, observation: Observation | None = None) -> Any:
    """A condition of the observation (default: the primary one), else of the workload, else an engine option."""
    seen = case.primary if observation is None else observation
    for holder in (seen.conditions if seen is not None else {}, case.workload, case.engine.options):
        if holder.get(name) is not None:
            return holder[name]
    return None


def at_least(case: Case, name: str, observation: Observation | None = None) -> float | None:
    """A quantity as a number, or the bound that is known from below (``name_above`` counts as one more)."""
    seen = case.primary if observation is None else observation
    for holder in (seen.conditions if seen is not None else {}, case.workload):
        for key, more in ((name, 0.0), (f"{name}_min", 0.0), (f"{name}_above", 1.0)):
            value = number(holder, key)
            if value is not None:
                return value + more
    return None


def plain_runs(case: Case) -> Iterator[Comparison]:
    """Comparisons with plain decoding (``drafter`` false) that differ in nothing else."""
    yield from (c for c in comparisons(case) if c.other.conditions.get("drafter") is False and c.only("drafter"))


def with_drafter(case: Case, observation: Observation) -> bool:
    return fact(case, "drafter", observation) is not False


def _one_sided_bound(key: str, one: Observation, other: Observation) -> bool:
    """ "At least two drafted tokens" beside an observation that says nothing of k sets nothing apart."""
    if not key.endswith("_min"):
        return False
    plain = base_key(key)
    return not all(any(base_key(name) == plain for name in side.conditions) for side in (one, other))


def _value(case: Case, seen: Observation, key: str) -> Any:
    if key in seen.conditions:
        return seen.conditions[key]
    own = {
        "num_speculative_tokens": case.k,
        "method": case.method,
        "engine_version": case.engine.version,
        "drafter_revision": case.drafter.revision,
    }
    return case.workload.get(key, case.engine.options.get(key, own.get(key)))
