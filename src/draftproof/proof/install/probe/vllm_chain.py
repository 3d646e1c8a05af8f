"""The user's own drafter config through vLLM's shipped chain: what the engine sees, against what the file says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from . import meaning, vllm_calls
from .link import Absent, Linker

_CARRIED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")


def chain(linker: Linker, config: dict[str, Any]) -> dict[str, Any]:
    """Rows of ``meaning.row``. ``format``: which of the two ways in this config takes."""
    speculators = meaning.is_speculators(config)
    kind = str(config.get("speculators_model_type")) if speculators else "dflash"
    known = set(linker.get(vllm_calls.ALGOS, "SUPPORTED_SPECULATORS_TYPES"))
    if speculators and kind not in known:
        error = f"type {kind!r} is not among {', '.join(sorted(known))}"
        return {"format": "speculators", "rows": [meaning.refused("speculators_model_type", kind, error)]}
    seen = _speculators(linker, config) if speculators else vllm_calls.eagle_config(linker, config)
    rows = [*_architecture(linker, config, seen), *_taps(linker, config, seen), *_carried(config, seen)]
    rows += [*_layers(linker, config, seen), *_mask(linker, config, seen)]
    return {"format": "speculators" if speculators else "z-lab", "rows": rows}


def _speculators(linker: Linker, config: dict[str, Any]) -> Any:
    """As SpeculatorsConfig gives it to EAGLEConfig: attributes from the extracted dict."""
    copied = {**config, "transformer_layer_config": dict(meaning.layers_config(config))}
    return SimpleNamespace(**vllm_calls.extracted(linker, copied))


def _architecture(linker: Linker, config: dict[str, Any], seen: Any) -> list[dict[str, Any]]:
    table = linker.get(vllm_calls.REGISTRY, "_SPECULATIVE_DECODING_MODELS")
    where = linker.where(vllm_calls.REGISTRY, "_SPECULATIVE_DECODING_MODELS")
    file, names = config.get("architectures"), list(getattr(seen, "architectures", None) or [])
    if not any(name in table for name in names):
        return [meaning.refused("architectures", file, f"no model class is registered for {', '.join(names)}", where)]
    module, name = next(table[n] for n in names if n in table)
    return [meaning.row("architectures", file, f"{names[0]} → {module}.{name}", where, same=True)]


def _taps(linker: Linker, config: dict[str, Any], seen: Any) -> list[dict[str, Any]]:
    meant = meaning.hidden_states(config)
    ways = [
        ("taps (V1 runner)", vllm_calls.ids_v1, vllm_calls.RUNNER, "GPUModelRunner._get_eagle3_aux_layers_from_config")
    ]
    ways += [("taps (V2 runner)", vllm_calls.ids_v2, vllm_calls.V2_IDS, "get_eagle3_aux_layers_from_config")]
    rows = []
    for field, call, module, name in ways if _has_v2(linker) else ways[:1]:
        try:
            got = call(linker, seen)
        except Absent:
            continue
        ascending = sorted(got) if got is not None else None  # hidden states are collected in layer order
        shift = "each one layer early" if meant and ascending == [i - 1 for i in sorted(meant)] else ""
        note = shift or (
            "captured in layer order, the file lists another" if meant and ascending == sorted(meant) else ""
        )
        rows.append(meaning.row(field, meant, ascending, linker.where(module, name), note=note))
    return rows


def _has_v2(linker: Linker) -> bool:
    try:
        return bool(linker.file(vllm_calls.V2 + ".dflash.speculator"))
    except Absent:
        return False


def _carried(config: dict[str, Any], seen: Any) -> list[dict[str, Any]]:
    inner = meaning.layers_config(config)
    rows = [meaning.row(name, inner[name], getattr(seen, name, None)) for name in _CARRIED if name in inner]
    for name in ("layer_types", "sliding_window"):
        if inner.get(name) is not None:
            note = ""
            if name == "sliding_window" and getattr(seen, name, None) is None:
                note = "transformers drops it unless use_sliding_window is true"
            rows.append(meaning.row(name, inner[name], getattr(seen, name, None), note=note))
    rows.append(meaning.row("rope_theta", meaning.rope_theta(inner), meaning.rope_theta(_dict(seen))))
    if inner.get("rope_scaling"):
        arrived = getattr(seen, "rope_parameters", None) or getattr(seen, "rope_scaling", None) or {}
        lost = [k for k, v in inner["rope_scaling"].items() if k not in ("type",) and dict(arrived).get(k) != v]
        rows.append(meaning.row("rope_scaling", inner["rope_scaling"], arrived, same=not lost))
    return rows


def _dict(seen: Any) -> dict[str, Any]:
    return {name: getattr(seen, name, None) for name in ("rope_parameters", "rope_theta")}


def _layers(linker: Linker, config: dict[str, Any], seen: Any) -> list[dict[str, Any]]:
    meant = meaning.layers(config)
    try:
        where = linker.where(vllm_calls.MODEL, "_resolve_layer_attention")
        linker.get(vllm_calls.MODEL, "_resolve_layer_attention")
    except Absent:
        where, got = "", [(None, _switch(seen)) for _ in meant]
    else:
        got = [vllm_calls.layer(linker, seen, index) for index in range(len(meant))]
        got = [(g[0], _switch(seen)) if _global(linker) and not isinstance(g, str) else g for g in got]
    rows = []
    for index, (wanted, given) in enumerate(zip(meant, got)):
        field, text = f"layer {index}", meaning.layer_text(wanted)
        if isinstance(given, str):
            rows.append(meaning.refused(field, text, given, where))
        else:
            note = "" if given[0] == wanted[0] else "window not executed" if given[0] is None else "other window"
            rows.append(
                meaning.row(field, text, meaning.layer_text(given), where, note=note or "other mask in the block")
            )
    return rows


def _global(linker: Linker) -> bool:
    """Before per-layer masks, one switch decided for all layers whatever the resolver says."""
    try:
        return bool(linker.get(vllm_calls.V2 + ".dflash.utils", "get_dflash_causal"))
    except Absent:
        return False


def _switch(seen: Any) -> bool:
    return bool((getattr(seen, "dflash_config", None) or {}).get("causal", False))


def _mask(linker: Linker, config: dict[str, Any], seen: Any) -> list[dict[str, Any]]:
    file = config.get("mask_token_id") if meaning.is_speculators(config) else meaning.nested(config, "mask_token_id")
    module = vllm_calls.V2 + ".utils"
    try:
        got = linker.get(module, "get_parallel_drafting_token_id")(seen)
        where = linker.where(module, "get_parallel_drafting_token_id")
    except Absent:
        got, where = (getattr(seen, "dflash_config", None) or {}).get("mask_token_id"), ""
    except ValueError as error:
        return [meaning.refused("mask_token_id", file, str(error))]
    return [meaning.row("mask_token_id", file, got, where)]
