"""Make a tiny seeded target and a DFlash drafter for it, as folders that any engine can load.

The pair exists to catch wiring faults, so it must satisfy two conditions a random pair does not:

* it is a *witness*: its weights are drawn with a standard deviation of 0.15 (at 0.02 a drafter proposes one
  token whatever is broken), so a flipped causality, a lost window or a shifted layer id changes its drafts;
* it is *partly accepted*: the drafter is trained for a few seconds on the target's own greedy answers, so
  rounds produce anything from one token to a whole block, and the roll-back paths are exercised.

Needs torch and transformers only; imports neither draftproof nor any peer. Run as a script::

    python tiny_pair.py --out DIR [--layer-types sliding,sliding,full] [--window 16] [--is-causal absent]
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FULL, SLIDING = "full_attention", "sliding_attention"
IS_CAUSAL = {"absent": None, "true": True, "false": False}
INIT_STD = 0.15
ROPE_THETA = 10000.0
ANSWER_LENGTH = 80


@dataclass(frozen=True)
class TinyPair:
    """Everything that decides the two folders' content. ``target_layer_ids`` are 0-based layer outputs.

    ``is_causal`` None leaves the key out of the drafter's file (then sliding layers are causal and full ones
    are not). ``steps`` 0 leaves the drafter random. ``motifs`` is the number of short token loops the target
    is taught; they are what makes its answers predictable now and then.
    """

    layer_types: tuple[str, ...] = (SLIDING, FULL, SLIDING)
    window: int = 16
    block: int = 8
    is_causal: bool | None = None
    seed: int = 0
    vocab: int = 128
    target_layers: int = 5
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    target_layer_ids: tuple[int, ...] = (1, 2, 3)
    steps: int = 300

    @property
    def mask_token_id(self) -> int:
        return self.vocab - 1

    def is_layer_causal(self, layer: int) -> bool:
        return self.layer_types[layer] == SLIDING if self.is_causal is None else self.is_causal


# --------------------------------------------------------------------------------------------- the target


def make_target(pair: TinyPair) -> nn.Module:
    """A seeded Qwen3 model with weights wide enough that its greedy answers are not one constant token."""
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
    return Qwen3ForCausalLM(config).eval()


@torch.no_grad()
def greedy_answers(target: nn.Module, prompts: Tensor, length: int) -> Tensor:
    """Prompts of equal length with ``length`` greedy tokens appended, one row each."""
    rows, cache, step = prompts, None, prompts
    for _ in range(length):
        out = target(step, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        step = out.logits[:, -1:].argmax(-1)
        rows = torch.cat([rows, step], dim=1)
    return rows


@torch.no_grad()
def read_taps(target: nn.Module, rows: Tensor, layer_ids: tuple[int, ...]) -> Tensor:
    """Outputs of the listed layers for every position, concatenated in list order."""
    states = target(rows, output_hidden_states=True).hidden_states
    return torch.cat([states[i + 1] for i in layer_ids], dim=-1)


# -------------------------------------------------------------------------------------------- the drafter


class _Attention(nn.Module):
    def __init__(self, pair: TinyPair) -> None:
        super().__init__()
        inner, kv_inner = pair.heads * pair.head_dim, pair.kv_heads * pair.head_dim
        self.head_dim, self.groups = pair.head_dim, pair.heads // pair.kv_heads
        self.q_proj = nn.Linear(pair.width, inner, bias=False)
        self.k_proj = nn.Linear(pair.width, kv_inner, bias=False)
        self.v_proj = nn.Linear(pair.width, kv_inner, bias=False)
        self.o_proj = nn.Linear(inner, pair.width, bias=False)
        self.q_norm, self.k_norm = nn.RMSNorm(pair.head_dim, eps=1e-6), nn.RMSNorm(pair.head_dim, eps=1e-6)

    def forward(self, block: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        keys_in = torch.cat([context, block], dim=1)

        def split(x: Tensor) -> Tensor:
            return x.unflatten(-1, (-1, self.head_dim))

        total = keys_in.shape[1]
        positions = torch.arange(total)
        q = rotate(self.q_norm(split(self.q_proj(block))), positions[total - block.shape[1] :])
        k = rotate(self.k_norm(split(self.k_proj(keys_in))), positions)
        v = split(self.v_proj(keys_in))
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        k, v = (x.repeat_interleave(self.groups, dim=1) for x in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class _Layer(nn.Module):
    def __init__(self, pair: TinyPair) -> None:
        super().__init__()
        self.self_attn = _Attention(pair)
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(pair.width, 2 * pair.width, bias=False),
                "up_proj": nn.Linear(pair.width, 2 * pair.width, bias=False),
                "down_proj": nn.Linear(2 * pair.width, pair.width, bias=False),
            }
        )
        self.input_layernorm = nn.RMSNorm(pair.width, eps=1e-6)
        self.post_attention_layernorm = nn.RMSNorm(pair.width, eps=1e-6)

    def forward(self, block: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        block = block + self.self_attn(self.input_layernorm(block), context, mask)
        x = self.post_attention_layernorm(block)
        return block + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](x)) * self.mlp["up_proj"](x))


class TinyDrafter(nn.Module):
    """A DFlash drafter in its plainest form: no cache, one block, tensor names as in the file format."""

    def __init__(self, pair: TinyPair) -> None:
        super().__init__()
        self.pair = pair
        self.layers = nn.ModuleList(_Layer(pair) for _ in pair.layer_types)
        self.fc = nn.Linear(len(pair.target_layer_ids) * pair.width, pair.width, bias=False)
        self.hidden_norm = nn.RMSNorm(pair.width, eps=1e-6)
        self.norm = nn.RMSNorm(pair.width, eps=1e-6)

    def forward(self, block: Tensor, taps: Tensor) -> Tensor:
        context = self.hidden_norm(self.fc(taps))
        for i, layer in enumerate(self.layers):
            block = layer(block, context, block_mask(self.pair, i, taps.shape[1], block.shape[1]))
        return self.norm(block)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary embedding of [batch, position, head, dim], halves rotated against each other."""
    half = x.shape[-1] // 2
    rates = ROPE_THETA ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = positions[:, None].float() * rates
    cos, sin = angles.cos()[:, None, :], angles.sin()[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def block_mask(pair: TinyPair, layer: int, context: int, block: int) -> Tensor:
    """Which of the context's and the block's keys each block query may see, as booleans."""
    q = torch.arange(context, context + block)[:, None]
    k = torch.arange(context + block)[None, :]
    causal = pair.is_layer_causal(layer)
    visible = k <= q if causal else torch.ones_like(k <= q)
    if pair.layer_types[layer] == SLIDING:
        visible = visible & (q - k < pair.window)
        if not causal:
            visible = visible & (k - q < pair.window)
    return visible


def train_drafter(pair: TinyPair, target: nn.Module) -> TinyDrafter:
    """A seeded drafter, fitted for ``pair.steps`` steps to the target's own greedy answers."""
    drafter = TinyDrafter(pair)
    generator = torch.Generator().manual_seed(pair.seed + 1)
    for parameter in drafter.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=INIT_STD, generator=generator)
    if pair.steps == 0:
        return drafter
    prompts = torch.randint(0, pair.vocab - 1, (192, 12), generator=generator)
    rows = greedy_answers(target, prompts, ANSWER_LENGTH)
    taps = read_taps(target, rows, pair.target_layer_ids)
    embed, head = target.get_input_embeddings(), target.get_output_embeddings()
    embed.requires_grad_(False), head.requires_grad_(False)
    optimizer = torch.optim.AdamW(drafter.parameters(), lr=3e-3, weight_decay=0.0)
    for step in range(pair.steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * 0.5 * (1 + math.cos(math.pi * step / pair.steps))
        anchor = int(torch.randint(12, rows.shape[1] - pair.block, (1,), generator=generator))
        block_ids = torch.full((rows.shape[0], pair.block), pair.mask_token_id)
        block_ids[:, 0] = rows[:, anchor]
        logits = head(drafter(embed(block_ids), taps[:, :anchor])[:, 1:])
        labels = rows[:, anchor + 1 : anchor + pair.block]
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
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


def make_tiny_pair(folder: Path, pair: TinyPair = TinyPair()) -> tuple[Path, Path]:
    """Write ``folder/target`` and ``folder/drafter``; a folder made from the same values is reused."""
    from safetensors.torch import save_file

    target_folder, drafter_folder = folder / "target", folder / "drafter"
    stamp, values = folder / "tiny_pair.json", json.dumps(asdict(pair), sort_keys=True)
    if stamp.exists() and stamp.read_text() == values:
        return target_folder, drafter_folder
    drafter_folder.mkdir(parents=True, exist_ok=True)
    target = make_target(pair)
    drafter = train_drafter(pair, target)
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
