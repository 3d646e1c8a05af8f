"""SGLang's shipped functions, level 5: called with known inputs, and with the user's config."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any, Callable

from . import meaning
from .link import Absent, Linker
from .source import Answer

MODEL = "sglang.srt.models.dflash"
UTILS = "sglang.srt.speculative.dflash_utils"
TARGET = "sglang.srt.models.qwen3"
ALGORITHMS = "sglang.srt.speculative.spec_info"
ZLAB_IDS, HIDDEN_STATES = [1, 9, 17], [2, 10, 18]
SLIDING, FULL = "sliding_attention", "full_attention"


class _Config(SimpleNamespace):
    """A config object as transformers makes it, as far as these functions look."""

    def get_text_config(self, **_: Any) -> _Config:
        return self


def dflash(linker: Linker) -> Answer:
    got = parsed(
        linker, {"num_hidden_layers": 2, "dflash_config": {"target_layer_ids": list(ZLAB_IDS), "mask_token_id": 7}}
    )
    found = list(got.target_layer_ids) == ZLAB_IDS and got.mask_token_id == 7
    return Answer(
        "yes" if found else "no", linker.where(UTILS, "parse_dflash_draft_config"), "a z-lab config is parsed"
    )


def parsed(linker: Linker, config: dict[str, Any]) -> Any:
    return linker.get(UTILS, "parse_dflash_draft_config")(draft_hf_config=_Config(**config))


def captured(linker: Linker, ids: list[int]) -> Any:
    """Layers before which the target's hidden state is taken: its ``output_hidden_states`` index."""
    owner = next(
        (
            name
            for name, node in linker.space(TARGET).table.items()
            if isinstance(node, ast.ClassDef)
            and any(getattr(item, "name", "") == "set_dflash_layers_to_capture" for item in node.body)
        ),
        None,
    )
    if owner is None:
        raise Absent(f"{TARGET}: set_dflash_layers_to_capture")
    model = SimpleNamespace(layers_to_capture=None)
    target = linker.instance(TARGET, owner, model=model, pp_group=SimpleNamespace(is_last_rank=True))
    target.set_dflash_layers_to_capture(list(ids))
    return model.layers_to_capture, linker.where(TARGET, f"{owner}.set_dflash_layers_to_capture")


def zlab_ids(linker: Linker) -> Answer:
    got, where = captured(linker, ZLAB_IDS)
    value = "plus_one" if got == HIDDEN_STATES else "raw" if got == ZLAB_IDS else "wrong"
    return Answer(value, where, f"{ZLAB_IDS} → {got}")


def layer(linker: Linker, config: Any, index: int) -> tuple[int | None, bool]:
    """(window as in the file, causal) of a layer; SGLang stores one less and -1 for none."""
    window, kind = linker.get(MODEL, "_get_dflash_layer_attention_params")(config, index)
    return (None if window < 0 else window + 1), kind.name == "DECODER"


def _layers(**more: Any) -> _Config:
    return _Config(layer_types=[SLIDING, FULL], sliding_window=32, num_hidden_layers=2, **more)


def window(linker: Linker) -> Answer:
    got = [layer(linker, _layers(), i) for i in (0, 1)]
    value = "mixed" if [w for w, _ in got] == [32, None] else "wrong"
    return Answer(
        value, linker.where(MODEL, "_get_dflash_layer_attention_params"), f"sliding+full → {got[0]}, {got[1]}"
    )


def causality(linker: Linker) -> Answer:
    sliding_off = layer(linker, _layers(is_causal=False), 0)[1]
    full_on = layer(linker, _layers(is_causal=True), 1)[1]
    default = [layer(linker, _layers(), i)[1] for i in (0, 1)]
    value = {(False, True): "is_causal", (True, True): "is_causal_full", (True, False): "sliding"}.get(
        (sliding_off, full_on)
    )
    how = f"sliding, is_causal false → causal {sliding_off}; full, is_causal true → causal {full_on}"
    where = linker.where(MODEL, "_get_dflash_layer_attention_params")
    return Answer(value if default == [True, False] and value else "wrong", where, how)


