"""What a drafter's configuration says, whichever layout it is in, without judging it.

Unlike ``draftproof.drafters.formats`` (which refuses what cannot run) this reader takes excerpts and broken files:
every value is either of the right type or None, and each has the dotted path under which a person finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from draftproof.drafters.formats.zlab import build_target_layer_ids
from draftproof.drafters.pairing import text_part
from draftproof.drafters.values import LIMITS
from draftproof.proof.case import Case
from draftproof.proof.layout_keys import DFLASH_FAMILY, GGUF_NAMES, MASK_KEYS, ROPE_PLACES, SPECULATORS_KEYS, TAP_KEYS

Kind = Literal["z-lab", "speculators", "gguf", "unknown"]


@dataclass(frozen=True)
class Value:
    """A value and the dotted path it stands at in the drafter's config."""

    path: str
    value: Any


@dataclass(frozen=True)
class Layout:
    """A drafter's config as found. ``sections``: (prefix, object), the most specific first; ``decoder``: where the
    layers are described (``transformer_layer_config`` of speculators, else the top level)."""

    kind: Kind
    config: Mapping[str, Any] = field(default_factory=dict)
    sections: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    decoder: tuple[str, Mapping[str, Any]] = ("", {})

    @property
    def complete(self) -> bool:
        """May a missing key be taken as missing? Not in excerpts."""
        return bool(self.config) and not self.config.get("_truncated") and self.kind != "gguf"

    @property
    def layers_complete(self) -> bool:
        """The same for the object that describes the layers."""
        return self.complete and bool(self.decoder[1]) and not self.decoder[1].get("_truncated")

    def find(self, *keys: str) -> Value | None:
        """The first non-null of ``keys``, each looked for in all sections, nested ones first; GGUF names included."""
        for key in keys:
            for name in (key, *GGUF_NAMES.get(key, ())) if self.kind == "gguf" else (key,):
                for prefix, section in self.sections:
                    if section.get(name) is not None:
                        return Value(prefix + name, section[name])
        return None

    def integer(self, *keys: str) -> int | None:
        """A whole number, None if absent or of another type."""
        found = self.find(*keys)
        return found.value if found is not None and type(found.value) is int else None

    def number(self, *keys: str) -> float | None:
        found = self.find(*keys)
        return float(found.value) if found is not None and type(found.value) in (int, float) else None

    # --- taps ---------------------------------------------------------------------------------------------------

    @property
    def taps(self) -> Value | None:
        """Ids as stored, a tuple of whole numbers; None if absent or no such list."""
        found = self.find(*TAP_KEYS)
        if found is None or not isinstance(found.value, list | tuple) or not found.value:
            return None
        if not all(type(i) is int for i in found.value):
            return None
        return Value(found.path, tuple(found.value))

    @property
    def num_taps(self) -> int | None:
        taps = self.taps
        return len(taps.value) if taps is not None else self.integer("n_extract")

    @property
    def max_tap(self) -> Value | None:
        """The largest id as stored, also where only this fact is public."""
        taps = self.taps
        if taps is not None:
            return Value(taps.path, max(taps.value))
        only = self.find("max_target_layer_id")
        return only if only is not None and type(only.value) is int else None

    @property
    def ids_are_hidden_state_indices(self) -> bool:
        """Is the +1 included already (speculators, GGUF), or are ids 0-based layer outputs (z-lab)?"""
        taps = self.taps
        if taps is not None and taps.path.endswith("aux_hidden_state_layer_ids"):
            return True
        return self.kind in ("speculators", "gguf")

    @property
    def hidden_state_taps(self) -> tuple[int, ...] | None:
        """Taps as indices into ``output_hidden_states``."""
        taps = self.taps
        if taps is None:
            return None
        shift = 0 if self.ids_are_hidden_state_indices else 1
        return tuple(i + shift for i in taps.value)

    # --- block, mask, vocabulary --------------------------------------------------------------------------------

    @property
    def block(self) -> Value | None:
        found = self.find("block_size", "dspark_block_size")
        return found if found is not None and type(found.value) is int else None

    @property
    def block_is_nested_only(self) -> bool:
        """Readers of the top level alone take 16 then."""
        block = self.block
        nested = block is not None and block.path.startswith("dflash_config.")
        return nested and type(self.config.get("block_size")) is not int

    @property
    def mask(self) -> Value | None:
        """Mask token id as found, of whatever type."""
        return self.find(*MASK_KEYS)

    @property
    def vocab_size(self) -> int | None:
        return self.integer("vocab_size")

    @property
    def draft_vocab_size(self) -> int | None:
        return self.integer("draft_vocab_size")

    @property
    def reduced_vocabulary(self) -> bool:
        """Does it draft from fewer tokens than the target has?"""
        if self.config.get("draft_vocab_reduced") is True:
            return True
        own, full = self.draft_vocab_size, self.vocab_size
        return own is not None and full is not None and own < full

    # --- attention ----------------------------------------------------------------------------------------------

    @property
    def layer_types(self) -> tuple[str, ...] | None:
        held = self.find("layer_types") if self.kind == "gguf" else None
        found = held.value if held is not None else self.decoder[1].get("layer_types")
        if not isinstance(found, list | tuple):
            return None
        if self.kind == "gguf":  # a pattern of flags: does this layer slide?
            return tuple("sliding_attention" if flag else "full_attention" for flag in found)
        return tuple(found) if all(isinstance(kind, str) for kind in found) else None

    @property
    def slides(self) -> bool:
        """Is at least one layer a sliding one by ``layer_types`` (or Hugging Face's rule without that list)?"""
        types = self.layer_types
        if types is not None:
            return "sliding_attention" in types
        first, count = self.decoder[1].get("max_window_layers"), self.decoder[1].get("num_hidden_layers")
        uses = self.decoder[1].get("use_sliding_window") is True
        return uses and type(first) is int and type(count) is int and first < count

    @property
    def mixed(self) -> bool:
        types = self.layer_types
        return types is not None and len(set(types)) > 1

    @property
    def has_full_layer(self) -> bool | None:
        """None if the layer types are unknown (an excerpt)."""
        types = self.layer_types
        if types is not None:
            return "full_attention" in types
        return None if not self.layers_complete else not self.slides

    @property
    def use_swa(self) -> bool:
        found = self.find("use_swa")
        return found is not None and found.value is True

    @property
    def window(self) -> Value | None:
        """Tokens a sliding layer sees; where both are given, modelopt's key wins."""
        for key in ("swa_window_size", "sliding_window"):
            found = self.find(key)
            if found is not None and type(found.value) is int:
                return found
        value = self.decoder[1].get("sliding_window")
        return Value(self.decoder[0] + "sliding_window", value) if type(value) is int else None

    @property
    def is_causal(self) -> Value | None:
        found = self.find("is_causal")
        return found if found is not None and isinstance(found.value, bool) else None

    @property
    def nested_causal(self) -> Value | None:
        found = self.find("causal")
        return found if found is not None and isinstance(found.value, bool) else None

    @property
    def samples_from_anchor(self) -> bool:
        found = self.find("sample_from_anchor")
        return found is not None and found.value is True

    # --- positions ----------------------------------------------------------------------------------------------

    @property
    def max_positions(self) -> Value | None:
        found = self.find("max_position_embeddings")
        return found if found is not None and type(found.value) is int else None

    @property
    def flat_theta(self) -> Value | None:
        if self.kind == "gguf":
            found = self.find("rope_theta")
            return found if found is not None and type(found.value) in (int, float) else None
        return _theta(self.decoder, None)

    @property
    def nested_theta(self) -> Value | None:
        for place in ROPE_PLACES:
            found = _theta(self.decoder, place)
            if found is not None:
                return found
        return None

    @property
    def scaling(self) -> Mapping[str, Any] | None:
        """A RoPE scaling other than the plain one, None if there is none."""
        return rope_scaling(self.decoder[1])


