"""vLLM's V2 runner: ``DFlashSpeculator.propose`` (0.24 and later).

The taps come as a list per index; ids and positions of the block lie in the speculator's input buffers after the
call. Where the block runs inside a full CUDA graph, no logits pass through Python, so none are kept.
"""

from __future__ import annotations

from typing import Any

import torch

from . import vllm_facts
from .common import Common
from .recorder import Round

NAMES = (
    "input_batch",
    "attn_metadata",
    "slot_mappings",
    "last_hidden_states",
    "aux_hidden_states",
    "num_sampled",
    "num_rejected",
)


class Session(Common):
    skipped = False

    def before(self, args: Any, kwargs: Any) -> None:
        given = {**dict(zip(NAMES, args)), **kwargs}  # noqa: B905 - fewer positional arguments than names
        aux, batch = given.get("aux_hidden_states"), given["input_batch"]
        self.skipped = bool(given.get("dummy_run")) or not aux
        if self.skipped or aux is None:
            return
        self.listen()
        rows, count = int(batch.num_tokens), int(batch.num_reqs)
        self.names = [str(name) for name in batch.req_ids[:count]]
        starts = torch.as_tensor(batch.query_start_loc_np[: count + 1].copy())
        self.tensors = {
            "token_ids": batch.input_ids[:rows].detach().clone(),
            "positions": batch.positions[:rows].detach().clone(),
            "query_start": starts,
            "taps": torch.cat(list(aux), dim=-1)[:rows].detach().clone(),
            "rejected": given["num_rejected"][:count].detach().clone(),
        }

    def after(self, drafts: Any) -> None:
        if self.skipped:
            return
        batch, count = drafts.shape
        if not self.recorder.begun:
            self.start(None, "V2", self.owner.parallel_drafting_token_id, None)
        buffers, rows = self.owner.input_buffers, self.tensors["token_ids"].numel()
        block_ids = buffers.input_ids[: batch * (count + 1)].detach().clone().view(batch, -1)
        self.tensors |= {
            "anchors": block_ids[:, 0].clone(),
            "drafts": drafts.detach().clone(),
            "block_ids": block_ids,
            "block_positions": buffers.positions[: batch * (count + 1)].detach().clone().view(batch, -1),
            "context_positions": self.owner.context_positions[:rows].detach().clone(),
            **self.heard(batch, count),
        }
        self.recorder.add(Round(self.names, self.tensors))
        self.finish_if_closed()

    def model(self) -> Any:
        return vllm_facts.unwrapped(self.owner.model)
