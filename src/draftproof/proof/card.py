"""What a drafter is, in rows for a card: read leniently, so that a broken file still shows what it says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

from draftproof.drafters.values import LIMITS
from draftproof.proof.case import Case
from draftproof.proof.engines import engines
from draftproof.proof.launching import TOP_LEVEL_BLOCK, proposes
from draftproof.proof.layouts import Layout, drafter_method, layout_of

MAX_SHOWN = 32
_NAMES = {"dflash": "DFlash", "dflash2": "DFlash2", "dspark": "DSpark", "eagle3": "EAGLE-3"}


@dataclass(frozen=True)
class LayerKind:
    """Layers next to each other that are alike. ``causal``: inside the block, as trained; None: not to be told."""

    count: int
    sliding: bool
    window: int | None
    causal: bool | None

    def __str__(self) -> str:
        kind = (
            f"sliding, window {self.window if self.window is not None else '?'}" if self.sliding else "full attention"
        )
        inside = {True: "causal", False: "bidirectional", None: "causality not stated"}[self.causal]
        return f"{self.count} × {kind}, {inside} in the block"


@dataclass(frozen=True)
class Card:
    """``rows``: (label, text) in order; ``data``: the same for JSON."""

    title: str
    rows: tuple[tuple[str, str], ...]
    data: dict[str, Any] = field(default_factory=dict)


def card(case: Case, mask_text: str | None = None) -> Card:
    layout, method = layout_of(case), drafter_method(case)
    kind = _NAMES.get(method or "", method or "unknown")
    name = case.drafter.name or "unnamed"
    revision = f", revision {case.drafter.revision[:12]}" if case.drafter.revision else ""
    title = f"{name}: {kind} drafter, {layout.kind} layout{revision}"
    layers = layer_kinds(layout)
    rows = [
        *(("layers" if i == 0 else "", str(one)) for i, one in enumerate(layers)),
        *_taps(layout),
        *_block(layout, method),
        ("mask token", _mask(layout, mask_text)),
        ("RoPE", rope_text(layout)),
        ("heads", _heads(layout)),
        ("vocabulary", _vocabulary(layout)),
        *_weights(case),
    ]
    return Card(title, tuple((label, text) for label, text in rows if text), _data(case, layout, method, layers))


def layer_kinds(layout: Layout) -> list[LayerKind]:
    """Layers as trained: is_causal speaks for all, then dflash_config.causal, else sliding ones are causal; in
    speculators' layout full layers never are. use_swa makes all layers slide where no layer type says so."""
    count = layout.integer("num_hidden_layers")
    types = layout.layer_types
    if types is None:
        if count is None or count > LIMITS["num_hidden_layers"][1] or not layout.layers_complete:
            return []
        first = layout.integer("max_window_layers") if layout.slides else None
        types = tuple(
            "sliding_attention" if first is not None and i >= first else "full_attention" for i in range(count)
        )
    if layout.use_swa and "sliding_attention" not in types:
        types = ("sliding_attention",) * len(types)
    window = layout.window.value if layout.window is not None else None
    found: list[LayerKind] = []
    for kind in types:
        sliding = kind == "sliding_attention"
        one = LayerKind(1, sliding, window if sliding else None, _causal(layout, sliding))
        if found and (found[-1].sliding, found[-1].window, found[-1].causal) == (one.sliding, one.window, one.causal):
            found[-1] = LayerKind(found[-1].count + 1, one.sliding, one.window, one.causal)
        else:
            found.append(one)
    return found


def _causal(layout: Layout, sliding: bool) -> bool | None:
    if layout.kind == "speculators":
        stated = layout.config.get("sliding_window_non_causal")
        default = layout.config.get("speculators_model_type") == "dflash2"
        return sliding and not (stated if isinstance(stated, bool) else default)
    stated_value = layout.is_causal or layout.nested_causal
    if stated_value is not None:
        return bool(stated_value.value)
    if layout.kind == "gguf" and sliding:
        return None  # the converter keeps causality only where the original stated it
    return sliding


def _taps(layout: Layout) -> Iterator[tuple[str, str]]:
    indices = layout.hidden_state_taps
    if indices is None:
        yield "taps", f"not stated ({layout.num_taps} of them)" if layout.num_taps else "not stated"
        return
    yield "taps", f"z-lab id             {_numbers(i - 1 for i in indices)}"
    yield "", f"output_hidden_states {_numbers(indices)}"
    yield "", f"vLLM, speculators    {_numbers(indices)}"


def _numbers(values: Iterable[int]) -> str:
    listed = list(values)
    return ", ".join(map(str, listed[:MAX_SHOWN])) + (f" … ({len(listed)})" if len(listed) > MAX_SHOWN else "")