def _theta(section: tuple[str, Mapping[str, Any]], place: str | None) -> Value | None:
    prefix, data = section
    inner = data if place is None else data.get(place)
    value = inner.get("rope_theta") if isinstance(inner, Mapping) else None
    path = prefix + (f"{place}." if place else "") + "rope_theta"
    return Value(path, value) if type(value) in (int, float) else None


def rope_scaling(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The scaling a (text) config asks for; None for plain RoPE."""
    for place in ROPE_PLACES:
        inner = config.get(place)
        if isinstance(inner, Mapping):
            kind = inner.get("rope_type", inner.get("type"))
            if kind not in (None, "default", "mrope"):
                return inner
    return None


def layout_of(case: Case) -> Layout:
    """The layout of a case's drafter; kind "unknown" with an empty config if there is none."""
    return read_layout(case.drafter.config)


def read_layout(config: Mapping[str, Any] | None) -> Layout:
    if not config:
        return Layout("unknown")
    if isinstance(config.get("gguf"), Mapping):
        inner = config["gguf"]
        sections = (("gguf.", inner), ("", config))
        return Layout("gguf", config, sections, ("gguf.", inner))
    if any(key in config for key in SPECULATORS_KEYS):
        inner = config.get("transformer_layer_config")
        if not isinstance(inner, Mapping):
            inner = {}
        prefix = "transformer_layer_config."
        return Layout("speculators", config, (("", config), (prefix, inner)), (prefix, inner))
    nested = config.get("dflash_config")
    known = isinstance(nested, Mapping) or any(key in config for key in ("target_layer_ids", "dspark_target_layer_ids"))
    top: tuple[str, Mapping[str, Any]] = ("", config)
    inner_first = (("dflash_config.", nested), top) if isinstance(nested, Mapping) else (top,)
    return Layout("z-lab" if known or _architecture(config) else "unknown", config, inner_first, top)


def _architecture(config: Mapping[str, Any]) -> bool:
    return architecture_method(config) is not None


def architecture_method(config: Mapping[str, Any]) -> str | None:
    """ "dflash", "dflash2" or "dspark" by the architecture's name or the speculators type; None if neither tells."""
    kind = config.get("speculators_model_type")
    if kind in DFLASH_FAMILY:
        return str(kind)
    names = config.get("architectures")
    for name in names[:8] if isinstance(names, list | tuple) else ():
        plain = str(name).lower()
        for method in ("dspark", "dflash2", "dflash"):
            if method in plain:
                return method
    gguf = config.get("gguf")
    architecture = gguf.get("general.architecture") if isinstance(gguf, Mapping) else None
    return str(architecture) if architecture in DFLASH_FAMILY else None


def drafter_method(case: Case) -> str | None:
    """What the drafter is: by its files first, else by the method it is served with. vLLM serves DFlash2 drafters
    under the method name "dflash"."""
    config = case.drafter.config or {}
    found = architecture_method(config)
    if found in (None, "dflash") and case.method == "dflash2":
        return "dflash2"
    layout = layout_of(case)
    projector = layout.find("projector_type")
    if projector is not None and projector.value == "dspark":
        return "dspark"
    return found or case.method


def target_text(case: Case) -> Mapping[str, Any]:
    """The language model's part of the target's config, empty if unknown."""
    return text_part(case.target.config or {})


def target_integer(case: Case, key: str) -> int | None:
    value = target_text(case).get(key, (case.target.config or {}).get(key))
    return value if type(value) is int else None


def default_taps(num_target_layers: int, count: int) -> tuple[int, ...]:
    """The evenly spread 0-based ids that readers assume where a file has none."""
    most = LIMITS["num_hidden_layers"][1]
    return tuple(build_target_layer_ids(num_target_layers, count)) if 0 < count <= most else ()


def is_zlab_drafter(name: str | None) -> bool:
    return (name or "").lower().startswith("z-lab/")
