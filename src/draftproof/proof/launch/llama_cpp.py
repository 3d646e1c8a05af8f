"""llama.cpp's command line (common/arg.cpp): several names per flag, old and new."""

from __future__ import annotations

from typing import Any

from draftproof.proof.launch.line import Command, Parsed, Problem, whole

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


def parse(command: Command) -> Parsed:
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
        target=command.last("-m", "--model", "-hf", "--hf-repo"),
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
