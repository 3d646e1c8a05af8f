"""How an engine is set up: one frozen object whose defaults every front end reads."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from draftproof.errors import UsageError

LengthPolicy = Literal["adaptive", "fixed"]
DRAFTER_OPTIONS = ("num_speculative_tokens", "tree_budget", "length_policy", "draft_sample_method")


@dataclass(frozen=True)
class EngineOptions:
    """Options of :class:`draftproof.Engine`, named as in vLLM and Hugging Face where they mean the same.

    ``method``: ``chain`` verifies one drafted sequence, ``tree`` a DDTree of ``tree_budget`` nodes.
    ``num_speculative_tokens`` None: the drafter's own N. ``tree_budget`` None: N nodes, so that a tree costs the
    same rows as a chain. ``length_policy``: ``adaptive`` chooses each round how much to draft, down to nothing, so
    that drafting never costs more than it brings; ``fixed`` drafts N tokens or ``tree_budget`` nodes, fewer only
    where a full pool or pass leaves no room. None: fixed where one of these numbers is given, else adaptive.
    ``draft_sample_method``: how a chain is drawn at temperature above 0; ``greedy`` makes seeded text equal to plain
    sampling's, ``probabilistic`` accepts more, but draws otherwise where a draft has another length. None:
    probabilistic, but greedy for a request with a seed under the adaptive policy.
    ``invariant`` None: on where it is free. ``native`` None: compiled kernels where they can be had.
    ``kv_cache_gb`` bounds the K/V pool; ``max_num_seqs`` the requests that run at once;
    ``max_num_batched_tokens`` the rows of a pass (None: 256 on a CPU, 2048 elsewhere). ``enable_prefix_caching``:
    keep the keys and values of finished requests for prompts that begin alike.
    """

    method: Literal["chain", "tree", "none"] = "chain"
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    num_speculative_tokens: int | None = None
    tree_budget: int | None = None
    length_policy: LengthPolicy | None = None
    draft_sample_method: Literal["probabilistic", "greedy"] | None = None
    invariant: bool | None = None
    native: bool | None = None
    max_model_len: int | None = None
    max_num_seqs: int = 16
    kv_cache_gb: float = 4.0
    max_num_batched_tokens: int | None = None
    enable_prefix_caching: bool = True
    block_size: int = 16
    threads: int | None = None
    revision: str | None = None
    trust_remote_code: bool = False

    @classmethod
    def make(cls, drafter: str | None, given: dict[str, Any]) -> EngineOptions:
        """Check names, values and combinations; options that would have no effect are errors."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            raise UsageError(f"unknown engine option {unknown[0]!r}; known: {', '.join(sorted(known))}")
        options = cls(**given)
        options._check_values()
        if drafter is None:
            useless = [n for n in DRAFTER_OPTIONS if n in given]
            if useless:
                raise UsageError(f"{useless[0]} has no effect without a drafter")
            if given.get("method", "none") != "none":
                raise UsageError(f"method={options.method!r} needs a drafter")
        elif options.method == "none":
            raise UsageError(f"drafter={drafter!r} has no effect with method='none'")
        elif "tree_budget" in given and options.method != "tree":
            raise UsageError("tree_budget has no effect without method='tree'")
        return options

    @property
    def adaptive(self) -> bool:
        """Does the engine choose the draft lengths?"""
        if self.length_policy is None:
            return self.num_speculative_tokens is None and self.tree_budget is None
        return self.length_policy == "adaptive"

    def _check_values(self) -> None:
        choices = {
            "method": ("chain", "tree", "none"),
            "dtype": ("auto", "float32", "bfloat16", "float16"),
            "length_policy": ("adaptive", "fixed", None),
            "draft_sample_method": ("probabilistic", "greedy", None),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise UsageError(f"{name}={getattr(self, name)!r} is unknown: use {', '.join(filter(None, allowed))}")
        for name in (
            "num_speculative_tokens",
            "tree_budget",
            "max_model_len",
            "max_num_seqs",
            "max_num_batched_tokens",
            "block_size",
            "threads",
        ):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise UsageError(f"{name}={value!r} is out of range: it must be a whole number of at least 1")
        if not self.kv_cache_gb > 0:
            raise UsageError(f"kv_cache_gb={self.kv_cache_gb!r} is out of range: it must be above 0")
