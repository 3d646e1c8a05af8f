"""vLLM's sources, level 4: one function per fact of the version matrix. Values are those of ``vllm_calls``."""

from __future__ import annotations

import ast
from typing import Callable

from .source import Answer, Sources, adds_one, name_in, raises, stores, text_in

SPECULATIVE = "config/speculative.py"
REGISTRY = "model_executor/models/registry.py"
ALGOS = "transformers_utils/configs/speculators/algos.py"
EAGLE = "transformers_utils/configs/eagle.py"
SPECULATORS = "transformers_utils/configs/speculators/base.py"
MODEL = "model_executor/models/qwen3_dflash.py"
RUNNER = "v1/worker/gpu_model_runner.py"
PROPOSER = "v1/spec_decode/dflash.py"
V2 = "v1/worker/gpu/spec_decode"
V2_IDS = V2 + "/eagle/eagle3_utils.py"


def _registered(architecture: str) -> Callable[[Sources], Answer]:
    def question(sources: Sources) -> Answer:
        tree = sources.tree(REGISTRY)
        if tree is None:
            return Answer(None, sources.at(REGISTRY), "there is no registry to read")
        node = text_in(tree, architecture)
        return Answer("yes" if node else "no", sources.at(REGISTRY, node), f"registry key {architecture}")

    return question


def speculators_dflash2(sources: Sources) -> Answer:
    for node in ast.walk(sources.tree(ALGOS) or ast.Module([], [])):
        if isinstance(node, ast.FunctionDef) and any(text_in(d, "dflash2") for d in node.decorator_list):
            return Answer("yes", sources.at(ALGOS, node), "registered for speculators files")
    return Answer("no", sources.at(ALGOS), 'no function registered for "dflash2"')


def _ids(path: str, name: str) -> Callable[[Sources], Answer]:
    def question(sources: Sources) -> Answer:
        node = sources.find(path, name)
        mention = text_in(node, "target_layer_ids")
        if mention is None:
            return Answer("absent", sources.at(path, node), "target_layer_ids is not read here")
        one = adds_one(node)
        return Answer("plus_one" if one else "raw", sources.at(path, one or mention), "1 added to target_layer_ids?")

    return question


def speculators_ids(sources: Sources) -> Answer:
    node = sources.find(ALGOS, "update_dflash")
    if node is None:
        return Answer("absent", sources.at(ALGOS), "speculators files of type dflash are not read")
    stored = stores(node, "eagle_aux_hidden_state_layer_ids")
    if not isinstance(stored, ast.Assign):
        return Answer("wrong", sources.at(ALGOS, node), "eagle_aux_hidden_state_layer_ids is not written")
    return Answer("wrong" if adds_one(stored) else "as_written", sources.at(ALGOS, stored), "ids passed on unchanged?")


def zlab_config(sources: Sources) -> Answer:
    node = sources.find(EAGLE, "EAGLEConfig.__init__")
    if node is None or text_in(node, "dflash") is None:
        return Answer("absent", sources.at(EAGLE, node), "EAGLEConfig does not know dflash")
    for loop in ast.walk(node):
        if isinstance(loop, ast.For) and name_in(loop.iter, "to_dict") and name_in(loop, "setattr"):
            return Answer("kept", sources.at(EAGLE, loop), "every field of to_dict() is copied")
    return Answer("dropped", sources.at(EAGLE, node), "no loop copies the fields of to_dict()")


def speculators_config(sources: Sources) -> Answer:
    if sources.find(ALGOS, "update_dflash") is None:
        return Answer("absent", sources.at(ALGOS), "speculators files of type dflash are not read")
    node = sources.find(SPECULATORS, "SpeculatorsConfig.extract_transformers_pre_trained_config")
    start = text_in(node, "transformer_layer_config")
    return Answer(
        "kept" if start else "dropped", sources.at(SPECULATORS, start or node), "starts from the layer config?"
    )


def window(sources: Sources) -> Answer:
    tree = sources.tree(MODEL)
    if tree is None:
        return Answer("absent", sources.at(MODEL), "no DFlash model")
    mention = text_in(tree, "layer_types")
    if mention is None:
        return Answer("none", sources.at(MODEL), "layer_types is not read")
    resolver = sources.find(MODEL, "_resolve_layer_attention")
    refusal = raises(resolver, "NotImplementedError")
    uniform = refusal is not None and name_in(resolver, "use_v2_model_runner") is None
    return Answer(
        "uniform" if uniform else "mixed", sources.at(MODEL, refusal or resolver or mention), "layer_types is read"
    )


