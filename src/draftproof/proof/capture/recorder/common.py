"""What both of vLLM's runners share: listening to the drafter's logits, facts at the first round, the end."""

from __future__ import annotations

from typing import Any

import torch

from . import vllm_facts, weights


class Common:
    """One drafter object of the engine (``owner``) and what is known of the round that is under way."""

    def __init__(self, owner: Any, recorder: Any) -> None:
        self.owner, self.recorder = owner, recorder
        self.names: list[str] = []
        self.tensors: dict[str, Any] = {}
        self.prefixes: dict[int, Any] = {}
        self.seen: set[str] = set()
        self._logits: Any = None
        self._listening = False

    def model(self) -> Any:
        raise NotImplementedError

    def start(self, runner: Any, name: str, mask_token_id: int, causal: bool | None) -> None:
        """Facts, and the weights as they lie in memory now; probes of packed ones run here, on the engine's thread."""
        model = self.model()
        facts = vllm_facts.facts(self.owner.vllm_config, model, runner, name)
        facts["drafter"] |= {
            "mask_token_id": int(mask_token_id),
            "layers": vllm_facts.layers(model, causal),
            "num_draft_tokens": int(self.owner.vllm_config.speculative_config.num_speculative_tokens),
        }
        self.recorder.begin(facts, weights.collect(model, int(mask_token_id)))

    def listen(self) -> None:
        """Keep the largest draft logits of every call from now on."""
        self._logits = None
        model = self.owner.model
        if self._listening:
            return
        original, top = model.compute_logits, self.recorder.settings.top

        def compute_logits(*args: Any, **kwargs: Any) -> Any:
            logits = original(*args, **kwargs)
            if self.recorder.open and torch.is_tensor(logits) and logits.dim() == 2:
                self._logits = torch.topk(logits, min(top, logits.shape[-1]), dim=-1)
            return logits

        object.__setattr__(model, "compute_logits", compute_logits)
        self._listening = True

    def heard(self, batch: int, count: int) -> dict[str, Any]:
        """The kept logits, where there is a row per drafted token."""
        found, self._logits = self._logits, None
        if found is None or found.indices.shape[0] != batch * count:
            return {}
        return {
            "top_ids": found.indices.view(batch, count, -1),
            "top_logits": found.values.float().view(batch, count, -1),
        }

    def finish_if_closed(self) -> None:
        if not self.recorder.open and self._listening:
            self._listening = False
            vars(self.owner.model).pop("compute_logits", None)
        self.tensors, self.prefixes = {}, {}
