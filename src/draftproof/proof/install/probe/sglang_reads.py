"""SGLang's sources, level 4: one function per fact of the version matrix. Values are those of ``sglang_calls``."""

from __future__ import annotations

import ast
from typing import Callable

from .source import Answer, Sources, adds_one, name_in, text_in

ALGORITHMS = "srt/speculative/spec_info.py"
MODEL = "srt/models/dflash.py"
UTILS = "srt/speculative/dflash_utils.py"
TARGET = "srt/models/qwen3.py"
WORKER, WORKER_V2 = "srt/speculative/dflash_worker.py", "srt/speculative/dflash_worker_v2.py"


def _no_model(sources: Sources) -> Answer:
    return Answer("absent", sources.at(MODEL), "no DFlash model")


def dflash(sources: Sources) -> Answer:
    owner = sources.find(ALGORITHMS, "SpeculativeAlgorithm")
    member = name_in(owner, "DFLASH")
    found = member is not None and sources.tree(MODEL) is not None
    return Answer("yes" if found else "no", sources.at(ALGORITHMS, member or owner), "algorithm DFLASH and its model")


def zlab_ids(sources: Sources) -> Answer:
    node = None
    for item in ast.walk(sources.tree(TARGET) or ast.Module([], [])):
        if isinstance(item, ast.FunctionDef) and item.name == "set_dflash_layers_to_capture":
            node = item
    if node is None:
        return Answer("absent", sources.at(TARGET), "no set_dflash_layers_to_capture")
    one = adds_one(node)
    return Answer("plus_one" if one else "raw", sources.at(TARGET, one or node), "1 added to layer_ids?")


def window(sources: Sources) -> Answer:
    if sources.tree(MODEL) is None:
        return _no_model(sources)
    node = sources.find(MODEL, "_get_dflash_layer_attention_params")
    return Answer("mixed" if node else "none", sources.at(MODEL, node), "_get_dflash_layer_attention_params")


def causality(sources: Sources) -> Answer:
    if sources.tree(MODEL) is None:
        return _no_model(sources)
    kind = sources.find(MODEL, "_get_dflash_attention_type")
    if text_in(kind, "is_causal"):
        return Answer("is_causal", sources.at(MODEL, kind), "is_causal decides for every layer")
    params = sources.find(MODEL, "_get_dflash_layer_attention_params")
    explicit = text_in(params, "is_causal")
    if explicit is not None:
        return Answer("is_causal_full", sources.at(MODEL, explicit), "is_causal is read for full layers only")
    return Answer("sliding" if params else "none", sources.at(MODEL, params), "is_causal is not read")


def rope(sources: Sources) -> Answer:
    tree = sources.tree(MODEL)
    if tree is None:
        return _no_model(sources)
    node = name_in(sources.find(MODEL, "DFlashAttention.__init__"), "get_rope_config")
    flat = text_in(sources.find(MODEL, "DFlashAttention.__init__"), "rope_theta")
    return Answer(
        "nested" if node else "flat", sources.at(MODEL, node or flat), "get_rope_config, or config.rope_theta"
    )


def dflash2(sources: Sources) -> Answer:
    if sources.tree(MODEL) is None:
        return _no_model(sources)
    node = text_in(sources.find(UTILS, "parse_dflash_draft_config"), "conv_kernel_size")
    return Answer("yes" if node else "no", sources.at(UTILS, node), "conv_kernel_size is parsed")


def worker(sources: Sources) -> Answer:
    for value, path in (("v2", WORKER_V2), ("v1", WORKER)):
        if sources.exists(path):
            return Answer(value, sources.at(path), "worker file")
    return Answer("absent", sources.at(WORKER), "no worker file")


def mask_embedding(sources: Sources) -> Answer:
    if sources.tree(MODEL) is None:
        return _no_model(sources)
    node = text_in(sources.tree(WORKER_V2), "mask_embedding.pt")
    return Answer("yes" if node else "no", sources.at(WORKER_V2, node), "mask_embedding.pt is looked for")


READS: dict[str, Callable[[Sources], Answer]] = {
    "dflash": dflash,
    "zlab_ids": zlab_ids,
    "window": window,
    "causality": causality,
    "rope": rope,
    "dflash2": dflash2,
    "worker": worker,
    "mask_embedding": mask_embedding,
}
