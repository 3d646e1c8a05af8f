"""Everything that is sent, with and without a drafter, whole and streamed: the same but for the counts of drafts."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from draftproof.bench.serving.client import CHAT, Body
from draftproof.bench.serving.fold import folded, said
from draftproof.bench.serving.plan import DRAFTER, PLAIN, Bench
from draftproof.bench.serving.structured import schema_format

_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "maxLength": 20}, "times": {"type": "integer", "maximum": 9}},
            "required": ["word", "times"],
            "additionalProperties": False,
        },
    },
}
_FLAG = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
# What a request may ask for beside its question; drafts could show in each of these.
VARIANTS: dict[str, Body] = {
    "text": {},
    "log-probabilities": {"logprobs": True, "top_logprobs": 3},
    "stop string": {"stop": [" the", ".\n", "zzz"]},
    "two answers": {"n": 2, "seed": 1},
    "penalties": {"presence_penalty": 1.0, "frequency_penalty": 0.5, "repetition_penalty": 1.1},
    "JSON": {"response_format": {"type": "json_object"}},
    "JSON schema": {"response_format": schema_format(_FLAG | {"additionalProperties": False})},
    "regular expression": {"response_format": {"type": "regex", "pattern": "[A-Z][a-zé ]{5,40}[.!]"}},
    "forced tool": {"tools": [_TOOL], "tool_choice": "required", "parallel_tool_calls": False},
    "tools": {"tools": [_TOOL]},
    "one token": {"max_tokens": 1},
}


def equality(bench: Bench) -> dict[str, Any]:
    """In float32, drafts of full length. By variant: questions asked, and answers that differ from the target's own
    whole answer (three others each: streamed, with the drafter whole and streamed)."""
    arguments = ("--dtype", "float32")
    urls = [bench.server(PLAIN, *arguments).url, bench.server(DRAFTER, *arguments, "--length-policy", "fixed").url]
    bodies = bench.plan.bodies(min(len(bench.plan.questions), 4), tokens=48)
    table: dict[str, Any] = {}
    for name, more in VARIANTS.items():
        four = [[_answer(url, body | more, stream) for url in urls for stream in (False, True)] for body in bodies]
        differ = sum(answer != each[0] for each in four for answer in each[1:])
        table[name] = {"questions": len(four), "compared": 3 * len(four), "differ": differ}
    bench.progress(f"{sum(row['differ'] for row in table.values())} answers differ with the drafter or in a stream")
    return {"dtype": "float32", "variants": table}


def _answer(url: str, body: Body, stream: bool) -> dict[str, Any]:
    """Each with a prefix cache of its own, so that ``cached_tokens`` is the same too."""
    salt = {"cache_salt": f"{'streamed' if stream else 'whole'} {hash(json.dumps(body))}"}
    if stream:
        salt |= {"stream": True, "stream_options": {"include_usage": True}}  # type: ignore[dict-item]
    response = httpx2.post(f"{url}{CHAT}", json=body | salt, timeout=300)
    response.raise_for_status()
    if not stream:
        return said(response.json())
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    return folded([json.loads(line) for line in lines if line != "[DONE]"])
