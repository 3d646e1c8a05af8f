"""From what the user named to a drafter beside its target: files are checked before a weight is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftproof.drafters.base import Drafter
from draftproof.drafters.dflash import DFlashDrafter, DFlashWeights
from draftproof.drafters.formats import read_spec
from draftproof.drafters.ngram import NgramDrafter
from draftproof.drafters.pairing import check_pair
from draftproof.drafters.spec import DrafterSpec, LayerSpec, RopeSpec
from draftproof.drafters.tensors import WeightsInfo, check_tensors
from draftproof.engine.options import EngineOptions
from draftproof.errors import CapabilityError, CheckpointError, MismatchError, UnavailableError, UsageError
from draftproof.native import LayerWeights
from draftproof.targets.base import Target

RANDOM_STD = 0.02


def load_drafter(name: str, target: Target, options: EngineOptions, notes: list[str]) -> Drafter:
    """``ngram``, ``random[:seed]``, a folder or a hub id. Raises one-line errors that name file, field or tensor;
    what is only doubtful is appended to ``notes``."""
    if name == "ngram":
        return NgramDrafter(options.num_speculative_tokens or 7)
    spec, weights = load_weights(name, target, notes)
    count = options.num_speculative_tokens
    if count is not None and count > spec.num_draft_tokens:
        raise UsageError(
            f"num_speculative_tokens={count}: this drafter has block size {spec.block_size}, so it proposes at most "
            f"{spec.num_draft_tokens}"
        )
    return DFlashDrafter(spec, weights, target, num_draft_tokens=count)


def load_weights(name: str, target: Target, notes: list[str]) -> tuple[DrafterSpec, DFlashWeights]:
    """A DFlash drafter's parts, checked against each other and against ``target``; see ``load_drafter``."""
    if name == "random" or name.startswith("random:"):
        return random_drafter(target, _seed(name))
    folder = _locate(name)
    spec = read_spec(folder)
    info = check_tensors(spec, folder)
    notes += check_pair(spec, target.info.config, info)
    notes += [*spec.warnings, *info.warnings]
    if spec.unknown_keys:
        notes.append(f"{folder.name}/config.json: nobody here reads {', '.join(spec.unknown_keys)}")
    return spec, read_weights(spec, info, folder, target)


def _seed(name: str) -> int:
    text = name.partition(":")[2] or "0"
    if not text.isdecimal():
        raise UsageError(f"drafter={name!r}: the seed must be a whole number, as in random:7")
    return int(text)


def _locate(name: str) -> Path:
    """A local folder, or a hub repository's snapshot with configuration and weights."""
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise CheckpointError(f"{name}: a drafter is a folder with config.json and safetensors, this is a file")
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise CheckpointError(f"{name}: no such drafter folder, and not a hub id of the form owner/name")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "mask_embedding.pt"]))
    except Exception as error:  # the hub's errors share no base class
        short = " ".join(str(error).split())[:200]
        raise UnavailableError(f"{name}: cannot be had from the hub ({short}); is there a network?") from error


def read_weights(spec: DrafterSpec, info: WeightsInfo, folder: Path, target: Target) -> DFlashWeights:
    """Tensors of a checked checkpoint on the target's device, in its dtype."""
    from safetensors import safe_open

    device, dtype = target.info.device, target.info.dtype
    handles: dict[Path, Any] = {}

    def get(name: str) -> Tensor:
        entry = info.tensors[name]
        if entry.file not in handles:
            handles[entry.file] = safe_open(str(entry.file), framework="pt")
        tensor = handles[entry.file].get_tensor(entry.name)
        return (tensor.to(dtype) if tensor.is_floating_point() else tensor).to(device).contiguous()

    def maybe(name: str) -> Tensor | None:
        return get(name) if name in info.tensors else None

    weights = DFlashWeights(
        fc=get("fc.weight"),
        hidden_norm=get("hidden_norm.weight"),
        norm=get("norm.weight"),
        layers=[_layer(spec, i, get, maybe) for i in range(spec.num_layers)],
        head=maybe("lm_head.weight"),
        embedding=maybe("embed_tokens.weight"),
        mask_embedding=_mask_embedding(spec, info, folder, get),
    )
    if spec.draft_vocab_size is not None:
        offsets = get("d2t").long()
        weights.draft_to_target = torch.arange(len(offsets), device=device) + offsets
        _check_map(weights.draft_to_target, target.info.vocab_size)
    if weights.mask_embedding is not None:
        weights.mask_embedding = weights.mask_embedding.to(device, dtype)
    _check_finite(weights, folder)
    return weights