def _block(layout: Layout, method: str | None) -> Iterator[tuple[str, str]]:
    block, most = layout.block, proposes(layout, method)
    if block is None:
        yield "block", f"not stated (z-lab, SGLang and llama.cpp take {TOP_LEVEL_BLOCK})"
        return
    nested = (
        " (nested only: readers of the top level take 16)" if layout.block_is_nested_only and block.value != 16 else ""
    )
    yield (
        "block",
        f"{block.value} with the anchor, {most} drafted tokens{nested}" if most is not None else str(block.value),
    )
    if most is not None:
        flags = {
            "vLLM": f"num_speculative_tokens {most}",
            "SGLang": f"--speculative-num-draft-tokens {block.value}",
            "llama.cpp": f"--spec-draft-n-max {most}",
        }
        for engine, flag in flags.items():
            yield "", f"{engine:9} {flag}"


def _mask(layout: Layout, text: str | None) -> str:
    mask = layout.mask
    if mask is None:
        return "not stated"
    return f"{mask.value!r}" + (f" {text!r} in the target's tokenizer" if text else "")


def rope_text(layout: Layout) -> str:
    flat, nested = layout.flat_theta, layout.nested_theta
    base = nested or flat
    parts = [f"base {base.value:g} ({base.path})" if base is not None else "base not stated"]
    if flat is not None and nested is not None and flat.value != nested.value:
        parts.append(f"contradicted by {flat.path}={flat.value:g}")
    scaling = layout.scaling
    if scaling is not None:
        kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor")
        parts.append(f"{kind}" + (f" ×{factor:g}" if isinstance(factor, int | float) else ""))
    if layout.max_positions is not None:
        parts.append(f"{layout.max_positions.value} positions")
    return ", ".join(parts)


def _heads(layout: Layout) -> str:
    heads, kv, size = (layout.integer(k) for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    width, middle = layout.integer("hidden_size"), layout.integer("intermediate_size")
    parts = []
    if heads is not None:
        parts.append(
            f"{heads} of {size if size is not None else '?'}, {kv if kv is not None else heads} for keys and values"
        )
    if width is not None:
        parts.append(f"width {width}" + (f", MLP {middle}" if middle is not None else ""))
    return "; ".join(parts)


def _vocabulary(layout: Layout) -> str:
    full, own = layout.vocab_size, layout.draft_vocab_size
    if full is None:
        return ""
    return f"{full} tokens" + (f", drafts from {own} of them" if layout.reduced_vocabulary and own is not None else "")


def _weights(case: Case) -> Iterator[tuple[str, str]]:
    tensors = case.drafter.tensors
    if not tensors:
        return
    shapes = [t.get("shape") for t in tensors.values() if isinstance(t, dict)]
    count = sum(prod(s) for s in shapes if isinstance(s, list | tuple))
    kinds = sorted({str(t.get("dtype")) for t in tensors.values() if isinstance(t, dict) and t.get("dtype")})
    own = [name for name in ("embed_tokens.weight", "lm_head.weight", "d2t") if name in tensors]
    extra = f"; brings its own {', '.join(own)}" if own else "; embedding and head are the target's"
    yield "weights", f"{len(tensors)} tensors, {count / 1e6:.1f} M values, {', '.join(kinds)}{extra}"


def _data(case: Case, layout: Layout, method: str | None, layers: list[LayerKind]) -> dict[str, Any]:
    indices = layout.hidden_state_taps
    block, mask, most = layout.block, layout.mask, proposes(layout, method)
    base = layout.nested_theta or layout.flat_theta
    return {
        "name": case.drafter.name,
        "revision": case.drafter.revision,
        "method": method,
        "layout": layout.kind,
        "layers": [vars(one) for one in layers],
        "taps": None
        if indices is None
        else {"z-lab": [i - 1 for i in indices], "output_hidden_states": list(indices), "vllm": list(indices)},
        "block_size": block.value if block is not None else None,
        "num_draft_tokens": most,
        "flags": {
            one.name: (block.value if one.counts == "block" else most) for one in engines().values() if block and most
        },
        "mask_token_id": mask.value if mask is not None else None,
        "rope": {"theta": base.value if base is not None else None, "scaling": layout.scaling},
        "num_attention_heads": layout.integer("num_attention_heads"),
        "num_key_value_heads": layout.integer("num_key_value_heads"),
        "head_dim": layout.integer("head_dim"),
        "hidden_size": layout.integer("hidden_size"),
        "vocab_size": layout.vocab_size,
        "draft_vocab_size": layout.draft_vocab_size,
        "max_position_embeddings": layout.max_positions.value if layout.max_positions is not None else None,
    }
