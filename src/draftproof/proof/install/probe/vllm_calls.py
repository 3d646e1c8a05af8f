"""vLLM's shipped functions, level 5: called with known inputs. Values are those of ``vllm_reads``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable

from .link import Absent, Linker
from .source import Answer

SPECULATIVE = "vllm.config.speculative"
REGISTRY = "vllm.model_executor.models.registry"
ALGOS = "vllm.transformers_utils.configs.speculators.algos"
EAGLE = "vllm.transformers_utils.configs.eagle"
SPECULATORS = "vllm.transformers_utils.configs.speculators.base"
MODEL = "vllm.model_executor.models.qwen3_dflash"
RUNNER = "vllm.v1.worker.gpu_model_runner"
V2 = "vllm.v1.worker.gpu.spec_decode"
V2_IDS = V2 + ".eagle.eagle3_utils"
ZLAB_IDS, HIDDEN_STATES = [1, 9, 17], [2, 10, 18]
SLIDING, FULL = "sliding_attention", "full_attention"


def speculative(linker: Linker, **values: Any) -> Any:
    """A SpeculativeConfig with these fields and its own shipped methods."""
    return linker.instance(SPECULATIVE, "SpeculativeConfig", **{"method": "dflash", **values})


def _registered(architecture: str) -> Callable[[Linker], Answer]:
    def question(linker: Linker) -> Answer:
        table = linker.get(REGISTRY, "_SPECULATIVE_DECODING_MODELS")
        where = linker.where(REGISTRY, "_SPECULATIVE_DECODING_MODELS")
        found = architecture in table
        if architecture == "DFlashDraftModel":
            found = found and bool(_or_false(lambda: speculative(linker).use_dflash()))
        return Answer("yes" if found else "no", where, f"{architecture} among {len(table)} registered drafters")

    return question


def _or_false(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except AttributeError:
        return False


def speculators_dflash2(linker: Linker) -> Answer:
    table = linker.get(ALGOS, "SUPPORTED_SPECULATORS_TYPES")
    where = linker.where(ALGOS, "SUPPORTED_SPECULATORS_TYPES")
    return Answer("yes" if "dflash2" in table else "no", where, f"registered: {', '.join(sorted(table))}")


def ids_v1(linker: Linker, config: Any) -> Any:
    """What the V1 runner takes for taps, in output_hidden_states indices."""
    function = linker.get(RUNNER, "GPUModelRunner._get_eagle3_aux_layers_from_config")
    holder = SimpleNamespace(draft_model_config=SimpleNamespace(hf_config=config))
    return function(SimpleNamespace(speculative_config=holder))


def ids_v2(linker: Linker, config: Any) -> Any:
    function = linker.get(V2_IDS, "get_eagle3_aux_layers_from_config")
    return function(SimpleNamespace(draft_model_config=SimpleNamespace(hf_config=config)))


def _zlab_ids(call: Callable[[Linker, Any], Any], module: str, name: str) -> Callable[[Linker], Answer]:
    def question(linker: Linker) -> Answer:
        got = call(linker, SimpleNamespace(dflash_config={"target_layer_ids": list(ZLAB_IDS)}))
        value = {tuple(HIDDEN_STATES): "plus_one", tuple(ZLAB_IDS): "raw", None: "absent"}.get(got, "wrong")
        return Answer(value, linker.where(module, name), f"{name.rpartition('.')[2]}: {ZLAB_IDS} → {got}")

    return question


def updated(linker: Linker, **given: Any) -> dict[str, Any]:
    """What ``update_dflash`` makes of a speculators file."""
    config = {"aux_hidden_state_layer_ids": list(HIDDEN_STATES), "mask_token_id": 7, "draft_vocab_size": 32, **given}
    out: dict[str, Any] = {"layer_types": [SLIDING, FULL], "sliding_window": 32, "num_hidden_layers": 2}
    linker.get(ALGOS, "update_dflash")(config, out)
    return out


def speculators_ids(linker: Linker) -> Answer:
    out = updated(linker)
    got = ids_v1(linker, SimpleNamespace(**out))
    value = "as_written" if tuple(got or ()) == tuple(HIDDEN_STATES) else "wrong"
    return Answer(value, linker.where(ALGOS, "update_dflash"), f"aux_hidden_state_layer_ids {HIDDEN_STATES} → {got}")


ZLAB = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "layer_types": [SLIDING, FULL],
    "sliding_window": 32,
    "use_sliding_window": True,
    "max_window_layers": 0,
    "dflash_config": {"target_layer_ids": list(ZLAB_IDS), "mask_token_id": 7},
}


def eagle_config(linker: Linker, config: dict[str, Any]) -> Any:
    """A z-lab config.json as the model class sees it: through AutoConfig, then EAGLEConfig."""
    from transformers import AutoConfig

    inner = AutoConfig.for_model(**{"model_type": "qwen3", **config})
    return linker.get(EAGLE, "EAGLEConfig")(inner, method="dflash", model_type="eagle")


def zlab_config(linker: Linker) -> Answer:
    if "dflash" not in _literals(linker, EAGLE, "EAGLEConfig"):
        return Answer("absent", linker.where(EAGLE, "EAGLEConfig"), "EAGLEConfig does not know dflash")
    got = eagle_config(linker, ZLAB)
    lost = [
        name for name in ("layer_types", "sliding_window", "dflash_config") if getattr(got, name, None) != ZLAB[name]
    ]
    how = f"lost: {', '.join(lost)}" if lost else "layer_types, sliding_window and dflash_config arrive"
    return Answer("dropped" if lost else "kept", linker.where(EAGLE, "EAGLEConfig"), how)


def _literals(linker: Linker, module: str, name: str) -> set[Any]:
    import ast

    node = linker.space(module).table.get(name)
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)} if node is not None else set()


def speculators_config(linker: Linker) -> Answer:
    layers = {"layer_types": [SLIDING, FULL], "sliding_window": 32, "num_hidden_layers": 2, "use_sliding_window": True}
    if "dflash" not in linker.get(ALGOS, "SUPPORTED_SPECULATORS_TYPES"):
        return Answer("absent", linker.where(ALGOS, "SUPPORTED_SPECULATORS_TYPES"), "type dflash is not registered")
    got = extracted(
        linker,
        {
            "speculators_model_type": "dflash",
            "aux_hidden_state_layer_ids": list(HIDDEN_STATES),
            "mask_token_id": 7,
            "transformer_layer_config": dict(layers),
        },
    )
    lost = [name for name, value in layers.items() if got.get(name) != value]
    how = f"lost: {', '.join(lost)}" if lost else "layer_types and sliding_window arrive"
    name = "SpeculatorsConfig.extract_transformers_pre_trained_config"
    return Answer("dropped" if lost else "kept", linker.where(SPECULATORS, name), how)


def extracted(linker: Linker, config: dict[str, Any]) -> dict[str, Any]:
    """A speculators config.json as the model class sees it."""
    got = linker.get(SPECULATORS, "SpeculatorsConfig.extract_transformers_pre_trained_config")(None, config)
    return dict(got)


def layer(linker: Linker, config: Any, index: int, v2: bool = True) -> Any:
    """(window, causal) that ``_resolve_layer_attention`` gives a layer; the error's text if it refuses."""
    function = linker.get(MODEL, "_resolve_layer_attention")
    function.__globals__["get_current_vllm_config"] = lambda: SimpleNamespace(use_v2_model_runner=v2)
    try:
        window, causal = function(config, index)
    except (NotImplementedError, ValueError) as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return window, causal


