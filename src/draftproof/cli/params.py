"""From flags to what the engine takes, refusing every flag that could not have an effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from draftproof.cli.flags import flag_name, given
from draftproof.cli.options import LoadFlags, SamplingFlags, SpeculationFlags
from draftproof.engine.types import SamplingParams
from draftproof.errors import UsageError

_ONLY_SAMPLED = ("top_k", "top_p", "min_p", "seed")


def sampling_params(flags: SamplingFlags) -> SamplingParams:
    """The request's parameters; what was not given keeps the dataclass's default."""
    values: dict[str, Any] = given(flags)
    if "logit_bias" in values:
        values["logit_bias"] = parse_logit_bias(values["logit_bias"])
    if "stop_token_ids" in values:
        values["stop_token_ids"] = parse_ids(values["stop_token_ids"])
    if "stop" in values:
        values["stop"] = tuple(values["stop"])
    params = SamplingParams(**values)
    if params.greedy:
        for name in _ONLY_SAMPLED:
            if name in values:
                raise _without_effect(name, "at temperature 0 (greedy); set --temperature")
    return params


def engine_arguments(
    model: str, load: LoadFlags, speculation: SpeculationFlags, params: SamplingParams
) -> dict[str, Any]:
    """Keyword arguments for Engine, holding only what was given."""
    check_loading(model, load)
    check_speculation(load, speculation, greedy=params.greedy)
    return {"target": model} | given(load) | given(speculation)


def check_loading(model: str, load: LoadFlags) -> None:
    bundled_or_file = model.startswith("bundled:") or model.endswith(".gguf")
    if load.revision is not None and (bundled_or_file or Path(model).is_dir()):
        raise _without_effect("revision", f"for {model}, which is not a hub repository")
    if load.trust_remote_code and bundled_or_file:
        raise _without_effect("trust_remote_code", f"for {model}, which brings no code")
    for name in ("threads", "max_model_len"):
        value = getattr(load, name)
        if value is not None and value < 1:
            raise UsageError(f"{flag_name(name)} {value} is out of range: it must be at least 1")


def check_speculation(load: LoadFlags, speculation: SpeculationFlags, *, greedy: bool) -> None:
    method = speculation.method
    if load.drafter is None:
        if method in ("chain", "tree"):
            raise UsageError(f"--method {method} needs a --drafter")
        for name in ("length_policy", "num_speculative_tokens", "tree_budget", "draft_sample_method"):
            if getattr(speculation, name) is not None:
                raise _without_effect(name, "without a --drafter")
        return
    if method == "none":
        raise _without_effect("drafter", "with --method none")
    if speculation.tree_budget is not None and method != "tree":
        raise _without_effect("tree_budget", "without --method tree")
    if speculation.draft_sample_method is not None:
        if method == "tree":
            raise _without_effect("draft_sample_method", "with --method tree")
        if greedy:
            raise _without_effect("draft_sample_method", "at temperature 0 (greedy); set --temperature")
    for name in ("num_speculative_tokens", "tree_budget"):
        value = getattr(speculation, name)
        if value is not None and value < 1:
            raise UsageError(f"{flag_name(name)} {value} is out of range: it must be at least 1")


def parse_logit_bias(text: str) -> dict[int, float]:
    """``'{"42": -100}'`` as a map from token id to bias."""
    wanted = """a JSON object of token ids and numbers, such as '{"42": -100}'"""
    try:
        pairs = json.loads(text)
    except json.JSONDecodeError:
        raise UsageError(f"--logit-bias {text!r} is not JSON: it must be {wanted}") from None
    if not isinstance(pairs, dict) or not pairs:
        raise UsageError(f"--logit-bias {text!r} must be {wanted}")
    try:
        return {int(key): float(value) for key, value in pairs.items()}
    except (TypeError, ValueError):
        raise UsageError(f"--logit-bias {text!r} must be {wanted}") from None


def parse_ids(texts: list[str]) -> tuple[int, ...]:
    """Token ids, repeated or separated by commas."""
    parts = [part.strip() for text in texts for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"--stop-token-ids {','.join(texts)!r} must be token ids such as 2 or 2,7")
    return tuple(int(part) for part in parts)


def _without_effect(name: str, why: str) -> UsageError:
    return UsageError(f"{flag_name(name)} has no effect {why}")
