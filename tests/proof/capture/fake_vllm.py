"""The parts of vLLM's V1 drafter that the recorder touches, in their places. Copied into a package ``vllm``."""

from __future__ import annotations

from typing import Any

import torch


class DFlashProposer:
    parallel_drafting_token_id = 1
    dflash_causal = True

    def __init__(self, vllm_config: Any, device: Any, runner: Any = None) -> None:
        from fake_engine import Model

        self.vllm_config = vllm_config
        self.model = Model()
        self.input_ids = torch.zeros(16, dtype=torch.long)
        self.positions = torch.zeros(16, dtype=torch.long)
        self._context_positions_buffer = torch.zeros(16, dtype=torch.long)

    def propose(
        self,
        num_speculative_tokens: int,
        target_token_ids: torch.Tensor,
        target_positions: torch.Tensor,
        target_hidden_states: torch.Tensor,
        next_token_ids: torch.Tensor,
        token_indices_to_sample: Any,
        common_attn_metadata: Any,
        sampling_metadata: Any,
        num_rejected_tokens_gpu: Any = None,
    ) -> torch.Tensor:
        end = int(target_positions[-1]) + 1 - int(num_rejected_tokens_gpu[0])
        self._context_positions_buffer[:3] = target_positions
        self.input_ids[:4] = torch.tensor([int(next_token_ids[0]), 1, 1, 1])
        self.positions[:4] = torch.arange(end, end + 4)
        return self.model.compute_logits(torch.ones(3, target_hidden_states.shape[1])).argmax(-1)[None]
