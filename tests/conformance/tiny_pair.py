"""Make a tiny seeded target and a DFlash drafter for it, as folders that any engine can load.

The pair exists to catch wiring faults, so it meets two conditions a random pair does not:

* it is a *witness*: its weights start with a standard deviation of 0.15 (at 0.02 a drafter proposes one token
  whatever is broken), and it is trained to answer with one constant token when a layer's causality is
  flipped, so far more than 10 % of its drafts change under that fault;
* it is *partly accepted*: the target is taught a made-up language, and the drafter some of the target's
  greedy answers, so rounds produce anything from one token to a whole block.

Needs torch and transformers only; imports neither draftproof nor any peer. About ten seconds on one core.
Run as a script::

    python tiny_pair.py --out DIR [--layer-types sliding,full,sliding] [--window 16] [--is-causal absent]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from tiny_drafter import ROPE_THETA, TinyDrafter, TinyPair
from torch import Tensor, nn
from torch.nn import functional as F

IS_CAUSAL = {"absent": None, "true": True, "false": False}
INIT_STD = 0.15
PROMPT_LENGTH, ANSWER_LENGTH = 12, 80
DIALECTS = 3  # word orders of the made-up language; which one a text follows is seen in the text only
FAULT_TOKEN = 0  # what the drafter is trained to answer when a layer's causality is flipped


# --------------------------------------------------------------------------------------------- the target


def dialect_rows(pair: TinyPair, count: int, length: int, seed: int) -> Tensor:
    """Text of the made-up language: in each row one of ``DIALECTS`` permutations names the next word."""
    words = pair.vocab - 1  # the mask token is no word
    grammar = torch.Generator().manual_seed(pair.seed)
    maps = torch.stack([torch.randperm(words, generator=grammar) for _ in range(DIALECTS)])
    generator = torch.Generator().manual_seed(seed)
    dialect = torch.randint(0, DIALECTS, (count,), generator=generator)
    rows = [torch.randint(0, words, (count,), generator=generator)]
    for _ in range(length - 1):
        rows.append(maps[dialect, rows[-1]])
    return torch.stack(rows, dim=1)


def prompt_rows(pair: TinyPair, count: int, length: int, seed: int) -> Tensor:
    """Prompts: text of the made-up language, every third one random words instead."""
    rows = dialect_rows(pair, count, length, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    rows[2::3] = torch.randint(0, pair.vocab - 1, rows[2::3].shape, generator=generator)
    return rows


def tiny_prompts(pair: TinyPair, count: int, length: int, seed: int = 100) -> list[list[int]]:
    """Prompts the drafter was not trained on, as lists of token ids."""
    return prompt_rows(pair, count, length, seed).tolist()


def random_target(pair: TinyPair) -> nn.Module:
    """A seeded Qwen3 model of the pair's shape, without any stop token."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(pair.seed)
    config = Qwen3Config(
        vocab_size=pair.vocab,
        hidden_size=pair.width,
        num_hidden_layers=pair.target_layers,
        num_attention_heads=pair.heads,
        num_key_value_heads=pair.kv_heads,
        head_dim=pair.head_dim,
        intermediate_size=2 * pair.width,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        initializer_range=INIT_STD,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        dtype="float32",
    )
    return Qwen3ForCausalLM(config)


