"""Stands for vLLM in tests of the command: loads plugins, drafts as many rounds as its argument says, ends."""

from __future__ import annotations

import sys
import time
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

import torch

WIDTH, COUNT = 4, 3


class Model(torch.nn.Module):
    """No layers; a head, and a table of embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.lm_head = torch.nn.Linear(WIDTH, 10, bias=False)
        self.model = torch.nn.Module()
        self.model.layers = torch.nn.ModuleList()
        self.model.embed_tokens = torch.nn.Embedding(10, WIDTH)
        self.model.embed_input_ids = self.model.embed_tokens

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.lm_head(hidden)


def config() -> Any:
    drafter = SimpleNamespace(to_dict=lambda: {"hidden_size": WIDTH, "odd": object()})
    return SimpleNamespace(
        speculative_config=SimpleNamespace(
            num_speculative_tokens=COUNT, draft_model_config=SimpleNamespace(hf_config=drafter, model="drafter")
        ),
        parallel_config=SimpleNamespace(tensor_parallel_size=1, rank=0),
        model_config=SimpleNamespace(dtype=torch.float32, model="target", enforce_eager=True),
        cache_config=SimpleNamespace(enable_prefix_caching=False),
    )


def main() -> None:
    for point in entry_points(group="vllm.general_plugins"):
        point.load()()
    from vllm.v1.spec_decode.dflash import DFlashProposer

    state = SimpleNamespace(prompt_token_ids=[7, 7], output_token_ids=[])
    runner = SimpleNamespace(input_batch=SimpleNamespace(req_ids=["a"]), requests={"a": state})
    drafter = DFlashProposer(config(), "cpu", runner)
    with torch.inference_mode():
        for number in range(int(sys.argv[1])):
            start = 2 + 2 * number  # two tokens came from the prefix cache
            drafts = drafter.propose(
                COUNT,
                torch.tensor([5, 6, 9]),
                torch.tensor([start, start + 1, start + 2]),
                torch.full((3, WIDTH), float(number)),
                torch.tensor([5]),
                None,
                SimpleNamespace(query_start_loc_cpu=torch.tensor([0, 3])),
                None,
                num_rejected_tokens_gpu=torch.tensor([1]),
            )
            assert drafts.shape == (1, COUNT)
    time.sleep(0.2)


if __name__ == "__main__":
    main()
