"""Names of models: what is left when quantisation, packaging and owner are taken away."""

from __future__ import annotations

import re

_PACKAGING = re.compile(
    r"[-_. ](?:UD|GGUF|MTP|BF16(?:-LMHead)?|FP16|F16|F32|FP8(?:[-_]?dynamic)?|NVFP4|MXFP4|FP4|AWQ|GPTQ|INT[48]|"
    r"W[48]A\d+|AutoRound|\d{1,2}[-_]?bit|I?Q\d(?:_[A-Z0-9]+)*|oq\d|exl[23]|bnb|HQQ|MLX|quantized|compressed[-_]tensors|dynamic|"
    r"export|mixed|G\d+|sym|w4a16)(?=$|[-_. ])",
    re.IGNORECASE,
)
_SUFFIX = re.compile(r"\.(gguf|safetensors)$", re.IGNORECASE)
_FAMILIES = (
    "qwen", "llama", "gemma", "mistral", "mixtral", "deepseek", "glm", "kimi", "mimo", "gpt-oss", "phi", "smollm",
    "longcat", "muse", "nemotron", "granite", "minimax", "step", "ernie", "hunyuan", "laguna",
)  # fmt: skip


def is_name(text: str | None) -> bool:
    """Text in parentheses describes a model, it does not name one."""
    return bool(text) and not str(text).strip().startswith("(")


def stripped(name: str) -> str:
    """ "RedHatAI/Qwen3.6-35B-A3B-NVFP4" → "Qwen3.6-35B-A3B"; a path → its last part."""
    text = _SUFFIX.sub("", name.strip().rstrip("/").rsplit("/", 1)[-1])
    before = None
    while before != text:
        before, text = text, _PACKAGING.sub("", text).strip("-_. ")
    return text


def same_model(one: str | None, other: str | None) -> bool:
    """The same model up to quantisation? True as well where one of them is not named: nothing differs then."""
    if one is None or other is None or not is_name(one) or not is_name(other):
        return True
    return _plain(one) == _plain(other)


def family(name: object) -> str | None:
    """ "qwen" of "Qwen/Qwen3-8B"; None for names of no known family."""
    if not isinstance(name, str) or not is_name(name):
        return None
    plain = name.rsplit("/", 1)[-1].lower()
    return next((word for word in _FAMILIES if word in plain), None)


def _plain(name: str) -> str:
    return re.sub(r"[-_. ]+", "-", stripped(name).lower())