def theta(linker: Linker, config: Any) -> Any:
    """The rotary base that the drafter would run with, None if the code asks another way than these two."""
    init = linker.method(MODEL, "DFlashAttention", "__init__")
    names = {getattr(node, "id", None) for node in ast.walk(init)}
    if "get_rope_config" in names:
        return linker.space(MODEL)["get_rope_config"](config)[0]
    for node in ast.walk(init):  # rope_theta = float(getattr(config, "rope_theta", 1000000))
        if isinstance(node, ast.Assign) and any(getattr(t, "id", None) == "rope_theta" for t in node.targets):
            expression = ast.fix_missing_locations(ast.Expression(node.value))
            return eval(compile(expression, linker.file(MODEL), "eval"), {"config": config})
    return None


def rope(linker: Linker) -> Answer:
    got = theta(linker, _Config(rope_parameters={"rope_theta": 5e5, "rope_type": "default"}))
    value = "nested" if got == 5e5 else "flat"
    return Answer(value, linker.where(MODEL, "DFlashAttention.__init__"), f"rope_parameters.rope_theta 5e5 → {got}")


def dflash2(linker: Linker) -> Answer:
    inner = {"target_layer_ids": list(ZLAB_IDS), "mask_token_id": 7, "conv_kernel_size": 2, "conv_group_size": 16}
    got = getattr(parsed(linker, {"num_hidden_layers": 2, "dflash_config": inner}), "conv_kernel_size", None)
    where = linker.where(UTILS, "parse_dflash_draft_config")
    return Answer("yes" if got == 2 else "no", where, f"conv_kernel_size 2 → {got}")


CALLS: dict[str, Callable[[Linker], Answer]] = {
    "dflash": dflash,
    "zlab_ids": zlab_ids,
    "window": window,
    "causality": causality,
    "rope": rope,
    "dflash2": dflash2,
}


def chain(linker: Linker, config: dict[str, Any]) -> dict[str, Any]:
    """The user's drafter config through SGLang's parser, taps, layers and rotary base."""
    if meaning.is_speculators(config):
        error = "SGLang reads no speculators files for DFlash; convert to z-lab's format"
        return {
            "format": "speculators",
            "rows": [meaning.refused("speculators_model_type", config.get("speculators_model_type"), error)],
        }
    from transformers import AutoConfig

    seen = AutoConfig.for_model(**{"model_type": "qwen3", **config})
    got = linker.get(UTILS, "parse_dflash_draft_config")(draft_hf_config=seen)
    where = linker.where(UTILS, "parse_dflash_draft_config")
    rows = [meaning.row("block_size", meaning.nested(config, "block_size"), got.block_size, where)]
    rows.append(meaning.row("mask_token_id", meaning.nested(config, "mask_token_id"), got.mask_token_id, where))
    taps, at = captured(linker, list(got.target_layer_ids or []))
    rows.append(meaning.row("taps", meaning.hidden_states(config), taps, at))
    given = theta(linker, seen)
    rows.append(
        meaning.row("rope_theta", meaning.rope_theta(config), given, linker.where(MODEL, "DFlashAttention.__init__"))
    )
    return {"format": "z-lab", "rows": [*rows, *_layer_rows(linker, config, seen)]}


def _layer_rows(linker: Linker, config: dict[str, Any], seen: Any) -> list[dict[str, Any]]:
    rows = []
    for index, meant in enumerate(meaning.layers(config)):
        field, text = f"layer {index}", meaning.layer_text(meant)
        try:
            given, where = layer(linker, seen, index), linker.where(MODEL, "_get_dflash_layer_attention_params")
        except Absent:
            given, where = (None, False), linker.where(MODEL, "DFlashAttention")
        except ValueError as error:
            rows.append(meaning.refused(field, text, str(error)))
            continue
        note = (
            "other mask in the block"
            if given[0] == meant[0]
            else "window not executed"
            if given[0] is None
            else "other window"
        )
        rows.append(meaning.row(field, text, meaning.layer_text(given), where, note=note))
    return rows
