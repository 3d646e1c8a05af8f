"""Requests that no client should send, and odd ones that are right: the server refuses or answers, and goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from draftproof.bench.serving.client import CHAT
from draftproof.bench.serving.hostile import HELLO, fault_of, hostile_requests

from .world import Served, served, tiny_engine


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(tiny_engine("chain")) as running:
        yield running


def test_there_are_enough_of_them() -> None:
    assert len(list(hostile_requests(1024))) >= 300


def test_each_is_refused_in_openais_shape(server: Served) -> None:
    wrong: list[Any] = []
    for path, name, body in hostile_requests(1024):
        status, _, told = server.post(path, body)
        if fault := fault_of(status, told):
            wrong.append((path, name, str(body)[:120], fault, str(told)[:200]))
    assert wrong == []
    assert server.chat()["choices"][0]["finish_reason"] == "length"
    assert server.service.engine.pool.free_blocks == server.service.engine.pool.num_blocks


def test_what_is_no_refusal_is_told() -> None:
    good = {"error": {"message": "m", "type": "t", "param": None, "code": None}}
    assert fault_of(400, good) == ""
    assert fault_of(200, good) == "status 200" and fault_of(500, good) == "status 500"
    assert fault_of(400, {"detail": "x"}) == fault_of(422, "text") == "no error object"
    assert fault_of(400, {"error": good["error"] | {"message": "a\nb"}}) == "no one-line message"


ODD_BUT_FINE: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": text}]}
    for text in (
        "",
        " ",
        "\x00",
        "\u202e\u0301\ufffe",
        "🙂" * 50,
        "\r\n" * 50,
        "{{ 7*7 }}{% for %}",
        "<end>",
        "a" * 900,
    )
] + [
    {"messages": HELLO, "stop": "x" * 1000},
    {"messages": HELLO, "stop": ["\u0301", "🙂", "\n", " "]},
    {"messages": HELLO, "temperature": 0.0001, "seed": -(2**63)},
    {"messages": HELLO, "logit_bias": {str(i): -100 for i in range(256)}},
    {"messages": HELLO, "logit_bias": {"0": 100}},
    {"messages": HELLO, "top_k": 1, "top_p": 1e-300, "min_p": 1},
    {"messages": [{"role": "tool", "content": "x"}, {"role": "assistant", "content": ""}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
]


@pytest.mark.parametrize("body", ODD_BUT_FINE, ids=range(len(ODD_BUT_FINE)))
def test_odd_requests_are_answered(server: Served, body: dict[str, Any]) -> None:
    status, _, told = server.post(CHAT, {"max_tokens": 5} | body)
    assert status == 200, told
    json.dumps(told, ensure_ascii=False).encode()


def test_a_message_is_data_to_the_template(server: Served) -> None:
    plain = server.post("/tokenize", {"messages": [{"role": "user", "content": "{{ 7*7 }}"}]})[2]
    text = server.post("/detokenize", {"tokens": plain["tokens"]})[2]["prompt"]
    assert "{{ 7*7 }}" in text and "49" not in text
