"""Hundreds of requests that no client should send: each has to be refused in the shape of OpenAI's errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from draftproof.bench.serving.client import CHAT

TEXT = "/v1/completions"
HELLO = [{"role": "user", "content": "hi"}]
GOOD = {CHAT: {"messages": HELLO, "max_tokens": 1}, TEXT: {"prompt": "hi", "max_tokens": 1}}
HALF = "\ud800"  # json.dumps writes it as an escape, as hostile clients do

NEVER: list[Any] = [[], {}, "x", [None], {"a": 1}, True, HALF, "1", [[[]]]]
NOT_A_NUMBER: list[Any] = ["0.5", [], {}, True, "NaN", [1], HALF]
NOT_A_WHOLE: list[Any] = [*NOT_A_NUMBER, 0.5, 1e308, -1e308, 10**30]
WRONG: dict[str, list[Any]] = {
    "model": [1, [], {}, True, "no such model", "../../etc/passwd", HALF, "x" * 100_000, ""],
    "stream": ["true", 1, [], {}, "yes"],
    "n": [*NOT_A_WHOLE, -1, 0, 129, 2**63],
    "temperature": [*NOT_A_NUMBER, -1, -0.001, 2.1, 1e308, 10**400],
    "top_p": [*NOT_A_NUMBER, 0, -1, 1.01, 1e308],
    "top_k": [*NOT_A_WHOLE, -2, 2**40],
    "min_p": [*NOT_A_NUMBER, -0.1, 1.1],
    "presence_penalty": [*NOT_A_NUMBER, -2.1, 3, 1e308],
    "frequency_penalty": [*NOT_A_NUMBER, -2.1, 3, 1e308],
    "repetition_penalty": [*NOT_A_NUMBER, 0, -1, 1e308, 1e-308],
    "seed": [*NOT_A_WHOLE, 2**63, -(2**63) - 1],
    "max_tokens": [*NOT_A_WHOLE, 0, -1, 2**31],
    "min_tokens": [*NOT_A_WHOLE, -1, 5],
    "stop": [1, {}, True, [1], [[]], "", [""], ["x"] * 17, "x" * 1001, HALF, [HALF], ["ok", None]],
    "stop_token_ids": [1, "x", [-1], [0.5], [2**31], [True], [999_999], list(range(200))],
    "logit_bias": [1, [], "x", {"x": 1}, {"-1": 1}, {"1": "x"}, {"1": 101}, {"1": 1e308}, {"1": None}, {"٣": 1},
                   {"999999": 1}, {str(i): 1 for i in range(1025)}, {HALF: 1}, {"1.5": 1}, {"": 1}, {" 1": 1}],
    "ignore_eos": ["x", 1, [], {}],
    "user": [1, [], {}, True, HALF],
    "cache_salt": [1, [], "", "x" * 257, HALF],
    "timeout_s": [*NOT_A_NUMBER, 0, -1, 1e308],
    "speculation": [1, "x", [], {}],
    "stream_options": [*NEVER, {"include_usage": 1}, {"include_usage": True, "x": 1}, {"include_usage": True}],
    "response_format": [
        *NEVER, {"type": "xml"}, {"type": "json_schema"}, {"type": "regex"}, {"type": "grammar"},
        {"type": "json_schema", "json_schema": {}}, {"type": "json_schema", "json_schema": {"schema": 1}},
        {"type": "json_schema", "json_schema": {"schema": {"type": "nope"}}},
        {"type": "json_schema", "json_schema": {"schema": {"enum": [HALF]}}},
        {"type": "json_schema", "json_schema": {"schema": {"$ref": "file:///etc/passwd"}}},
        {"type": "json_schema", "json_schema": {"schema": {"minLength": -1, "type": "string"}}},
        {"type": "regex", "pattern": "("}, {"type": "regex", "pattern": "[" * 500}, {"type": "regex", "pattern": HALF},
        {"type": "regex", "pattern": "(" * 300 + ")" * 300}, {"type": "regex", "pattern": "x" * 20_001},
        {"type": "grammar", "grammar": "%%%"}, {"type": "grammar", "grammar": "root ::= " + "(" * 5000},
        {"type": "text", "pattern": "x"}, {"type": "json_object", "grammar": "x"},
    ],
    "best_friend": [1, None, "x"],
    "store": [True, 1, "x"],
    "functions": [[{"name": "f"}]],
    "prediction": [{"type": "content", "content": "x"}],
    "chat_template": ["{{ 7*7 }}", "/etc/passwd", "default"],
}  # fmt: skip


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(depth):
        inner = {"properties": {"a": inner}}
    return inner


FUNCTION = {"type": "function", "function": {"name": "f"}}
WRONG_CHAT: dict[str, list[Any]] = {
    "messages": [
        None, 1, "x", {}, [], [1], [[]], [None], [{}], [{"role": "user"}], [{"content": "x"}],
        [{"role": "robot", "content": "x"}], [{"role": "user", "content": 1}], [{"role": "user", "content": None}],
        [{"role": "user", "content": HALF}], [{"role": "user", "content": [{"type": "image_url"}]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}],
        [{"role": "user", "content": [{"type": "text", "text": 1}]}], [{"role": "user", "content": "x", "x": 1}],
        [{"role": "user", "content": "x", "tool_calls": []}], [{"role": "user", "content": "x", "name": []}],
        [{"role": "assistant"}], [{"role": "assistant", "tool_calls": [{}]}],
        [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {}}}]}],
        [{"role": "system", "content": "x", "tool_call_id": "1"}], [{"role": "user", "content": "x"}] * 10_001,
    ],
    "logprobs": [1, "x", [], {}],
    "top_logprobs": [*NOT_A_WHOLE, -1, 21, 5],
    "max_completion_tokens": [*NOT_A_WHOLE, 0, -1, 5],
    "tools": [
        1, "x", {}, [1], [{}], [{"type": "function"}], [{"type": "retrieval"}], [FUNCTION] * 2, [FUNCTION] * 129,
        [{"type": "function", "function": {"name": "bad name"}}], [{"type": "function", "function": {"name": ""}}],
        [{"type": "function", "function": {"name": "f", "parameters": 1}}],
        [{"type": "function", "function": {"name": "f", "parameters": nested(100)}}],
        [{"type": "function", "function": {"name": "f", "parameters": {"x": HALF}}}],
        [{"type": "function", "function": {"name": "f", "parameters": {"type": "nope"}, "strict": True}}],
    ],
    "tool_choice": ["maybe", 1, [], {}, "required", "auto", {"type": "function", "function": {"name": "f"}}, HALF],
    "parallel_tool_calls": [1, "x", []],
    "chat_template_kwargs": [1, "x", [], {"tokenize": True}, {"chat_template": "{{ 1 }}"}, {"x": []}, {"x": HALF},
                             {"messages": 1}, {"x": {"y": 1}}, {"conversation": "x"}],
}  # fmt: skip
WRONG_TEXT: dict[str, list[Any]] = {
    "prompt": [None, 1, {}, [], [[]], [None], [-1], [0.5], [True], ["x", 1], [2**31], [70, "x"], [[70], ["x"]], HALF,
               [HALF], "", [999_999], ["x"] * 129, [[1], []]],
    "logprobs": [*NOT_A_WHOLE, -1, 21],
    "echo": [True, "x"],
    "suffix": ["x"],
    "best_of": [2, 0],
}  # fmt: skip

NOT_JSON = [
    b"", b"{", b"[1", b'{"messages": [', b"nul", b"\x00", b"\xff\xfe", b'{"messages": "\xff"}', b"{'a': 1}", b"[]",
    b"1", b'"x"', b"null", b"[" * 100_000, b'{"a":' * 50_000, b'{"temperature": 1e999, "prompt": "x", "messages": []}',
    b'{"temperature": NaN, "prompt": "x", "messages": []}', b'{"n": ' + b"9" * 10_000 + b"}", b"\xef\xbb\xbf{}",
]  # fmt: skip


def too_long(most: int) -> dict[str, dict[str, list[Any]]]:
    """By endpoint and parameter: what ``most`` tokens of prompt and answer have no room for."""
    signs = ["x " * (most + 1), "🙂 " * (most + 1)]
    messages = [[{"role": "user", "content": text}] for text in signs]
    return {CHAT: {"messages": messages, "max_tokens": [most]}, TEXT: {"prompt": [*signs, [70] * (most + 1)]}}


def hostile_requests(most: int) -> Iterator[tuple[str, str, Any]]:
    """(endpoint, what is wrong, body) against a server whose model has ``most`` positions. A body is JSON or bytes."""
    for path, more in ((CHAT, WRONG_CHAT), (TEXT, WRONG_TEXT)):
        for table in (WRONG, more, too_long(most)[path]):
            for name, values in table.items():
                for value in values:
                    yield path, name, GOOD[path] | {name: value}
        for raw in NOT_JSON:
            yield path, "not JSON", raw
    body: Any
    for path in ("/tokenize", "/detokenize"):
        for body in ({}, {"prompt": 1}, {"messages": []}, {"tokens": [-1]}, {"tokens": "x"}, {"tokens": [10**9]}, [],
                     {"prompt": HALF}, {"prompt": "x", "messages": HELLO}, {"tokens": [999_999]}):  # fmt: skip
            yield path, "tokens", body
        for raw in NOT_JSON:
            yield path, "not JSON", raw


def fault_of(status: int, told: Any) -> str:
    """What is wrong with the answer to such a request; "" if it is a refusal as OpenAI's clients expect it."""
    if not 400 <= status < 500:
        return f"status {status}"
    error = told.get("error") if isinstance(told, dict) else None
    if not isinstance(error, dict) or set(error) != {"message", "type", "param", "code"}:
        return "no error object"
    return "" if error["message"] and "\n" not in error["message"] else "no one-line message"
