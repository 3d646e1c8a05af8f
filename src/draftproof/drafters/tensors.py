"""Do the weights fit the configuration? Answered from file headers, before anything is loaded.

Every mistake found here would otherwise surface as a shape error deep in a loader, or not at all: a tensor
nobody reads, a head that is silently replaced, a mask vector that stays behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from draftproof.drafters.formats.safetensors_header import TensorInfo, read_folder
from draftproof.drafters.pairing import check_pair
from draftproof.drafters.spec import DrafterSpec
from draftproof.drafters.values import show
from draftproof.errors import CheckpointError

__all__ = ["TensorInfo", "WeightsInfo", "check_pair", "check_tensors", "expected_tensors", "read_folder"]

FLOATS = ("F32", "BF16", "F16")
MASK_FILE = "mask_embedding.pt"
_PREFIX = "model."
Shape = tuple[int, ...]


@dataclass(frozen=True)
class WeightsInfo:
    """What a drafter's files hold, by plain names (a leading ``model.`` is removed; ``prefix`` tells)."""

    tensors: Mapping[str, TensorInfo]
    prefix: str = ""
    dtype: str = "BF16"  # of most weights
    has_own_head: bool = False
    has_own_embedding: bool = False
    has_vocabulary_map: bool = False
    mask_embedding: str | None = None  # name of the tensor, or of the file beside the weights
    unexpected: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        """Number of weights, maps not counted."""
        return sum(_count(t.shape) for t in self.tensors.values() if t.dtype in FLOATS)

    @property
    def bytes(self) -> int:
        return sum(t.end - t.start for t in self.tensors.values())


def expected_tensors(spec: DrafterSpec) -> dict[str, Shape]:
    """Names and shapes without which the drafter cannot run."""
    hidden, heads, kv = spec.hidden_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    wide = spec.intermediate_size
    linear = {
        "self_attn.q_proj": (heads, hidden, spec.attention_bias),
        "self_attn.k_proj": (kv, hidden, spec.attention_bias),
        "self_attn.v_proj": (kv, hidden, spec.attention_bias),
        "self_attn.o_proj": (hidden, heads, spec.attention_bias),
        "mlp.gate_proj": (wide, hidden, spec.mlp_bias),
        "mlp.up_proj": (wide, hidden, spec.mlp_bias),
        "mlp.down_proj": (hidden, wide, spec.mlp_bias),
    }
    layer: dict[str, Shape] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_norm.weight": (spec.head_dim,),
        "self_attn.k_norm.weight": (spec.head_dim,),
    }
    for name, (rows, columns, biased) in linear.items():
        layer[f"{name}.weight"] = (rows, columns)
        if biased:
            layer[f"{name}.bias"] = (rows,)
    layer |= _convolutions(spec)
    if spec.attention_sinks:
        layer["self_attn.attention_sink_bias"] = (spec.num_heads,)
    found = {f"layers.{i}.{name}": shape for i in range(spec.num_layers) for name, shape in layer.items()}
    shared = {"fc.weight": (hidden, spec.fc_in), "hidden_norm.weight": (hidden,), "norm.weight": (hidden,)}
    return shared | found | _selector(spec) | _reduced_head(spec)


