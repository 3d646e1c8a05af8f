"""Prompts by name and from files: every known shape, errors with their line, subsets that stay the same."""

from __future__ import annotations

import json

import pytest

from draftproof.bench.workloads import encode, load_workload, subset
from draftproof.errors import UsageError

USER = {"role": "user", "content": "Why?"}


def written(tmp_path, *rows):
    path = tmp_path / "asked.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_the_built_in_prompts():
    found = load_workload("demo")
    assert [p.name for p in found.prompts][:2] == ["math", "code"] and found.name == "demo"
    assert len(found.sha256) == 64


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Why?"},
        {"question": "Why?"},
        {"text": "Why?"},
        {"turns": ["Why?", "And then?"]},
        {"messages": [USER]},
    ],
    ids=lambda row: next(iter(row)),
)
def test_every_known_field(tmp_path, row):
    [prompt] = load_workload(written(tmp_path, row)).prompts
    assert prompt.messages == (USER,) and prompt.name == "line 1"


def test_names_blank_lines_and_line_separators_inside_texts(tmp_path):
    path = written(tmp_path, "", '{"task_id": "T/1", "prompt": "a\u2028b"}', "  ", {"question_id": 7, "turns": ["b"]})
    found = load_workload(path)
    assert [p.name for p in found.prompts] == ["T/1", "7"] and found.name == "asked"
    assert found.prompts[0].messages[0]["content"] == "a\u2028b"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{", "asked.jsonl:2: not JSON"),
        ("[1]", "asked.jsonl:2: every line must be a JSON object, this is a list"),
        (
            {"title": "x"},
            "asked.jsonl:2: none of the fields messages, turns, prompt, question, text is there",
        ),
        ({"prompt": " "}, 'asked.jsonl:2: "prompt" holds no text'),
        ({"prompt": 7}, 'asked.jsonl:2: "prompt" holds no text'),
        ({"turns": []}, 'asked.jsonl:2: "turns" must be a list'),
        ({"turns": [3]}, 'asked.jsonl:2: "turns" holds no text'),
        ({"messages": "hello"}, 'asked.jsonl:2: "messages" must be a list'),
        ({"messages": [{"role": "robot", "content": "x"}]}, 'asked.jsonl:2: every message needs a "role"'),
        ({"messages": [{"role": "user"}]}, "asked.jsonl:2: every message needs"),
        ({"messages": [USER, {"role": "assistant", "content": "x"}]}, "asked.jsonl:2: the last message"),
    ],
)
def test_a_bad_line_is_named(tmp_path, row, says):
    with pytest.raises(UsageError) as caught:
        load_workload(written(tmp_path, {"prompt": "fine"}, row))
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_files_that_hold_nothing(tmp_path):
    with pytest.raises(UsageError, match="no prompts in this file"):
        load_workload(written(tmp_path, "", " "))
    with pytest.raises(UsageError, match="only built-in workload is 'demo'"):
        load_workload("gsm9k")
    with pytest.raises(UsageError, match="directory"):
        load_workload(tmp_path)
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "\xfc"}')
    with pytest.raises(UsageError, match="not UTF-8"):
        load_workload(tmp_path / "latin.jsonl")


def test_subsets_are_seeded_nested_and_in_order(tmp_path):
    path = written(tmp_path, *({"prompt": f"{i}", "name": i} for i in range(40)))
    names = [p.name for p in load_workload(path, limit=5).prompts]
    assert names == [p.name for p in load_workload(path, limit=5, seed=0).prompts]
    assert names == sorted(names, key=int) and len(set(names)) == 5
    assert names != [p.name for p in load_workload(path, limit=5, seed=1).prompts]
    assert set(names) < {p.name for p in load_workload(path, limit=12).prompts}
    assert load_workload(path, limit=5).describe() | {"sha256": ""} == {
        "name": "asked", "prompts": 5, "of": 40, "seed": 0, "sha256": "",
    }  # fmt: skip


def test_the_subset_never_changes():
    """Pinned: published results name a seed, not a list of prompts."""
    prompts = load_workload("demo").prompts
    assert [p.name for p in subset(prompts, 3, 0)] == PINNED


def test_limits(tmp_path):
    path = written(tmp_path, {"prompt": "a"}, {"prompt": "b"})
    assert load_workload(path, limit=2, seed=3).seed is None
    with pytest.raises(UsageError, match="limit 0"):
        load_workload(path, limit=0)


class Templated:
    class tokenizer:
        chat_template = "x"

    def apply_chat_template(self, messages):
        return [len(m["content"]) for m in messages]

    def encode(self, prompt):
        return [ord(c) for c in prompt]


def test_prompts_go_through_the_chat_template_if_there_is_one(tmp_path):
    [single, talk] = load_workload(
        written(tmp_path, {"prompt": "abc"}, {"messages": [USER, {"role": "assistant", "content": "x"}, USER]})
    ).prompts
    engine = Templated()
    assert encode(engine, single) == [3] and encode(engine, talk) == [4, 1, 4]
    engine.tokenizer = None
    assert encode(engine, single) == [97, 98, 99]
    with pytest.raises(UsageError, match="no chat template"):
        encode(engine, talk)


PINNED = ["explain", "list", "rewrite"]
