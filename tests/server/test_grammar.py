"""Grammars as masks: exact roll-back, valid output for generated schemas, and sentences for what cannot be."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import pytest
import torch

from draftproof import Engine, SamplingParams
from draftproof.bench.serving.schemas import random_schema
from draftproof.errors import DraftproofError
from draftproof.server.errors import ApiError
from draftproof.server.grammar import Grammars, grammar_of, json_grammar
from draftproof.server.schema_common import ResponseFormat

from .world import END, tiny_engine

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


@cache
def engine(way: str | None = "chain") -> Engine:
    return tiny_engine(way)


@cache
def grammars() -> Grammars:
    return Grammars(engine())


def constraint_for(schema: dict[str, Any]) -> Any:
    return grammars().maker(json_grammar(schema), "response_format")()


def ids(text: str) -> list[int]:
    return list(engine().tokenizer(text)["input_ids"])


REGEX = ResponseFormat.model_validate({"type": "regex", "pattern": "(ab?)+|é{2,5}"})


@pytest.mark.parametrize(
    ("grammar", "text", "at_the_end"), [(json_grammar(SCHEMA), '{"a": 12}', 1), (grammar_of(REGEX), "abaabab", 2)]
)
def test_asking_leaves_no_trace(grammar: str, text: str, at_the_end: int) -> None:
    """Masks after every prefix, asked for in any order and mixed with paths that are given up again."""
    answer, make = ids(text), grammars().maker(grammar, "response_format")
    straight, state = [], make()
    for token in answer:
        straight.append(state.allowed([]))
        state.advance(token)
    straight.append(state.allowed([]))
    assert straight[-1][END] and int(straight[-1].sum()) == at_the_end
    state, chance = make(), random.Random(0)
    for done in range(len(answer) + 1):
        for _ in range(6):
            ahead = chance.randint(done, len(answer))
            assert torch.equal(state.allowed(answer[done:ahead]), straight[ahead])
            detour = [*answer[done:ahead], *ids(chance.choice("7ab"))]
            if ahead < len(answer) and state.accepts(detour[:-1], detour[-1]):
                state.allowed(detour)
            for token in (END, *ids("}{9ab")):
                assert state.accepts(answer[done:ahead], token) == bool(straight[ahead][token])
        if done < len(answer):
            state.advance(answer[done])


def test_a_token_out_of_place_is_an_error() -> None:
    with pytest.raises(DraftproofError, match="does not fit"):
        constraint_for(SCHEMA).advance(ids("x")[0])


@pytest.mark.parametrize("way", ["chain", "tree"])
def test_generated_schemas_give_valid_json(way: str) -> None:
    """100 schemas each way, greedy and sampled in turn, under drafts."""
    import jsonschema_rs

    running = engine(way)
    schemas = [random_schema(random.Random(seed)) for seed in range(100)]
    names = {}
    for seed, schema in enumerate(schemas):
        params = SamplingParams(max_tokens=900, temperature=float(seed % 2), seed=seed)
        maker = grammars().maker(json_grammar(schema), "response_format")
        names[running.add_request(ids(f"<user>{seed}"), params, constraint=maker)] = schema
    texts, reasons, accepted = dict.fromkeys(names, ""), {}, 0
    while running.has_work:
        for event in running.step():
            texts[event.request_id] += getattr(event, "text", "")
            accepted += getattr(event, "accepted", 0)
            reasons |= {event.request_id: event.reason} if hasattr(event, "reason") and hasattr(event, "detail") else {}
    assert {name: reason for name, reason in reasons.items() if reason != "stop"} == {}
    for name, schema in names.items():
        assert jsonschema_rs.is_valid(schema, json.loads(texts[name])), (schema, texts[name])
    assert accepted > 300


def format_of(**fields: Any) -> ResponseFormat:
    return ResponseFormat.model_validate(fields)


IMPOSSIBLE = [
    format_of(type="regex", pattern="(((" + "a"),
    format_of(type="regex", pattern="(" * 5000 + ")" * 5000),
    format_of(type="regex", pattern="(?=a)b"),
    format_of(type="regex", pattern=r"[^\s\S]"),
    format_of(type="grammar", grammar="start: nothing_there"),
    format_of(type="grammar", grammar=""),
    format_of(type="grammar", grammar='%import "/etc/passwd"\nstart: "a"'),
    format_of(type="json_schema", json_schema={"schema": {"type": "objct"}}),
    format_of(type="json_schema", json_schema={"schema": {"enum": []}}),
    format_of(type="json_schema", json_schema={"schema": {"$ref": "file:///etc/passwd"}}),
    format_of(type="json_schema", json_schema={"schema": {"$ref": "http://127.0.0.1:1/x"}}),
    format_of(type="json_schema", json_schema={"schema": {"type": "integer", "minimum": 10**400}}),
    format_of(
        type="json_schema",
        json_schema={"schema": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}},
    ),
]


@pytest.mark.parametrize("format", IMPOSSIBLE, ids=range(len(IMPOSSIBLE)))
def test_what_cannot_be_followed_is_refused_in_one_line(format: ResponseFormat) -> None:
    with pytest.raises(ApiError) as caught:
        grammars().maker(grammar_of(format) or "", "response_format")
    assert caught.value.status == 400 and "\n" not in caught.value.message and len(caught.value.message) < 400


def test_no_room_for_endless_blanks() -> None:
    state = constraint_for(SCHEMA)
    for token in ids("{\n"):
        state.advance(token)
    assert not state.accepts([], ids("\n")[0])
    assert not state.accepts(ids(" " * 32), ids(" ")[0])