def _convolutions(spec: DrafterSpec) -> dict[str, Shape]:
    if spec.conv_kernel_size is None or spec.conv_group_size is None:
        return {}
    taps, hidden = spec.conv_kernel_size, spec.hidden_size
    shapes: dict[str, Shape] = {
        "base_kernel": (2, taps, hidden),
        "kernel_projection.weight": (2 * taps * hidden // spec.conv_group_size, hidden),
    }
    return {f"{place}_conv.{k}": shape for place in ("attention", "mlp") for k, shape in shapes.items()}


def _selector(spec: DrafterSpec) -> dict[str, Shape]:
    if spec.selector_rank is None:
        return {}
    return {
        "candidate_selector.predecessor_codebook": (spec.vocab_size, spec.selector_rank),
        "candidate_selector.successor_codebook": (spec.vocab_size, spec.selector_rank),
        "candidate_selector.hidden_projection.weight": (spec.selector_rank, spec.hidden_size),
    }


def _reduced_head(spec: DrafterSpec) -> dict[str, Shape]:
    """A reduced vocabulary has a head of its own, and offsets from its ids to the target's."""
    if spec.draft_vocab_size is None:
        return {}
    return {"lm_head.weight": (spec.draft_vocab_size, spec.hidden_size), "d2t": (spec.draft_vocab_size,)}


def optional_tensors(spec: DrafterSpec) -> dict[str, tuple[Shape, ...]]:
    """Names that may be there, with the shapes they may have."""
    vocabulary = (spec.vocab_size, spec.hidden_size)
    mask: tuple[Shape, ...] = ((spec.hidden_size,), (1, spec.hidden_size))
    return {
        "lm_head.weight": ((spec.head_vocab_size, spec.hidden_size),),
        "embed_tokens.weight": (vocabulary,),
        "t2d": ((spec.vocab_size,),),
        "mask_embedding": mask,
        "mask_embedding.weight": mask,
    }


def check_tensors(spec: DrafterSpec, folder: str | PathLike[str]) -> WeightsInfo:
    """Compare a checkpoint's headers with its configuration; the first kind of misfit found is raised."""
    path = Path(folder)
    tensors, prefix = _strip(path, read_folder(path))
    expected, optional = expected_tensors(spec), optional_tensors(spec)
    missing = [name for name in expected if name not in tensors]
    if missing:
        raise CheckpointError(f"{path}: {_missing(spec, missing, tensors)}")
    for name, info in tensors.items():
        shapes = (expected[name],) if name in expected else optional.get(name)
        if shapes is not None and info.shape not in shapes:
            raise CheckpointError(f"{path}: {_wrong_shape(spec, info, name, shapes[0])}")
    known = [name for name in tensors if name in expected or name in optional]
    _check_dtypes(path, {name: tensors[name] for name in known})
    unexpected = tuple(name for name in tensors if name not in known)
    mask, side_car = _mask_embedding(path, tensors)
    kinds = [tensors[n].dtype for n in expected if tensors[n].dtype in FLOATS]
    return WeightsInfo(
        tensors=tensors,
        prefix=prefix,
        dtype=max(sorted(set(kinds)), key=kinds.count),
        has_own_head="lm_head.weight" in tensors,
        has_own_embedding="embed_tokens.weight" in tensors,
        has_vocabulary_map="d2t" in tensors,
        mask_embedding=mask,
        unexpected=unexpected,
        warnings=tuple(_warnings(spec, kinds, unexpected, mask, side_car)),
    )


def _strip(path: Path, tensors: dict[str, TensorInfo]) -> tuple[dict[str, TensorInfo], str]:
    """Remove ``model.`` if the drafter's own layers carry it; heads and maps often stay outside."""
    if "fc.weight" in tensors or f"{_PREFIX}fc.weight" not in tensors:
        return tensors, ""
    found: dict[str, TensorInfo] = {}
    for name, info in tensors.items():
        if name.startswith("layers."):
            raise CheckpointError(f"{path}: {show(name)} lacks the prefix {_PREFIX!r} that fc.weight has")
        plain = name.removeprefix(_PREFIX)
        if plain in found:
            raise CheckpointError(f"{path}: {plain} is stored twice, with and without {_PREFIX!r}")
        found[plain] = info
    return found, _PREFIX


def _missing(spec: DrafterSpec, missing: list[str], tensors: Mapping[str, TensorInfo]) -> str:
    text = f"{_some(missing)} missing ({len(tensors)} tensors found)"
    if spec.draft_vocab_size and {"lm_head.weight", "d2t"} & set(missing):
        text += f"; draft_vocab_size={spec.draft_vocab_size} needs lm_head.weight and d2t"
    stored = {name.split(".")[1] for name in tensors if name.startswith("layers.")}
    if len(stored) != spec.num_layers:
        text += f"; the files hold {len(stored)} layers, num_hidden_layers={spec.num_layers}"
    return text


def _wrong_shape(spec: DrafterSpec, info: TensorInfo, name: str, expected: Shape) -> str:
    text = f"{name} is {show(list(info.shape))}, the config says {list(expected)}"
    if name != "fc.weight":
        return text
    text += f" (hidden_size, {len(spec.tap_layers)} taps × target width {spec.target_width})"
    columns = info.shape[1] if len(info.shape) == 2 and info.shape[1] != spec.fc_in else 0
    if columns and columns % spec.target_width == 0:
        text += f": these weights were trained with {columns // spec.target_width} taps"
    elif columns and columns % len(spec.tap_layers) == 0:
        text += f": these weights were trained for a target {columns // len(spec.tap_layers)} wide"
    return text


def _check_dtypes(path: Path, tensors: Mapping[str, TensorInfo]) -> None:
    special = {"d2t": ("I64",), "t2d": ("BOOL",)}
    for name, info in tensors.items():
        allowed = special.get(name, FLOATS)
        if info.dtype not in allowed:
            raise CheckpointError(f"{path}: {name} is stored as {info.dtype}: allowed are {', '.join(allowed)}")


def _mask_embedding(path: Path, tensors: Mapping[str, TensorInfo]) -> tuple[str | None, bool]:
    """The trained mask vector: a tensor, or a file beside the weights (second value)."""
    side_car = ((path if path.is_dir() else path.parent) / MASK_FILE).is_file()
    stored = next((n for n in ("mask_embedding", "mask_embedding.weight") if n in tensors), None)
    return stored or (MASK_FILE if side_car else None), side_car


def _warnings(
    spec: DrafterSpec, kinds: list[str], unexpected: Iterable[str], mask: str | None, side_car: bool
) -> list[str]:
    found = []
    if len(set(kinds)) > 1:
        counts = ", ".join(f"{kinds.count(k)} {k}" for k in sorted(set(kinds)))
        found.append(f"weights are stored in different types: {counts}")
    biases = [n for n in unexpected if n.endswith("_proj.bias")]
    if biases:
        found.append(f"{_some(biases)} not used: attention_bias={spec.attention_bias}, mlp_bias={spec.mlp_bias}")
    maps = [n for n in unexpected if n == "d2t"]
    if maps:
        found.append("d2t is not used: draft_vocab_size says the vocabulary is not reduced")
    rest = [n for n in unexpected if n not in (*biases, *maps)]
    if rest:
        found.append(f"{_some(rest)} in the files but not read by this kind of drafter")
    if side_car and mask != MASK_FILE:
        found.append(f"{MASK_FILE} is not used: the weights hold {mask}")
    return found


def _some(names: list[str]) -> str:
    """The first names and how many more, with the verb: "a, b and 5 more are"."""
    if len(names) == 1:
        return f"{show(names[0]).strip(chr(39))} is"
    shown = ", ".join(show(n).strip("'") for n in names[:3])
    return f"{shown} and {len(names) - 3} more are" if len(names) > 3 else f"{shown} are"


def _count(shape: Shape) -> int:
    total = 1
    for n in shape:
        total *= n
    return total