def causality(sources: Sources) -> Answer:
    tree = sources.tree(MODEL)
    if tree is None:
        return Answer("absent", sources.at(MODEL), "no DFlash model")
    explicit = text_in(tree, "is_causal")
    if explicit is not None:
        return Answer("is_causal", sources.at(MODEL, explicit), "is_causal is read first")
    layer = sources.find(MODEL, "_dflash_layer_causal")
    if layer is not None:
        return Answer("per_layer", sources.at(MODEL, layer), "each layer has its own, is_causal is not read")
    switch = text_in(sources.tree(PROPOSER), "causal")
    for node in ast.walk(sources.tree(PROPOSER) or ast.Module([], [])):
        if isinstance(node, ast.Call) and name_in(node.func, "get") and text_in(node, "causal"):
            return Answer("global", sources.at(PROPOSER, node), "one switch for all layers: dflash_config.causal")
    return Answer("none", sources.at(PROPOSER, switch), "drafts are never causal")


def speculators_causal(sources: Sources) -> Answer:
    node = sources.find(ALGOS, "update_dflash")
    if node is None:
        return Answer("absent", sources.at(ALGOS), "speculators files of type dflash are not read")
    stored = stores(node, "causal")
    return Answer(
        "all_layers" if stored else "unset", sources.at(ALGOS, stored or node), "dflash_config.causal is written?"
    )


def prefix_drop(sources: Sources) -> Answer:
    needs = sources.find(SPECULATIVE, "SpeculativeConfig.needs_eagle_block_drop")
    if needs is not None:
        return Answer(
            "off" if name_in(needs, "use_dflash") else "on", sources.at(SPECULATIVE, needs), "exempts dflash?"
        )
    eagle = sources.find(SPECULATIVE, "SpeculativeConfig.use_eagle")
    listed = text_in(eagle, "dflash")
    value = "on" if listed else "absent"
    return Answer(value, sources.at(SPECULATIVE, listed or eagle), "use_eagle() lists dflash, and drops follow it")


def prefix_drop_optout(sources: Sources) -> Answer:
    owner = sources.find(SPECULATIVE, "SpeculativeConfig")
    for node in getattr(owner, "body", []):
        if isinstance(node, ast.AnnAssign) and name_in(node.target, "disable_eagle_block_drop"):
            return Answer("yes", sources.at(SPECULATIVE, node), "field disable_eagle_block_drop")
    return Answer("no", sources.at(SPECULATIVE, owner), "no field disable_eagle_block_drop")


def symmetric_window(sources: Sources) -> Answer:
    path = "v1/attention/backends/flash_attn.py"
    node = sources.find(path, "_maybe_symmetrize_window")
    return Answer("yes" if node else "no", sources.at(path, node), "_maybe_symmetrize_window")


def wrapper_head(sources: Sources) -> Answer:
    if not sources.exists(V2 + "/dflash"):
        return Answer("absent", sources.at(V2), "no DFlash on the V2 runner")
    node = sources.find(V2 + "/eagle/utils.py", "get_target_lm_head")
    used = name_in(sources.find(V2 + "/dflash/utils.py", "load_dflash_model"), "get_target_lm_head")
    return Answer(
        "yes" if node and used else "no", sources.at(V2 + "/eagle/utils.py", node), "get_target_lm_head is used"
    )


def max_length(sources: Sources) -> Answer:
    if sources.tree(PROPOSER) is None:
        return Answer("absent", sources.at(PROPOSER), "no DFlash on the V1 runner")
    node = sources.find(RUNNER, "GPUModelRunner._input_fits_in_drafter")
    exact = name_in(node, "use_dflash")
    return Answer("exact" if exact else "one_short", sources.at(RUNNER, exact or node), "counts the anchor as a query?")


def quantised_drafter(sources: Sources) -> Answer:
    tree = sources.tree(MODEL)
    if tree is None:
        return Answer("absent", sources.at(MODEL), "no DFlash model")
    node = name_in(tree, "UnquantizedLinearMethod")
    return Answer("yes" if node else "no", sources.at(MODEL, node), "UnquantizedLinearMethod")


def runner_v2(sources: Sources) -> Answer:
    return Answer("yes" if sources.exists(V2 + "/dflash") else "no", sources.at(V2 + "/dflash"), "folder")


def mask_embedding(sources: Sources) -> Answer:
    node = sources.find(MODEL, "DFlashQwen3ForCausalLM._read_mask_embedding")
    return Answer("yes" if node else "no", sources.at(MODEL, node), "_read_mask_embedding")


READS: dict[str, Callable[[Sources], Answer]] = {
    "dflash": _registered("DFlashDraftModel"),
    "dflash2": _registered("DFlash2DraftModel"),
    "speculators_dflash2": speculators_dflash2,
    "zlab_ids_v1": _ids(RUNNER, "GPUModelRunner._get_eagle3_aux_layers_from_config"),
    "zlab_ids_v2": _ids(V2_IDS, "get_eagle3_aux_layers_from_config"),
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
    "quantised_drafter": quantised_drafter,
    "runner_v2": runner_v2,
    "mask_embedding": mask_embedding,
}
