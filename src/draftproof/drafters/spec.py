"""What a drafter is, whatever file format described it.

Readers in ``draftproof.drafters.formats`` turn a configuration into one :class:`DrafterSpec`; nothing past
them knows about formats. Rules that differ between formats (which layers are causal, where a window comes
from, what a layer id counts) are resolved by the readers: a spec says what to compute, not how to guess it.
Importing this module needs the standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from draftproof.drafters.values import LIMITS, MAX_TAP, check_integer, check_number, show
from draftproof.errors import SpecError

# Settings a scaled RoPE cannot be computed without, by type.
ROPE_NEEDS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
ACTIVATIONS = ("silu",)
PLAIN_ARCHITECTURES = ("DFlashDraftModel", "DFlash2DraftModel", "DFlashSpeculator", "DFlash2Speculator")


@dataclass(frozen=True)
class LayerSpec:
    """One drafter layer: ``window`` counts keys, the query's own included (a key is seen if q - k < window).

    ``causal`` is about the block only: context keys are always visible to every slot (within the window).
    """

    sliding: bool = False
    window: int | None = None
    causal: bool = False

    def __str__(self) -> str:
        kind = f"sliding (window {self.window})" if self.sliding else "full"
        return f"{kind}, {'causal' if self.causal else 'bidirectional'} in the block"


@dataclass(frozen=True)
class RopeSpec:
    """Rotary embedding of queries and keys; ``scaling`` has the settings of ``rope_type`` as in the file."""

    theta: float = 1_000_000.0
    rope_type: str = "default"
    scaling: dict[str, Any] = field(default_factory=dict, hash=False)
    partial_rotary_factor: float = 1.0

    def __post_init__(self) -> None:
        check_number("rope_theta", self.theta)
        check_number("partial_rotary_factor", self.partial_rotary_factor, upto=1.0)
        if self.rope_type not in ROPE_NEEDS:
            raise SpecError(f"rope_type={show(self.rope_type)} is unknown: allowed are {', '.join(ROPE_NEEDS)}")
        for name in ROPE_NEEDS[self.rope_type]:
            if name not in self.scaling:
                raise SpecError(f"rope_type={self.rope_type!r} needs {name}, which the config does not give")


@dataclass(frozen=True, kw_only=True)
class DrafterSpec:
    """A drafter, format-neutral and checked. Two specs are equal when they describe the same computation:
    fields below "provenance" tell where it came from and do not take part in comparisons.

    ``tap_layers`` are indices into HF ``output_hidden_states`` (0: embeddings, j: output of layer j - 1), in
    the order in which their features are concatenated for ``fc``. ``block_size`` counts the anchor.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    block_size: int
    mask_token_id: int
    tap_layers: tuple[int, ...]
    layers: tuple[LayerSpec, ...]
    version: int = 1
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False
    max_position_embeddings: int = 32768
    draft_vocab_size: int | None = None  # None: drafts from the whole vocabulary
    target_hidden_size: int | None = None  # None becomes hidden_size
    rope: RopeSpec = field(default_factory=RopeSpec)
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None
    conv_kernel_size: int | None = None  # DFlash2
    conv_group_size: int | None = None
    selector_rank: int | None = None
    selector_top_k: int | None = None
    sample_from_anchor: bool = False
    window_from_anchor: bool = False  # sliding layers: all rows of a block see from W before the anchor on
    projector: str | None = None  # sequential head on top of the block: "dspark", "domino", …
    attention_sinks: bool = False
    attention_value_scale: float | None = None
    # --- provenance, and knowledge about the intended target ---
    source_format: str = field(default="z-lab", compare=False)
    architectures: tuple[str, ...] = field(default=(), compare=False)
    quantization: str | None = field(default=None, compare=False)
    num_target_layers: int | None = field(default=None, compare=False)
    target_name: str | None = field(default=None, compare=False)
    target_architectures: tuple[str, ...] = field(default=(), compare=False)
    eos_token_ids: tuple[int, ...] = field(default=(), compare=False)
    pad_token_id: int | None = field(default=None, compare=False)
    unknown_keys: tuple[str, ...] = field(default=(), compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if self.target_hidden_size is None:
            object.__setattr__(self, "target_hidden_size", self.hidden_size)
        _check_sizes(self)
        _check_layers(self)
        _check_taps(self)
        _check_dflash2(self)
        object.__setattr__(self, "warnings", (*self.warnings, *_notes(self)))

    @property
    def num_draft_tokens(self) -> int:
        """N: tokens one block proposes. A drafter that samples from the anchor uses that slot as well."""
        return self.block_size if self.sample_from_anchor else self.block_size - 1

    def reach(self, layer: int) -> int | None:
        """A key is seen by a row of ``layer`` if the distance to where its window is measured from (its own
        position, or the anchor) is below this; None: no window. From the anchor, W tokens before it count."""
        window = self.layers[layer].window
        return window + 1 if window is not None and self.window_from_anchor else window

    @property
    def target_width(self) -> int:
        """Width of one tap."""
        return self.target_hidden_size or self.hidden_size

    @property
    def fc_in(self) -> int:
        return len(self.tap_layers) * self.target_width

    @property
    def head_vocab_size(self) -> int:
        """Rows of the head the drafter's logits come from."""
        return self.draft_vocab_size or self.vocab_size

    @property
    def uniform(self) -> bool:
        """True if all layers have the same window and causality (one mask then serves all)."""
        return len(set(self.layers)) == 1

    def unsupported(self) -> list[str]:
        """What this drafter needs and the engine does not run yet, one sentence each; empty if it runs."""
        found = [
            (
                self.conv_kernel_size is not None,
                "DFlash2's local convolution (conv_kernel_size) is not run yet",
            ),
            (self.selector_rank is not None, "DFlash2's candidate selector (selector_rank) is not run yet"),
            (self.mlp_bias, "biases in the MLP (mlp_bias) are not run yet"),
            (self.sample_from_anchor, "drafting from the anchor slot (sample_from_anchor) is not run yet"),
            (self.projector is not None, f"the sequential head {show(self.projector)} is not run yet"),
            (self.attention_sinks, "attention sinks (attention_sink_bias) are not run yet"),
            (
                self.attention_value_scale not in (None, 1.0),
                f"attention_value_scale={self.attention_value_scale} is not applied yet",
            ),
            (self.quantization is not None, f"quantised weights ({self.quantization}) are not read yet"),
        ]
        others = [a for a in self.architectures if a not in PLAIN_ARCHITECTURES]
        # A head named above explains its own architecture.
        if others and self.projector is None:
            found.append((True, f"architecture {', '.join(map(show, others))} is not one the engine runs"))
        return [sentence for applies, sentence in found if applies]

    def describe(self) -> list[str]:
        """Short lines for a card."""
        name = f"DFlash{'' if self.version == 1 else self.version}"
        taps = ", ".join(map(str, self.tap_layers))
        known = f" of {self.num_target_layers} target layers" if self.num_target_layers else ""
        reduced = f", drafts from {self.draft_vocab_size} of them" if self.draft_vocab_size else ""
        rope = "" if self.rope.rope_type == "default" else f", {self.rope.rope_type}"
        partial = "" if self.rope.partial_rotary_factor == 1 else f", {self.rope.partial_rotary_factor:g} of each head"
        return [
            f"{name} drafter, {self.source_format} format",
            f"{self.num_layers} layers: " + "; ".join(_runs(map(str, self.layers))),
            f"width {self.hidden_size}, {self.num_heads} heads and {self.num_kv_heads} K/V heads of"
            f" {self.head_dim}, MLP {self.intermediate_size}",
            f"taps {taps}{known} (output_hidden_states index), {self.target_width} wide",
            f"block {self.block_size}: drafts {self.num_draft_tokens} tokens",
            f"vocabulary {self.vocab_size} tokens{reduced}; mask token {self.mask_token_id}",
            f"RoPE base {self.rope.theta:g}{rope}{partial}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; the derived ``num_draft_tokens`` is added for readers without this class."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return {**plain, "num_draft_tokens": self.num_draft_tokens}


def _runs(items: Iterable[str]) -> list[str]:
    """Counted in order of first appearance: ["3 sliding …", "1 full …"]."""
    counts: dict[str, int] = {}
    for item in items:
        counts[item] = counts.get(item, 0) + 1
    return [f"{n} {item}" for item, n in counts.items()]


def _notes(spec: DrafterSpec) -> list[str]:
    """Allowed, and most likely not meant."""
    notes = []
    for name, ids in (("EOS", spec.eos_token_ids), ("padding", (spec.pad_token_id,))):
        if spec.mask_token_id in ids:
            notes.append(f"mask_token_id={spec.mask_token_id} is also the {name} token")
    if spec.version == 2 and spec.conv_kernel_size is None and spec.selector_rank is None:
        notes.append("a DFlash2 drafter without conv_kernel_size and selector_rank: it runs as plain DFlash")
    return [note for note in notes if note not in spec.warnings]


_CONFIG_NAMES = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
}


def _check_sizes(spec: DrafterSpec) -> None:
    for attribute, declared in spec.__dataclass_fields__.items():
        name, value = _CONFIG_NAMES.get(attribute, attribute), getattr(spec, attribute)
        if name in LIMITS and not (value is None and declared.default is None):
            check_integer(name, value, *LIMITS[name])
    if spec.num_heads % spec.num_kv_heads:
        raise SpecError(
            f"num_attention_heads={spec.num_heads} must be a multiple of num_key_value_heads={spec.num_kv_heads}"
        )
    rotary = spec.head_dim * spec.rope.partial_rotary_factor
    if int(rotary) < 2 or int(rotary) % 2:
        raise SpecError(f"head_dim={spec.head_dim} gives {rotary:g} rotary dimensions: RoPE needs an even number")
    if spec.hidden_act not in ACTIVATIONS:
        raise SpecError(f"hidden_act={show(spec.hidden_act)} is not supported: allowed is {', '.join(ACTIVATIONS)}")
    check_integer("mask_token_id", spec.mask_token_id, 0, spec.vocab_size - 1)
    if spec.draft_vocab_size is not None and spec.draft_vocab_size > spec.vocab_size:
        raise SpecError(f"draft_vocab_size={spec.draft_vocab_size} is larger than vocab_size={spec.vocab_size}")
    for name in ("rms_norm_eps", "input_embedding_scale", "output_multiplier"):
        check_number(name, getattr(spec, name))
    for name in ("final_logit_softcapping", "attention_value_scale"):
        if getattr(spec, name) is not None:
            check_number(name, getattr(spec, name))


def _check_layers(spec: DrafterSpec) -> None:
    if len(spec.layers) != spec.num_layers:
        raise SpecError(f"layers has {len(spec.layers)} entries but num_hidden_layers={spec.num_layers}")
    for i, layer in enumerate(spec.layers):
        if not layer.sliding:
            if layer.window is not None:
                raise SpecError(f"layer {i} is full attention but has window={show(layer.window)}")
            continue
        if layer.window is None:
            raise SpecError(f"layer {i} is sliding_attention but sliding_window is missing: give the window in tokens")
        check_integer("sliding_window", layer.window, *LIMITS["sliding_window"])
        if layer.window < spec.block_size:  # no engine agrees with another on such a block
            raise SpecError(
                f"sliding_window={layer.window} is smaller than block_size={spec.block_size}: "
                "the window must hold the whole block"
            )


def _check_taps(spec: DrafterSpec) -> None:
    if not spec.tap_layers:
        raise SpecError("tap_layers=() is empty: a drafter reads at least one hidden state of the target")
    top = spec.num_target_layers if spec.num_target_layers is not None else MAX_TAP
    for tap in spec.tap_layers:
        check_integer("tap_layers entry", tap, 0, top)
    if len(set(spec.tap_layers)) != len(spec.tap_layers):
        raise SpecError(f"tap_layers={show(spec.tap_layers)} names a layer twice")


def _check_dflash2(spec: DrafterSpec) -> None:
    if spec.version not in (1, 2):
        raise SpecError(f"version={show(spec.version)} must be 1 (DFlash) or 2 (DFlash2)")
    for one, other in (("conv_kernel_size", "conv_group_size"), ("selector_rank", "selector_top_k")):
        given, missing = (one, other) if getattr(spec, other) is None else (other, one)
        if getattr(spec, given) is not None and getattr(spec, missing) is None:
            raise SpecError(f"{given}={getattr(spec, given)} needs {missing}, which is missing")
    if spec.conv_group_size is not None and spec.hidden_size % spec.conv_group_size:
        raise SpecError(f"conv_group_size={spec.conv_group_size} must divide hidden_size={spec.hidden_size}")
