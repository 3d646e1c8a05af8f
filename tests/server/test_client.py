"""The official client against a running server, and the endpoints beside completions."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftproof import __version__

from .world import Served, served, tiny_engine

openai = pytest.importorskip("openai")
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(tiny_engine("chain"), api_key="sesame") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Served) -> Any:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="sesame", max_retries=0)


def test_models(client: Any) -> None:
    (model,) = client.models.list().data
    assert model.id == "tiny" and model.max_model_len == 1024
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError, match="'gpt-9' is not served here"):
        client.models.retrieve("gpt-9")


def test_chat_whole_and_streamed(client: Any) -> None:
    asked = {"model": "tiny", "messages": HELLO, "temperature": 0, "max_completion_tokens": 30}
    whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    assert whole.usage.completion_tokens == 30 == len(whole.choices[0].logprobs.content)
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    assert whole.usage.completion_tokens_details.accepted_prediction_tokens > 0
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].usage.completion_tokens == 30
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"


def test_completions(client: Any) -> None:
    made = client.completions.create(model="tiny", prompt=["a", "bc"], max_tokens=5, n=2, logprobs=1, seed=1)
    assert [c.index for c in made.choices] == [0, 1, 2, 3]
    assert all(len(c.logprobs.tokens) == 5 for c in made.choices)


def test_tools_and_their_results(client: Any) -> None:
    tools = [{"type": "function", "function": {"name": "add", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["a"],
        "additionalProperties": False}}}]  # fmt: skip
    asked = {"model": "tiny", "temperature": 0, "tools": tools, "tool_choice": "required",
             "parallel_tool_calls": False}  # fmt: skip
    message = client.chat.completions.create(messages=HELLO, **asked).choices[0].message
    (call,) = message.tool_calls
    assert call.function.name == "add" and 0 <= json.loads(call.function.arguments)["a"] <= 9
    result = {"role": "tool", "tool_call_id": call.id, "content": "12"}
    again = client.chat.completions.create(
        model="tiny", messages=[*HELLO, message.model_dump(), result], tools=tools, max_tokens=5
    )
    assert again.choices[0].finish_reason in ("length", "stop")


def test_parsed_json(client: Any) -> None:
    from pydantic import BaseModel, Field

    class Point(BaseModel):
        x: int = Field(ge=0, le=9)
        on: bool

    made = client.chat.completions.parse(model="tiny", messages=HELLO, response_format=Point, temperature=0)
    assert isinstance(made.choices[0].message.parsed, Point)


ADD = {"type": "function", "function": {
    "name": "add", "description": "Add two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}  # fmt: skip
CALLED = [
    {"content": "You are terse.", "role": "system"},
    {"content": [{"type": "text", "text": "1 + 2?"}], "role": "user", "name": "ann"},
    {"content": None, "role": "assistant",
     "tool_calls": [{"type": "function", "id": "call_1", "function": {"name": "add", "arguments": '{"a": 1}'}}]},
    {"content": "3", "role": "tool", "tool_call_id": "call_1"},
]  # fmt: skip
# What frameworks send beside the official client's own calls: every field, many of them with their default.
FRAMEWORKS: list[dict[str, Any]] = [
    {"messages": CALLED, "model": "tiny", "temperature": 0.0, "n": 1, "stream": False, "tools": [ADD],
     "tool_choice": "auto", "parallel_tool_calls": False},
    {"messages": CALLED, "model": "tiny", "temperature": 0.7, "top_p": 1.0, "frequency_penalty": 0.0,
     "presence_penalty": 0.0, "logit_bias": {}, "logprobs": False, "top_logprobs": None, "stop": None, "seed": None,
     "user": "ann", "response_format": {"type": "text"}, "tools": None, "tool_choice": None, "service_tier": "auto"},
    {"messages": HELLO, "model": "tiny", "response_format": {"type": "json_schema", "json_schema": {
        "name": "Point", "description": "A point.", "strict": True, "schema": {
            "title": "Point", "type": "object", "properties": {"on": {"title": "On", "type": "boolean"}},
            "required": ["on"], "additionalProperties": False}}}},
]  # fmt: skip


@pytest.mark.parametrize("body", FRAMEWORKS, ids=["tools", "defaults", "schema"])
@pytest.mark.parametrize("stream", [False, True])
def test_frameworks_bodies_are_taken(server: Served, body: dict[str, Any], stream: bool) -> None:
    key = {"Authorization": "Bearer sesame"}
    sent = body | {"max_completion_tokens": 60}
    if stream:
        sent |= {"stream": True, "stream_options": {"include_usage": True}}
    status, _, told = server.post("/v1/chat/completions", sent, **key)
    assert status == 200, told
    if not stream:
        assert told["choices"][0]["finish_reason"] in ("stop", "length", "tool_calls")
        assert "response_format" not in body or body["response_format"]["type"] == "text" or set(
            json.loads(told["choices"][0]["message"]["content"])) == {"on"}  # fmt: skip


def test_errors_are_the_clients_own_types(client: Any, server: Served) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=HELLO, extra_body={"best_friend": 1})
    assert caught.value.param == "best_friend" and "not supported" in str(caught.value)
    with pytest.raises(openai.BadRequestError, match="prompt and answer together may have 1024"):
        client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=5000)
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "x" * 2000}])
    assert caught.value.code == "context_length_exceeded"
    wrong = openai.OpenAI(base_url=f"{server.url}/v1", api_key="sesam", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        wrong.models.list()


def test_what_means_nothing_may_be_sent_with_its_default_only(server: Served) -> None:
    key = {"Authorization": "Bearer sesame"}
    fine = {"messages": HELLO, "max_tokens": 2, "functions": None, "store": False, "service_tier": "auto"}
    assert server.post("/v1/chat/completions", fine, **key)[0] == 200
    for name, value in (("store", True), ("echo", True), ("suffix", "x"), ("prediction", {"type": "content"})):
        status, _, told = server.post("/v1/chat/completions", fine | {name: value}, **key)
        assert status == 400 and told["error"]["param"] == name


def test_tokens_there_and_back(server: Served) -> None:
    key = {"Authorization": "Bearer sesame"}
    _, _, told = server.post("/tokenize", {"prompt": "héllo"}, **key)
    assert told["count"] == 6 and told["max_model_len"] == 1024
    assert server.post("/detokenize", {"tokens": told["tokens"]}, **key)[2] == {"prompt": "héllo"}
    _, _, chat = server.post("/tokenize", {"messages": HELLO}, **key)
    whole = server.post("/v1/chat/completions", {"messages": HELLO, "max_tokens": 1}, **key)[2]
    assert chat["count"] == whole["usage"]["prompt_tokens"]


def test_state_without_a_key(server: Served) -> None:
    assert server.get("/health")[::2] == (200, {"status": "ok"})
    assert server.get("/ready")[::2] == (200, {"status": "ready"})
    assert server.get("/version")[2] == {"version": __version__}
    for path in ("/v1/models", "/live", "/openapi.json"):
        assert server.get(path)[0] == 401


def test_metrics_count_what_happened(server: Served) -> None:
    key = {"Authorization": "Bearer sesame"}
    before = numbers(server)
    body = {"messages": HELLO, "temperature": 0, "max_tokens": 40, "cache_salt": "metrics", "speculation": True}
    told = server.post("/v1/chat/completions", body, **key)[2]
    gained = {name: value - before.get(name, 0) for name, value in numbers(server).items()}
    spec = told["speculation"]
    label = '{model_name="tiny"}'
    assert gained[f"draftproof:spec_decode_num_drafts_total{label}"] == spec["rounds_with_drafts"]
    assert gained[f"draftproof:spec_decode_num_draft_tokens_total{label}"] == spec["draft_tokens"]
    assert gained[f"draftproof:spec_decode_num_accepted_tokens_total{label}"] == spec["accepted_tokens"]
    name = 'draftproof:spec_decode_num_accepted_tokens_per_pos_total{model_name="tiny",position="%d"}'
    assert [gained[name % k] for k in range(5)] == spec["accepted_at_least"]
    assert gained[f"draftproof:generation_tokens_total{label}"] == 40
    assert gained[f"draftproof:prompt_tokens_total{label}"] == told["usage"]["prompt_tokens"]
    assert gained['draftproof:request_success_total{finished_reason="length",model_name="tiny"}'] == 1
    for wanted in ("time_to_first_token_seconds_count", "num_requests_running", "kv_cache_usage_perc",
                   "prefix_cache_queries_total", "policy_draft_length_count"):  # fmt: skip
        assert f"draftproof:{wanted}{label}" in gained
    assert gained['draftproof:step_seconds_count{model_name="tiny",part="verify"}'] > 0
    live = server.get("/live", **key)[2]
    assert (
        live["tau"] > 1
        and live["policy"]["reason"] == "fixed length"
        and live["drafted_per_round"] > 3
        and live["engine"]["drafter"] == "echo"
    )


def numbers(server: Served) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in server.get("/metrics")[2].splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_readmes_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    with served(tiny_engine("chain", max_model_len=160)) as server:
        [code] = [e for e in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "openai" in e]
        exec(code.replace("http://127.0.0.1:8000", server.url), {})
        assert "accepted_prediction_tokens=" in capsys.readouterr().out
        curls = re.findall(r"^curl .*?}'$", README, re.DOTALL | re.MULTILINE)
        assert len(curls) == 2
        for line in curls:
            words = shlex.split(line)
            path = words[1].removeprefix("http://127.0.0.1:8000")
            status, _, told = server.post(path, words[words.index("-d") + 1].encode())
            assert status == 200, told