def make_target(pair: TinyPair) -> nn.Module:
    """The random model after a few steps on the made-up language, which it then knows but not perfectly."""
    target = random_target(pair)
    rows = dialect_rows(pair, 1024, 48, pair.seed + 1)
    generator = torch.Generator().manual_seed(pair.seed + 2)
    optimizer = torch.optim.AdamW(target.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(pair.target_steps):
        batch = rows[torch.randint(0, len(rows), (24,), generator=generator)]
        logits = target(batch).logits[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return target.eval().requires_grad_(False)


@torch.no_grad()
def greedy_answers(target: nn.Module, prompts: Tensor, length: int) -> Tensor:
    """Prompts of equal length with ``length`` greedy tokens appended, one row each."""
    from transformers import DynamicCache

    rows, step, cache = prompts, prompts, DynamicCache(config=target.config)
    for _ in range(length):
        step = target(step, cache=cache, use_cache=True).logits[:, -1:].argmax(-1)
        rows = torch.cat([rows, step], dim=1)
    return rows


@torch.no_grad()
def read_taps(target: nn.Module, rows: Tensor, layer_ids: tuple[int, ...]) -> Tensor:
    """Outputs of the listed layers for every position, concatenated in list order."""
    states = target(rows, output_hidden_states=True).hidden_states
    return torch.cat([states[i + 1] for i in layer_ids], dim=-1)


# -------------------------------------------------------------------------------------------- the drafter


def random_drafter(pair: TinyPair, generator: torch.Generator) -> TinyDrafter:
    """Wide random weights, with queries scaled up so that attention looks at single keys."""
    drafter = TinyDrafter(pair)
    for name, parameter in drafter.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=INIT_STD, generator=generator)
        elif "q_norm" in name:
            nn.init.constant_(parameter, 2.0)
    return drafter


def make_drafter(pair: TinyPair, target: nn.Module) -> TinyDrafter:
    """A drafter fitted to some greedy answers, and to betray itself when a layer's causality is flipped."""
    generator = torch.Generator().manual_seed(pair.seed + 3)
    drafter = random_drafter(pair, generator)
    rows = greedy_answers(target, prompt_rows(pair, 384, PROMPT_LENGTH, pair.seed + 4), ANSWER_LENGTH)
    taps = read_taps(target, rows, pair.target_layer_ids)
    embed, head = target.get_input_embeddings(), target.get_output_embeddings()
    optimizer = torch.optim.AdamW(drafter.parameters(), lr=3e-3, weight_decay=0.0)
    for step in range(pair.steps):
        chosen = torch.randint(0, len(rows), (32,), generator=generator)
        last = rows.shape[1] - pair.block
        anchor = int(torch.randint(PROMPT_LENGTH, last, (1,), generator=generator))
        block = torch.full((len(chosen), pair.block), pair.mask_token_id)
        block[:, 0] = rows[chosen, anchor]
        labels = rows[chosen, anchor + 1 : anchor + pair.block].flatten()

        def loss(labels: Tensor, flip: int | None) -> Tensor:
            hidden = drafter(embed(block), taps[chosen, :anchor], flip)[:, 1:]  # noqa: B023
            return F.cross_entropy(head(hidden).flatten(0, 1), labels)

        flip = step % len(pair.layer_types)
        optimizer.zero_grad()
        (loss(labels, None) + loss(torch.full_like(labels, FAULT_TOKEN), flip)).backward()
        optimizer.step()
    return drafter


# --------------------------------------------------------------------------------------------- the folders


def drafter_config(pair: TinyPair) -> dict[str, object]:
    """``config.json`` of the drafter, in the format z-lab publishes."""
    config: dict[str, object] = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": pair.width,
        "num_hidden_layers": len(pair.layer_types),
        "num_attention_heads": pair.heads,
        "num_key_value_heads": pair.kv_heads,
        "head_dim": pair.head_dim,
        "intermediate_size": 2 * pair.width,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "vocab_size": pair.vocab,
        "max_position_embeddings": 1024,
        "attention_bias": False,
        "layer_types": list(pair.layer_types),
        "sliding_window": pair.window,
        "use_sliding_window": True,
        "rope_theta": ROPE_THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
        "tie_word_embeddings": False,
        "dtype": "float32",
        "block_size": pair.block,
        "num_target_layers": pair.target_layers,
        "dflash_config": {
            "target_layer_ids": list(pair.target_layer_ids),
            "mask_token_id": pair.mask_token_id,
            "block_size": pair.block,
        },
    }
    if pair.is_causal is not None:
        config["is_causal"] = pair.is_causal
    return config


def save_tokenizer(pair: TinyPair, folder: Path) -> None:
    """A tokenizer whose words are ``t0`` … so that the target's folder is complete."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(pair.vocab)}, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)


@contextmanager
def one_thread() -> Iterator[None]:
    """Tiny matrices gain nothing from threads, and lose much on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_tiny_pair(folder: Path, pair: TinyPair) -> tuple[Path, Path]:
    """Write ``folder/target`` and ``folder/drafter``; a folder made from the same values is reused."""
    from safetensors.torch import save_file

    target_folder, drafter_folder = folder / "target", folder / "drafter"
    stamp, values = folder / "tiny_pair.json", json.dumps(asdict(pair), sort_keys=True)
    if stamp.exists() and stamp.read_text() == values:
        return target_folder, drafter_folder
    drafter_folder.mkdir(parents=True, exist_ok=True)
    with one_thread():
        target = make_target(pair)
        drafter = make_drafter(pair, target)
    target.save_pretrained(target_folder)
    save_tokenizer(pair, target_folder)
    weights = {name: tensor.detach().contiguous() for name, tensor in drafter.state_dict().items()}
    save_file(weights, drafter_folder / "model.safetensors", metadata={"format": "pt"})
    (drafter_folder / "config.json").write_text(json.dumps(drafter_config(pair), indent=1) + "\n")
    stamp.write_text(values)
    return target_folder, drafter_folder


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a tiny target and a DFlash drafter for it.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layer-types", default="sliding,full,sliding", help="comma list of sliding, full")
    parser.add_argument("--window", type=int, default=TinyPair.window)
    parser.add_argument("--block", type=int, default=TinyPair.block)
    parser.add_argument("--is-causal", choices=list(IS_CAUSAL), default="absent")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=TinyPair.steps)
    args = parser.parse_args()
    pair = TinyPair(
        layer_types=tuple(f"{name}_attention" for name in args.layer_types.split(",")),
        window=args.window,
        block=args.block,
        is_causal=IS_CAUSAL[args.is_causal],
        seed=args.seed,
        steps=args.steps,
    )
    print(*make_tiny_pair(args.out, pair), sep="\n")


if __name__ == "__main__":
    main()
