"""llama.cpp's command line (common/arg.cpp): several names per flag, old and new, and variables for absent flags."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from draftproof.proof.launch.line import Argument, Command, Parsed, Problem, whole

DRAFT = ("-md", "--model-draft", "--spec-draft-model")
N_MAX = ("--spec-draft-n-max", "--draft-max", "--draft", "--draft-n")
P_MIN = ("--spec-draft-p-min", "--draft-p-min")
SPEC_TYPE = ("--spec-type",)
DEFAULT_N_MAX = 3
_METHODS = {
    "draft-dflash": "dflash",
    "dflash": "dflash",
    "draft-eagle3": "eagle3",
    "draft-mtp": "mtp",
    "mtp": "mtp",
    "draft-simple": "draft_model",
    "draft": "draft_model",
}
_NUMBERS = {
    ("-c", "--ctx-size"): "ctx_size",
    ("-cd", "--ctx-size-draft", "--spec-draft-ctx-size"): "draft_ctx_size",
    ("-np", "--parallel"): "parallel",
    ("-ub", "--ubatch-size"): "ubatch",
    ("-ngl", "--gpu-layers", "--n-gpu-layers"): "n_gpu_layers",
}
_TEXTS = {
    ("-sm", "--split-mode"): "split_mode",
    ("-ctk", "--cache-type-k"): "kv_cache_dtype",
    ("-fa", "--flash-attn"): "flash_attention",
}
MODEL, HUB = ("-m", "--model"), ("-hf", "--hf-repo")
# Read where the flag is absent; a flag on the line wins.
_VARIABLES = {
    "LLAMA_ARG_MODEL": MODEL,
    "LLAMA_ARG_HF_REPO": HUB,
    "LLAMA_ARG_SPEC_DRAFT_MODEL": DRAFT,
    "LLAMA_ARG_SPEC_DRAFT_N_MAX": N_MAX,
    "LLAMA_ARG_SPEC_DRAFT_P_MIN": P_MIN,
    "LLAMA_ARG_SPEC_TYPE": SPEC_TYPE,
    "LLAMA_ARG_CTX_SIZE": ("-c", "--ctx-size"),
    "LLAMA_ARG_N_PARALLEL": ("-np", "--parallel"),
    "LLAMA_ARG_UBATCH": ("-ub", "--ubatch-size"),
    "LLAMA_ARG_N_GPU_LAYERS": ("-ngl", "--gpu-layers", "--n-gpu-layers"),
    "LLAMA_ARG_SPLIT_MODE": ("-sm", "--split-mode"),
    "LLAMA_ARG_CACHE_TYPE_K": ("-ctk", "--cache-type-k"),
    "LLAMA_ARG_FLASH_ATTN": ("-fa", "--flash-attn"),
}


def parse(command: Command) -> Parsed:
    return replace(_parse(_with_variables(command)), command=command)


def _with_variables(command: Command) -> Command:
    """With each variable as the flag it stands for, where the line has no such flag."""
    stated = [
        Argument(flags[0], (str(command.env[name]),))
        for name, flags in _VARIABLES.items()
        if command.env.get(name) and not command.has(*flags)
    ]
    return replace(command, arguments=(*command.arguments, *stated))


def _parse(command: Command) -> Parsed:
    options: dict[str, Any] = {}
    for flags, key in _NUMBERS.items():
        value = whole(command.last(*flags))
        if value is not None:
            options[key] = value
    for flags, key in _TEXTS.items():
        if command.last(*flags):
            options[key] = command.last(*flags)
    kind = command.last(*SPEC_TYPE) or ""
    if kind:
        options["spec_type"] = kind
    drafter = command.last(*DRAFT)
    least = command.last(*P_MIN)
    if drafter or kind:
        options["spec_draft_p_min"] = _number(least) if least else "default"
    asked = whole(command.last(*N_MAX))
    temperature = _number(command.last("--temp", "--temperature"))
    return Parsed(
        command,
        target=command.last(*MODEL, *HUB),
        drafter=drafter,
        method=_method(kind),
        k=asked if asked is not None else DEFAULT_N_MAX if drafter else None,
        options=options,
        workload={} if temperature is None else {"temperature": temperature},
        problems=tuple(_problems(command, kind, drafter)),
    )


def _method(kind: str) -> str | None:
    first = kind.split(",")[0]
    return "ngram" if first.startswith("ngram") else _METHODS.get(first)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _problems(command: Command, kind: str, drafter: str | None) -> list[Problem]:
    found: list[Problem] = []
    kinds = [k for k in kind.split(",") if k]
    if any("dflash" in k for k in kinds) and not drafter:
        found.append(Problem("error", f"--spec-type {kind} needs a drafter", "-md drafter.gguf"))
    if any(k.startswith("ngram") for k in kinds) and any("dflash" in k for k in kinds):
        found.append(
            Problem(
                "warning",
                f"--spec-type {kind}: n-grams are tried first, DFlash is the fallback",
                "--spec-type draft-dflash",
            )
        )
    if kind in ("none",) and drafter:
        found.append(Problem("warning", "-md has no effect with --spec-type none", "--spec-type draft-dflash"))
    if not drafter and not kind and command.has(*N_MAX, *P_MIN):
        found.append(
            Problem("warning", "draft flags have no effect without -md or --spec-type", "Add -md drafter.gguf.")
        )
    return found
