"""What a drafter's config.json means by itself, whatever an engine makes of it, and rows that compare the two.

z-lab's rules after ``dflash/model.py``: nested values win, ``is_causal`` decides for all layers, else a layer is causal
if it slides; ids are layer outputs, one more in ``output_hidden_states`` indices. speculators' after
``models/dflash/attention.py``: ids are such indices already, only sliding layers are ever causal.
"""

from __future__ import annotations

from typing import Any

SLIDING = "sliding_attention"


def is_speculators(config: dict[str, Any]) -> bool:
    return "speculators_model_type" in config or "speculators_config" in config


def layers_config(config: dict[str, Any]) -> dict[str, Any]:
    inner = config.get("transformer_layer_config") if is_speculators(config) else None
    return inner if isinstance(inner, dict) else config


def nested(config: dict[str, Any], name: str) -> Any:
    """A value of ``dflash_config``, else of the top level."""
    inner = config.get("dflash_config")
    value = inner.get(name) if isinstance(inner, dict) else None
    return config.get(name) if value is None else value


def hidden_states(config: dict[str, Any]) -> list[int] | None:
    """Taps as ``output_hidden_states`` indices."""
    if is_speculators(config):
        ids = config.get("aux_hidden_state_layer_ids")
        return list(ids) if isinstance(ids, list) else None
    ids = nested(config, "target_layer_ids")
    return [i + 1 for i in ids if isinstance(i, int)] if isinstance(ids, list) else None


def layers(config: dict[str, Any]) -> list[tuple[int | None, bool]]:
    """(window or None, causal inside the block) of each layer."""
    inner = layers_config(config)
    count = inner.get("num_hidden_layers")
    count = count if isinstance(count, int) and 0 < count <= 1000 else 0
    types = inner.get("layer_types")
    use_swa = not is_speculators(config) and bool(nested(config, "use_swa"))
    found = []
    for index in range(count):
        sliding = use_swa or (isinstance(types, list) and index < len(types) and types[index] == SLIDING)
        window = inner.get("sliding_window")
        if use_swa:
            window = nested(config, "swa_window_size") or window
        found.append((window if sliding else None, _causal(config, sliding)))
    return found


def _causal(config: dict[str, Any], sliding: bool) -> bool:
    if is_speculators(config):
        return sliding and not config.get("sliding_window_non_causal", False)
    if config.get("is_causal") is not None:
        return bool(config["is_causal"])
    inner = config.get("dflash_config")
    causal = inner.get("causal") if isinstance(inner, dict) else None
    return bool(causal) if causal is not None else sliding


def rope_theta(config: Any) -> Any:
    """The rotary base: in ``rope_parameters`` first, then flat. Takes a dict or an object."""
    read = config.get if isinstance(config, dict) else lambda name: getattr(config, name, None)
    inner = read("rope_parameters")
    value = inner.get("rope_theta") if isinstance(inner, dict) else None
    return read("rope_theta") if value is None else value


def row(
    field: str, file: Any, engine: Any, where: str = "", *, same: bool | None = None, note: str = ""
) -> dict[str, Any]:
    """``same`` None: judged by equality. ``note``: what a difference does."""
    if same is None:
        same = plain(file) == plain(engine)
    return {"field": field, "file": plain(file), "engine": plain(engine), "same": same, "where": where, "note": note}


def refused(field: str, file: Any, error: str, where: str = "") -> dict[str, Any]:
    return {
        "field": field,
        "file": plain(file),
        "engine": None,
        "same": False,
        "where": where,
        "note": "",
        "refused": error,
    }


def plain(value: Any) -> Any:
    """JSON data; anything else by its text."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)[:200]


def layer_text(layer: tuple[int | None, bool]) -> str:
    window, causal = layer
    return f"{'full' if window is None else f'window {window}'}, {'causal' if causal else 'not causal'}"
