"""What the engine needs of a target, whatever computes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from draftproof.engine.memory import KVShape
from draftproof.engine.plan import Pass
from draftproof.native import LayerKV


@dataclass(frozen=True)
class Capabilities:
    """What a target can and cannot do; every "no" comes with the sentence that is shown to the user."""

    trees: bool = True
    why_no_trees: str = ""
    row_invariant: bool = False  # bit for bit the same row in any company, in any dtype
    why_not_invariant: str = ""
    prefix_reuse: bool = True  # can a sequence go on from keys and values that another one left?
    why_no_prefix_reuse: str = ""


@dataclass(frozen=True)
class TargetInfo:
    """Facts of a target's configuration that drafters, pool and engine ask for."""

    family: str
    hidden_size: int
    num_layers: int
    vocab_size: int
    max_position: int
    eos_token_ids: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)  # the language model's whole config


class Target(Protocol):
    """A causal language model that runs passes over the engine's K/V pool.

    ``embedding`` [V, H] and ``project`` (hidden → logits with the bare output head) are what drafters borrow.
    """

    @property
    def info(self) -> TargetInfo: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def kv_shapes(self) -> Sequence[KVShape]: ...

    @property
    def backend(self) -> str: ...

    @property
    def invariant(self) -> bool:
        """Do rows come out bit for bit the same in any company, in this very target?"""
        ...

    @property
    def embedding(self) -> Tensor: ...

    def forward(
        self,
        batch: Pass,
        kv: Sequence[LayerKV],
        *,
        taps: Sequence[int] = (),
        logits: Sequence[int] | Tensor = (),
    ) -> tuple[Tensor, Tensor | None]:
        """Run the rows of ``batch``; writes their K/V into ``kv``.

        Returns (float32 logits of the rows named in ``logits`` [len, V], taps [R, len(taps) × H] or None). Taps
        are ``output_hidden_states`` indices, concatenated in the order asked for.
        """
        ...

    def project(self, hidden: Tensor) -> Tensor:
        """[R, H] → float32 [R, V] through the output head alone (no soft-cap, no scale)."""
        ...

    def commit(self, seq: int, rows: int, kept: int) -> None:
        """Of the sequence's last pass of ``rows`` rows the first ``kept`` stand; the rest never happened.

        K/V is positional and needs nothing; recurrent layers go back to the state after ``kept`` rows.
        """
        ...

    def release(self, seq: int) -> None:
        """Forget what is kept for a sequence."""
        ...
