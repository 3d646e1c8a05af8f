"""What a drafter is put together from, and how to put it together wrongly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from draftproof.drafters.dflash import DFlashDrafter, DFlashWeights
from draftproof.drafters.spec import DrafterSpec, LayerSpec
from draftproof.native import LayerWeights
from draftproof.targets.base import Target


@dataclass(frozen=True)
class Wiring:
    """``make`` is the class that runs the parts."""

    spec: DrafterSpec
    weights: DFlashWeights
    make: type[DFlashDrafter] = DFlashDrafter

    def build(self, target: Target) -> DFlashDrafter:
        return self.make(self.spec, self.weights, target)

    def with_spec(self, **changes: Any) -> Wiring:
        """Another specification; what layers copy from it (window, direction) follows."""
        spec = replace(self.spec, **changes)
        layers = [
            replace(layer, window=spec.reach(i), bidirectional=not spec.layers[i].causal)
            for i, layer in enumerate(self.weights.layers)
        ]
        return replace(self, spec=spec, weights=replace(self.weights, layers=layers))

    def with_layers(self, change: Callable[[LayerSpec], LayerSpec]) -> Wiring:
        return self.with_spec(layers=tuple(map(change, self.spec.layers)))

    def with_weights(self, **changes: Any) -> Wiring:
        return replace(self, weights=replace(self.weights, **changes))

    def with_matrices(self, change: Callable[[Tensor], Tensor]) -> Wiring:
        """``change`` applied to every matrix of the layers and to ``fc``."""

        def changed(layer: LayerWeights) -> LayerWeights:
            parts: dict[str, Any] = {
                name: change(getattr(layer, name)) for name in ("q", "k", "v", "o", "gate", "up", "down")
            }
            return replace(layer, **parts)

        return self.with_weights(fc=change(self.weights.fc), layers=[changed(x) for x in self.weights.layers])

    def made_by(self, make: type[DFlashDrafter]) -> Wiring:
        return replace(self, make=make)
