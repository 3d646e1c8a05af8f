"""vLLM's V1 runner: what ``DFlashProposer.propose`` is given, what it ran, what it drafted.

Seen in vLLM 0.22 to 0.32: taps come concatenated, [rows, taps × H]; rows of rejected drafts are still among them
and are counted in ``num_rejected_tokens_gpu``; the block's ids and positions stand in the proposer's buffers after
the call.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from . import vllm_facts
from .common import Common
from .recorder import Round

RUNNER = "_draftproof_runner"

NAMES = (
    "num_speculative_tokens",
    "target_token_ids",
    "target_positions",
    "target_hidden_states",
    "next_token_ids",
    "token_indices_to_sample",
    "common_attn_metadata",
    "sampling_metadata",
    "mm_embed_inputs",
    "num_rejected_tokens_gpu",
    "slot_mappings",
)


def remember_runner(module: Any) -> None:
    """A drafter is made with its runner and does not keep it; requests are named there."""
    owner = module.DFlashProposer
    original = owner.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        object.__setattr__(self, RUNNER, kwargs.get("runner") or args[2])

    owner.__init__ = __init__


class Session(Common):
    def __init__(self, owner: Any, recorder: Any) -> None:
        super().__init__(owner, recorder)
        self.runner = getattr(owner, RUNNER)

    def begin(self) -> None:
        causal = getattr(self.owner, "dflash_causal", None)
        self.start(self.runner, "V1", self.owner.parallel_drafting_token_id, causal)

    def before(self, args: Any, kwargs: Any) -> None:
        given = {**dict(zip(NAMES, args)), **kwargs}  # noqa: B905 - fewer positional arguments than names
        self.listen()
        positions = given["target_positions"]
        starts = given["common_attn_metadata"].query_start_loc_cpu
        rejected = given.get("num_rejected_tokens_gpu")
        batch = starts.numel() - 1
        self.names = [str(name) for name in self.runner.input_batch.req_ids[:batch]]
        self.tensors = {
            "token_ids": given["target_token_ids"].detach().clone(),
            "positions": (positions[0] if positions.dim() == 2 else positions).detach().clone(),
            "query_start": starts.detach().clone(),
            "taps": given["target_hidden_states"].detach().clone(),
            "anchors": given["next_token_ids"][:batch].detach().clone(),
            "rejected": torch.zeros(batch, dtype=torch.int64) if rejected is None else rejected[:batch].clone(),
        }
        self.prefixes = self.missing_prefixes()

    def missing_prefixes(self) -> dict[int, Any]:
        """Ids before a request's first row: the prefix cache brought them, so they will not come as rows."""
        found = {}
        starts, positions = self.tensors["query_start"].tolist(), self.tensors["positions"]
        for i, name in enumerate(self.names):
            if name in self.seen:
                continue
            self.seen.add(name)
            first = int(positions[starts[i]])
            state = self.runner.requests.get(name) if first else None
            ids = [] if state is None else [*state.prompt_token_ids, *state.output_token_ids][:first]
            if len(ids) == first > 0 and min(ids) >= 0:
                found[i] = torch.tensor(ids)
        return found

    def after(self, drafts: Any) -> None:
        batch, count = drafts.shape
        rows = self.tensors["token_ids"].numel()
        if not self.recorder.begun:
            self.begin()
        self.tensors |= {
            "drafts": drafts.detach().clone(),
            "block_ids": self.owner.input_ids[: batch * (count + 1)].detach().clone().view(batch, -1),
            "block_positions": self.owner.positions[: batch * (count + 1)].detach().clone().view(batch, -1),
            "context_positions": self.owner._context_positions_buffer[:rows].detach().clone(),
            **self.heard(batch, count),
        }
        self.recorder.add(Round(self.names, self.tensors, self.prefixes))
        self.finish_if_closed()

    def model(self) -> Any:
        return vllm_facts.unwrapped(self.owner.model)
