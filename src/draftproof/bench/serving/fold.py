"""What a response says, whole or put together from its chunks, without what differs from run to run."""

from __future__ import annotations

from typing import Any


def said(response: dict[str, Any]) -> dict[str, Any]:
    """A whole response, reduced to what must be the same with and without a drafter."""
    choices = [_choice(c, c.get("message") or {"content": c.get("text")}) for c in response["choices"]]
    return {"choices": choices, "usage": _usage(response["usage"])}


def folded(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """A stream's chunks as one such response."""
    assert not [c for c in chunks if "error" in c], chunks
    *parts, last = chunks
    assert last["choices"] == [] and all(c["usage"] is None for c in parts)
    whole: dict[int, dict[str, Any]] = {}
    for chunk in parts:
        for choice in chunk["choices"]:
            assert choice["index"] not in {i for i, c in whole.items() if c["finish_reason"]}, "text after the end"
            _add(whole.setdefault(choice["index"], _empty()), choice)
    assert len({c["id"] for c in chunks}) == 1
    return {"choices": [whole[i] for i in sorted(whole)], "usage": _usage(last["usage"])}


def _empty() -> dict[str, Any]:
    return {"content": "", "reasoning": "", "calls": [], "finish_reason": None, "logprobs": []}


def _choice(choice: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    return {
        "content": message.get("content") or "",
        "reasoning": message.get("reasoning_content", ""),
        "calls": [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", ())],
        "finish_reason": choice["finish_reason"],
        "logprobs": _logprobs(choice["logprobs"]),
    }


def _add(whole: dict[str, Any], choice: dict[str, Any]) -> None:
    part = _choice(choice, choice.get("delta") or {"content": choice.get("text")})
    for name in ("content", "reasoning", "calls", "logprobs"):
        whole[name] += part[name]
    whole["finish_reason"] = part["finish_reason"]


def _logprobs(told: dict[str, Any] | None) -> list[Any]:
    if told is None:
        return []
    if "content" in told:
        return [
            (e["bytes"], round(e["logprob"], 4), [(t["bytes"], round(t["logprob"], 4)) for t in e["top_logprobs"]])
            for e in told["content"]
        ]
    return [
        (token, round(value, 4), offset)
        for token, value, offset in zip(told["tokens"], told["token_logprobs"], told["text_offset"], strict=True)
    ]


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    """Token counts; how many of them were drafted is what may differ."""
    details = {k: v for k, v in usage["completion_tokens_details"].items() if not k.endswith("prediction_tokens")}
    return usage | {"completion_tokens_details": details}
