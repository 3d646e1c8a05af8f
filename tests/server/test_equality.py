"""Everything the server sends is the same with and without a drafter, streamed or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from draftproof.bench.serving.fold import folded, said

from .world import Served, served, tiny_engine

TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {
            "type": "object",
            "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 99}},
            "required": ["id"],
            "additionalProperties": False,
        },
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"sign": {"enum": ["plus", "minus"]}, "many": {"type": "array", "items": {"type": "boolean"}}},
    "required": ["sign", "many"],
    "additionalProperties": False,
}


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


CHATS: dict[str, dict[str, Any]] = {
    "plain": {"messages": user("hello")},
    "logprobs": {"messages": user("héllo 世界 🙂"), "logprobs": True, "top_logprobs": 3},
    "stop strings": {"messages": user("hello"), "stop": ["\x117L", "zzz"]},
    "a long stop string that begins but never ends": {"messages": user("hello"), "stop": "y" + "<" * 900},
    "stop ids": {"messages": user("more"), "stop_token_ids": [70, 80, 90]},
    "two answers": {"messages": user("twice"), "n": 2},
    "penalties": {"messages": user("again and again"), "presence_penalty": 1.0, "frequency_penalty": 0.7},
    "bias": {"messages": user("bias"), "logit_bias": {"66": 5, "67": -100}},
    "repetition": {"messages": user("rep"), "repetition_penalty": 1.3, "max_completion_tokens": 30},
    "ends at once": {"messages": user("x"), "max_tokens": 1},
    "json": {"messages": user("json"), "response_format": {"type": "json_object"}, "max_tokens": 60},
    "schema": {
        "messages": user("schema"),
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
        "max_tokens": 200,
        "logprobs": True,
    },
    "regex": {"messages": user("re"), "response_format": {"type": "regex", "pattern": "[a-f]{3}(é|世)[0-9]{4}"}},
    "grammar": {
        "messages": user("grammar"),
        "response_format": {"type": "grammar", "grammar": 'root ::= ("yes" | "no") " " root | "."'},
    },
    "named tool": {
        "messages": user("tool"),
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "look_up"}},
        "max_tokens": 200,
    },
    "any tool": {"messages": user("tools"), "tools": [TOOL], "tool_choice": "required", "max_tokens": 200,
                 "parallel_tool_calls": False},
    "strict tool": {
        "messages": user("strict"),
        "tools": [{"type": "function", "function": TOOL["function"] | {"strict": True}}],
    },
    "tools not called": {"messages": user("no tools"), "tools": [TOOL]},
    "sampled with a seed": {"messages": user("seed"), "temperature": 1.0, "seed": 11, "top_p": 0.9, "min_p": 0.01},
    "sampled json with a seed": {"messages": user("seed"), "temperature": 1.0, "seed": 5, "max_tokens": 80,
                                 "response_format": {"type": "json_object"}},
}  # fmt: skip
TEXTS: dict[str, dict[str, Any]] = {
    "text": {"prompt": "once upon"},
    "ids": {"prompt": [70, 71, 72]},
    "many": {"prompt": ["a", "bb", "ccc"], "n": 2, "logprobs": 2, "max_tokens": 12},
    "schema": {"prompt": "x", "response_format": {"type": "json_object"}, "max_tokens": 50},
}
DRAFTED = ("chain", "tree")


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Served]]:
    with (
        served(tiny_engine(None)) as none,
        served(tiny_engine("chain")) as chain,
        served(tiny_engine("tree")) as tree,
    ):
        yield {"none": none, "chain": chain, "tree": tree}


def both(server: Served, path: str, body: dict[str, Any], name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Whole and streamed, each with a prefix cache of its own."""
    body = {"temperature": 0, "max_tokens": 40} | body
    if "max_completion_tokens" in body:
        del body["max_tokens"]
    status, _, whole = server.post(path, body | {"cache_salt": f"{name} whole"})
    assert status == 200, whole
    streamed = {"stream_options": {"include_usage": True}, "cache_salt": f"{name} streamed"}
    return said(whole), folded(server.stream(path, body | streamed))


@pytest.mark.parametrize("name", CHATS)
def test_chat_is_the_same(servers: dict[str, Served], name: str) -> None:
    truth, streamed = both(servers["none"], "/v1/chat/completions", CHATS[name], name)
    assert streamed == truth
    for way in DRAFTED:
        assert both(servers[way], "/v1/chat/completions", CHATS[name], name) == (truth, truth), way


@pytest.mark.parametrize("name", TEXTS)
def test_text_is_the_same(servers: dict[str, Served], name: str) -> None:
    truth, streamed = both(servers["none"], "/v1/completions", TEXTS[name], f"text {name}")
    assert streamed == truth
    for way in DRAFTED:
        assert both(servers[way], "/v1/completions", TEXTS[name], f"text {name}") == (truth, truth), way


def test_the_drafters_were_at_work(servers: dict[str, Served]) -> None:
    for way in DRAFTED:
        usage = servers[way].chat(messages=user("work"), max_tokens=60)["usage"]["completion_tokens_details"]
        assert usage["accepted_prediction_tokens"] > 10 and usage["rejected_prediction_tokens"] > 5


def test_what_was_asked_for_is_what_came(servers: dict[str, Served]) -> None:
    """The cases above are not equal because they are all empty."""
    for server in servers.values():
        answer = server.chat(**CHATS["schema"])["choices"][0]
        told = json.loads(answer["message"]["content"])
        assert answer["finish_reason"] == "stop" and told["sign"] in ("plus", "minus") and set(told) == {"sign", "many"}
        call = server.chat(**CHATS["named tool"])["choices"][0]
        assert call["finish_reason"] == "tool_calls" and call["message"]["content"] is None
        assert 0 <= json.loads(call["message"]["tool_calls"][0]["function"]["arguments"])["id"] <= 99
        stopped = server.chat(**CHATS["stop strings"])["choices"][0]
        assert stopped["finish_reason"] == "stop" and "\x117L" not in stopped["message"]["content"]
        assert len(server.chat(**CHATS["two answers"])["choices"]) == 2
        assert server.chat(**CHATS["bias"])["choices"][0]["message"]["content"].count("b") > 30


def test_rounds_are_told_and_their_pieces_add_up(servers: dict[str, Served]) -> None:
    body = {"messages": user("rounds"), "temperature": 0, "max_tokens": 50, "speculation": True}
    chunks = servers["chain"].stream("/v1/chat/completions", body)
    rounds = [r for c in chunks for r in c.get("speculation", {}).get("rounds", ())]
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
    assert "".join(piece for r in rounds for piece, _ in r["pieces"]) == text
    assert max(r["accepted"] for r in rounds) > 1 and max(r["drafted"] for r in rounds) == 5
    assert any(drafted for r in rounds for _, drafted in r["pieces"])
    whole = servers["chain"].chat(**body)["speculation"]
    assert whole["accepted_tokens"] == sum(whole["accepted_at_least"]) > 0


@pytest.mark.parametrize("way", ["none", "chain", "tree"])
def test_a_second_turn_computes_only_what_is_new(servers: dict[str, Served], way: str) -> None:
    first = user("a long question " * 20)
    answer = servers[way].chat(messages=first, cache_salt="turns")["choices"][0]["message"]["content"]
    told = [{"role": "assistant", "content": answer}, *user("go on")]
    usage = servers[way].chat(messages=[*first, *told], cache_salt="turns")["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > 320
    assert usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] < 150
