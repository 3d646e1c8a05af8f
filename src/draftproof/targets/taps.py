"""Taps: hidden states of the target that a drafter reads, recorded for one pass at a time.

Index j is HF's ``output_hidden_states`` index: 0 the embeddings, j the output of layer j - 1, and the last one
the value after the final norm. Which indices are wanted is an argument of every pass, never state of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class TapRecorder:
    """Hooks on the decoder layers that keep outputs only while ``recording``."""

    def __init__(self, layers: torch.nn.ModuleList, final_norm: torch.nn.Module | None) -> None:
        self.count = len(layers)
        self._wanted: frozenset[int] = frozenset()
        self._order: Sequence[int] = ()
        self._kept: dict[int, Tensor] = {}
        layers[0].register_forward_pre_hook(self._keep_embeddings, with_kwargs=True)
        last = self.count if final_norm is None else self.count - 1
        for j, layer in enumerate(list(layers)[:last], start=1):
            layer.register_forward_hook(self._keeper(j))
        if final_norm is not None:
            final_norm.register_forward_hook(self._keeper(self.count))

    @contextmanager
    def recording(self, taps: Sequence[int]) -> Iterator[TapRecorder]:
        self._order, self._wanted = taps, frozenset(taps)
        self._kept = {}
        try:
            yield self
        finally:
            self._wanted = frozenset()

    def collect(self) -> Tensor | None:
        """[R, len(taps) × H] in the order asked for, or None when nothing was."""
        if not self._order:
            return None
        return torch.cat([self._kept[j][0] for j in self._order], dim=-1)

    def _keep_embeddings(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if 0 in self._wanted:
            self._kept[0] = args[0] if args else kwargs["hidden_states"]

    def _keeper(self, index: int) -> Any:
        def keep(module: torch.nn.Module, args: Any, output: Any) -> None:
            if index in self._wanted:
                self._kept[index] = output[0] if isinstance(output, tuple) else output

        return keep