def _layer(spec: DrafterSpec, index: int, get: Any, maybe: Any) -> LayerWeights:
    prefix = f"layers.{index}."

    def bias(name: str) -> Tensor | None:
        return maybe(f"{prefix}self_attn.{name}_proj.bias") if spec.attention_bias else None

    return LayerWeights(
        input_norm=get(prefix + "input_layernorm.weight"),
        q=get(prefix + "self_attn.q_proj.weight"),
        k=get(prefix + "self_attn.k_proj.weight"),
        v=get(prefix + "self_attn.v_proj.weight"),
        o=get(prefix + "self_attn.o_proj.weight"),
        q_bias=bias("q"),
        k_bias=bias("k"),
        v_bias=bias("v"),
        o_bias=bias("o"),
        q_norm=get(prefix + "self_attn.q_norm.weight"),
        k_norm=get(prefix + "self_attn.k_norm.weight"),
        post_norm=get(prefix + "post_attention_layernorm.weight"),
        gate=get(prefix + "mlp.gate_proj.weight"),
        up=get(prefix + "mlp.up_proj.weight"),
        down=get(prefix + "mlp.down_proj.weight"),
        window=spec.reach(index),
        bidirectional=not spec.layers[index].causal,
    )


def _mask_embedding(spec: DrafterSpec, info: WeightsInfo, folder: Path, get: Any) -> Tensor | None:
    """The trained mask vector, stored as a tensor or in a file of its own beside the weights."""
    if info.mask_embedding is None:
        return None
    if info.mask_embedding in info.tensors:
        return get(info.mask_embedding).flatten()
    file = folder / info.mask_embedding
    try:
        value = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and torch errors alike
        raise CheckpointError(f"{file}: cannot be read as a tensor ({type(error).__name__})") from error
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    if not isinstance(value, Tensor):
        raise CheckpointError(f"{file}: holds a {type(value).__name__}, but one tensor is needed")
    if value.numel() != spec.hidden_size:
        raise CheckpointError(f"{file}: holds {value.numel()} values, hidden_size is {spec.hidden_size}")
    return value.flatten()


def _check_map(ids: Tensor, vocab: int) -> None:
    if int(ids.min()) < 0 or int(ids.max()) >= vocab or len(ids.unique()) != len(ids):
        raise MismatchError(
            f"d2t maps draft tokens to ids {int(ids.min())}..{int(ids.max())}, "
            f"which do not fit a vocabulary of {vocab} one to one"
        )


def _check_finite(weights: DFlashWeights, folder: Path) -> None:
    """A NaN anywhere would make every draft the same token and never show as an error."""
    tensors = [(name, tensor) for name, tensor in vars(weights).items() if isinstance(tensor, Tensor)]
    for i, layer in enumerate(weights.layers):
        tensors += [
            (f"layers.{i} {name}", tensor) for name, tensor in vars(layer).items() if isinstance(tensor, Tensor)
        ]
    for name, tensor in tensors:
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(f"{folder}: {name} holds NaN or infinite values; fetch or convert it again")


def random_drafter(target: Target, seed: int) -> tuple[DrafterSpec, DFlashWeights]:
    """An untrained hybrid drafter that fits ``target``: for trying the machinery, never for speed."""
    info = target.info
    if info.num_layers < 4:
        raise CapabilityError(f"drafter='random' needs a target of at least 4 layers, this one has {info.num_layers}")
    head_dim = 64 if info.hidden_size % 64 == 0 else 16
    heads = max(1, info.hidden_size // head_dim)
    layers = (LayerSpec(True, 128, True), LayerSpec(False, None, False))
    spec = DrafterSpec(
        hidden_size=info.hidden_size,
        num_layers=len(layers),
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        intermediate_size=2 * info.hidden_size,
        vocab_size=info.vocab_size,
        block_size=8,
        mask_token_id=min(6, info.vocab_size - 1),
        tap_layers=tuple(sorted({1, info.num_layers // 2, info.num_layers - 1})),
        layers=layers,
        rope=RopeSpec(theta=10_000.0),
        num_target_layers=info.num_layers,
        source_format="random",
    )
    return spec, random_weights(spec, info.dtype, info.device, seed)


def random_weights(
    spec: DrafterSpec, dtype: torch.dtype, device: torch.device, seed: int, std: float = RANDOM_STD
) -> DFlashWeights:
    """Seeded weights of the shapes a spec asks for; norms are one."""
    random = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> Tensor:
        return (torch.randn(rows, columns, generator=random) * std).to(device, dtype)

    def ones(size: int) -> Tensor:
        return torch.ones(size, device=device, dtype=dtype)

    width, heads, kv = spec.hidden_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    layers = [
        LayerWeights(
            input_norm=ones(width),
            q=matrix(heads, width),
            k=matrix(kv, width),
            v=matrix(kv, width),
            o=matrix(width, heads),
            q_norm=ones(spec.head_dim),
            k_norm=ones(spec.head_dim),
            post_norm=ones(width),
            gate=matrix(spec.intermediate_size, width),
            up=matrix(spec.intermediate_size, width),
            down=matrix(width, spec.intermediate_size),
            window=spec.reach(index),
            bidirectional=not spec.layers[index].causal,
        )
        for index in range(spec.num_layers)
    ]
    return DFlashWeights(
        fc=matrix(width, len(spec.tap_layers) * spec.target_width),
        hidden_norm=ones(width),
        norm=ones(width),
        layers=layers,
    )