def _layers(types: list[str] | None, **more: Any) -> SimpleNamespace:
    count = len(types or [1, 2])
    return SimpleNamespace(layer_types=types, sliding_window=32, num_hidden_layers=count, **more)


def window(linker: Linker) -> Answer:
    linker.space(MODEL)
    where = linker.where(MODEL, "_resolve_layer_attention")
    mixed = [layer(linker, _layers([SLIDING, FULL]), i) for i in (0, 1)]
    uniform = layer(linker, _layers([SLIDING, SLIDING]), 0)
    value = "wrong"
    if uniform[0] == 32:
        value = "mixed" if [w for w, *_ in mixed] == [32, None] else "uniform"
    return Answer(value, where, f"sliding+full → {mixed[0]}, {mixed[1]}"[:160])


def causality(linker: Linker) -> Answer:
    try:
        switch = linker.get(V2 + ".dflash.utils", "get_dflash_causal")
    except Absent:
        switch = None
    if switch is not None:
        on, off = (switch(SimpleNamespace(hf_config=SimpleNamespace(dflash_config=c))) for c in ({"causal": True}, {}))
        where = linker.where(V2 + ".dflash.utils", "get_dflash_causal")
        return Answer(
            "global" if on and not off else "none", where, f"dflash_config.causal true → {on}, absent → {off}"
        )
    where = linker.where(MODEL, "_resolve_layer_attention")
    explicit = layer(linker, _layers([SLIDING, SLIDING], is_causal=False), 0)
    default = [layer(linker, _layers([SLIDING, FULL]), i)[1] for i in (0, 1)]
    value = "is_causal" if explicit == (32, False) else "per_layer" if default == [True, False] else "wrong"
    return Answer(value, where, f"sliding, is_causal false → {explicit}")


