"""What a request must be like to be run at all; each refusal names the thing, the value and the limit."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from draftproof.engine.types import SamplingParams
from draftproof.errors import UsageError


def check_request(
    ids: Sequence[int],
    params: SamplingParams,
    vocab_size: int,
    max_model_len: int,
    *,
    limited_by: str,
    has_tokenizer: bool,
) -> None:
    """Raise :class:`UsageError` for prompts and parameters that no target of this vocabulary and length can run.
    ``limited_by``: what ``max_model_len`` comes from, and the remedy."""
    if not ids:
        raise UsageError("the prompt is empty: it must have at least one token")
    if len(ids) >= max_model_len:
        raise UsageError(
            f"the prompt has {len(ids)} tokens, but prompt and answer together may have {max_model_len}: {limited_by}"
        )
    for name, values in (
        ("prompt", ids),
        ("logit_bias", params.logit_bias or ()),
        ("stop_token_ids", params.stop_token_ids),
    ):
        wrong = next((i for i in values if not 0 <= i < vocab_size), None)
        if wrong is not None:
            raise UsageError(f"{name}: token id {wrong} is outside the target's vocabulary of {vocab_size}")
    if params.stop and not has_tokenizer:
        raise UsageError("stop strings need a tokenizer, which this target has not; use stop_token_ids")


def check_constrained(params: SamplingParams, stop_ids: Collection[int]) -> None:
    """Raise :class:`UsageError` for parameters that could leave a constrained answer without an allowed token."""
    if params.min_tokens:
        raise UsageError(f"min_tokens={params.min_tokens} cannot be kept: the constraint decides when the answer ends")
    if params.ignore_eos or not stop_ids:
        raise UsageError("a constrained answer ends with an end-of-sequence token: it cannot be ignored")
    banned = next((t for t, bias in (params.logit_bias or {}).items() if bias == float("-inf")), None)
    if banned is not None:
        raise UsageError(f"logit_bias bans token {banned}, which the constraint may need: give a finite number")
