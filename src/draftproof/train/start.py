"""What a drafter looks like and what its weights are before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftproof import compat
from draftproof.drafters.formats import build_target_layer_ids, read_spec
from draftproof.drafters.spec import DrafterSpec, LayerSpec, RopeSpec
from draftproof.drafters.tensors import check_tensors
from draftproof.errors import MismatchError, UsageError
from draftproof.targets.native import layer_weights
from draftproof.train.config import TrainConfig
from draftproof.train.module import DrafterModule

SMALL = 0.02


def make_spec(config: TrainConfig, model: Any) -> DrafterSpec:
    """The drafter that ``config`` asks for beside a transformers model."""
    base = compat.text_config(model.config)
    layers = base.num_hidden_layers
    taps = config.taps or tuple(i + 1 for i in build_target_layer_ids(layers, config.num_taps))
    if len(set(taps)) != len(taps) or not all(0 <= t <= layers for t in taps):
        raise MismatchError(
            f"taps={list(taps)}: the target has {layers} layers, so give different indices from 0 to {layers}"
        )
    vocab = model.get_input_embeddings().weight.shape[0]
    rope = base.rope_parameters or {}
    slides = config.layers - config.full_layers
    return DrafterSpec(
        hidden_size=base.hidden_size,
        num_layers=config.layers,
        num_heads=base.num_attention_heads,
        num_kv_heads=base.num_key_value_heads,
        head_dim=getattr(base, "head_dim", None) or base.hidden_size // base.num_attention_heads,
        intermediate_size=base.intermediate_size,
        vocab_size=vocab,
        block_size=config.block_size,
        mask_token_id=config.mask_token_id,
        tap_layers=tuple(taps),
        layers=tuple(
            LayerSpec(True, config.window, config.causal) if i < slides else LayerSpec(False, None, config.causal)
            for i in range(config.layers)
        ),
        rms_norm_eps=base.rms_norm_eps,
        max_position_embeddings=base.max_position_embeddings,
        rope=RopeSpec(theta=float(rope.get("rope_theta", 10_000.0))),
        num_target_layers=layers,
        draft_vocab_size=config.draft_vocab if 0 < config.draft_vocab < vocab else None,
        target_architectures=tuple(getattr(model.config, "architectures", None) or ()),
    )


def initial_weights(module: DrafterModule, config: TrainConfig, model: Any) -> None:
    """Fill the module's parameters in place, as ``config.init`` says."""
    torch.manual_seed(config.seed)
    for name, parameter in module.named_parameters():
        if not name.endswith("norm.weight"):
            torch.nn.init.normal_(parameter, std=SMALL)
    if config.init == "target":
        _copy_target(module, model)
    elif config.init != "random":
        _copy_drafter(module, Path(config.init))


def _copy_drafter(module: DrafterModule, folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(f"init={str(folder)!r}: no such folder; use target, random or a drafter's folder")
    from safetensors import safe_open

    spec = read_spec(folder)
    info = check_tensors(spec, folder)
    state: dict[str, Tensor] = {}
    for name in module.state_dict():
        entry = info.tensors.get(name, None)
        wanted = module.state_dict()[name].shape
        if entry is None or tuple(entry.shape) != tuple(wanted) or spec.tap_layers != module.spec.tap_layers:
            raise MismatchError(
                f"init={folder.name}: {name} does not fit (another size, or other taps than "
                f"{list(module.spec.tap_layers)}); use init: target"
            )
        with safe_open(str(entry.file), framework="pt") as handle:
            state[name] = handle.get_tensor(entry.name).float()
    module.load_state_dict(state)


def _copy_target(module: DrafterModule, model: Any) -> None:
    """The target's last layers, whose keys and values then come from the last tap nearly as in the target.

    The target normalises before its projections with weights of each layer's own, while a drafter's context has one
    norm for all: those weights are folded into the projections. Norms of queries and keys, which a Llama-type
    target lacks, start at the size that queries and keys have there, so that attention is as sharp as it was.
    """
    layers = list(model.base_model.layers)
    if len(layers) < len(module.layers):
        raise MismatchError(f"init=target: {len(module.layers)} layers wanted, the target has {len(layers)}")
    spec = module.spec
    for mine, theirs in zip(module.layers, layers[-len(module.layers) :], strict=True):
        w = layer_weights(theirs, compat.text_config(model.config))
        scale = w.input_norm.float()[None]
        state = {
            "self_attn.q_proj.weight": w.q.float() * scale,
            "self_attn.k_proj.weight": w.k.float() * scale,
            "self_attn.v_proj.weight": w.v.float() * scale,
            "self_attn.o_proj.weight": w.o.float(),
            "mlp.gate_proj.weight": w.gate.float(),
            "mlp.up_proj.weight": w.up.float(),
            "mlp.down_proj.weight": w.down.float(),
            "post_attention_layernorm.weight": w.post_norm.float(),
        }
        state["self_attn.q_norm.weight"] = _size(state["self_attn.q_proj.weight"], w.q_norm, spec.head_dim)
        state["self_attn.k_norm.weight"] = _size(state["self_attn.k_proj.weight"], w.k_norm, spec.head_dim)
        mine.load_state_dict(state, strict=False)
    with torch.no_grad():
        width = spec.target_width
        module.fc.weight.mul_(0.1)
        if width == spec.hidden_size:
            module.fc.weight[:, -width:] += torch.eye(width)
        module.norm.weight.copy_(model.base_model.norm.weight.float())


def _size(projection: Tensor, norm: Tensor | None, dim: int) -> Tensor:
    """[dim]: the target's own norm, or the root mean square its projection gives to rows of unit size."""
    if norm is not None:
        return norm.float()
    return projection.pow(2).sum(-1).mean().sqrt().expand(dim).clone()