def speculators_causal(linker: Linker) -> Answer:
    out = updated(linker, sliding_window_non_causal=False)
    where = linker.where(ALGOS, "update_dflash")
    override = out["dflash_config"].get("causal")
    if override is None:
        return Answer("unset", where, "sliding_window_non_causal false → dflash_config.causal is not written")
    full = layer(linker, SimpleNamespace(**out), 1)
    value = "all_layers" if full == (None, True) else "right"
    return Answer(value, where, f"sliding_window_non_causal false → full-attention layer {full}")


def prefix_drop(linker: Linker) -> Answer:
    config = speculative(linker, disable_eagle_block_drop=False)
    for name in ("use_eagle_block_drop", "needs_eagle_block_drop", "use_eagle"):
        try:
            got = getattr(config, name)()
        except AttributeError:
            continue
        where = linker.where(SPECULATIVE, f"SpeculativeConfig.{name}")
        absent = not got and name == "use_eagle"
        return Answer("absent" if absent else "on" if got else "off", where, f"{name}() for dflash → {got}")
    raise Absent("SpeculativeConfig.use_eagle")


def prefix_drop_optout(linker: Linker) -> Answer:
    got = speculative(linker, method="eagle3", disable_eagle_block_drop=True).use_eagle_block_drop()
    where = linker.where(SPECULATIVE, "SpeculativeConfig.use_eagle_block_drop")
    return Answer("no" if got else "yes", where, f"disable_eagle_block_drop true → {got}")


def symmetric_window(linker: Linker) -> Answer:
    module = "vllm.v1.attention.backends.flash_attn"
    got = linker.get(module, "_maybe_symmetrize_window")((31, 0), False)
    where = linker.where(module, "_maybe_symmetrize_window")
    return Answer("yes" if got == (31, 31) else "no", where, f"(31, 0), not causal → {got}")


def wrapper_head(linker: Linker) -> Answer:
    module = V2 + ".eagle.utils"
    head = object()
    got = linker.get(module, "get_target_lm_head")(SimpleNamespace(), SimpleNamespace(lm_head=head))
    where = linker.where(module, "get_target_lm_head")
    return Answer("yes" if got is head else "no", where, "a wrapper's head is found on its language model")


def max_length(linker: Linker) -> Answer:
    name = "GPUModelRunner._input_fits_in_drafter"
    if linker.get(RUNNER, name) is None:
        raise Absent(name)
    runner = linker.instance(
        RUNNER,
        "GPUModelRunner",
        num_spec_tokens=15,
        effective_drafter_max_model_len=1015,
        speculative_config=speculative(linker),
    )
    fits = runner._input_fits_in_drafter(SimpleNamespace(max_seq_len=1000))
    return Answer(
        "one_short" if fits else "exact", linker.where(RUNNER, name), f"1000 + 15 drafts + anchor in 1015 → {fits}"
    )


CALLS: dict[str, Callable[[Linker], Answer]] = {
    "dflash": _registered("DFlashDraftModel"),
    "dflash2": _registered("DFlash2DraftModel"),
    "speculators_dflash2": speculators_dflash2,
    "zlab_ids_v1": _zlab_ids(ids_v1, RUNNER, "GPUModelRunner._get_eagle3_aux_layers_from_config"),
    "zlab_ids_v2": _zlab_ids(ids_v2, V2_IDS, "get_eagle3_aux_layers_from_config"),
    "speculators_ids": speculators_ids,
    "zlab_config": zlab_config,
    "speculators_config": speculators_config,
    "window": window,
    "causality": causality,
    "speculators_causal": speculators_causal,
    "prefix_drop": prefix_drop,
    "prefix_drop_optout": prefix_drop_optout,
    "symmetric_window": symmetric_window,
    "wrapper_head": wrapper_head,
    "max_length": max_length,
}
