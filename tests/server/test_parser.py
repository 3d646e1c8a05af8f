"""The parser's pieces do not depend on how the text was cut, and nothing of the text is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.server.parser import OutputParser, Pieces

TOOLS = ("add", "look_up")
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def parse(text: str, cuts: list[int], **options: object) -> Pieces:
    parser, whole = OutputParser(**options), Pieces()
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        add(whole, parser.push(text[begin:end]))
    add(whole, parser.finish())
    return whole


def add(whole: Pieces, part: Pieces) -> None:
    whole.content += part.content
    whole.reasoning += part.reasoning
    whole.calls += part.calls


def told(text: str, **options: object) -> tuple[str, str, list[tuple[str, str]]]:
    pieces = parse(text, [], **options)
    return pieces.content, pieces.reasoning, [(c.name, c.arguments) for c in pieces.calls]


ADD = ("add", '{"a": 1}')
CASES = [
    ("plain text \n", {}, ("plain text \n", "", [])),
    ("plain text \n", {"tools": TOOLS}, ("plain text \n", "", [])),
    (CALL, {"tools": TOOLS}, ("", "", [ADD])),
    (f"Well: \n{CALL}\n", {"tools": TOOLS}, ("Well:", "", [ADD])),
    (f"{CALL}\n{CALL}", {"tools": TOOLS}, ("", "", [ADD, ADD])),
    (f"a{CALL} b{CALL} c ", {"tools": TOOLS}, ("abc", "", [ADD, ADD])),
    (CALL, {}, (CALL, "", [])),
    (CALL.replace("add", "rm"), {"tools": TOOLS}, (CALL.replace("add", "rm"), "", [])),
    (CALL.removesuffix("</tool_call>"), {"tools": TOOLS}, ("", "", [ADD])),
    ("<tool_call>{not json}</tool_call> x", {"tools": TOOLS}, ("<tool_call>{not json}</tool_call> x", "", [])),
    ("a <tool_ca", {"tools": TOOLS}, ("a <tool_ca", "", [])),
    ('<tool_call>{"name": "add", "arguments": {"a"', {"tools": TOOLS},
     ('<tool_call>{"name": "add", "arguments": {"a"', "", [])),
    ('<tool_call>{"name":"add","parameters":{}}</tool_call>', {"tools": TOOLS}, ("", "", [("add", "{}")])),
    ("<think>\nwell\n</think>\n\nyes", {"thinks": True}, ("yes", "well", [])),
    ("well</think>yes", {"thinks": True, "thinking": True}, ("yes", "well", [])),
    ("still thinking \n", {"thinks": True, "thinking": True}, ("", "still thinking", [])),
    ("no <think> here", {"thinks": True}, ("no <think> here", "", [])),
    ("<thi", {"thinks": True}, ("<thi", "", [])),
    (" \n", {"thinks": True}, (" \n", "", [])),
    (f"<think>{CALL}</think>{CALL}", {"thinks": True, "tools": TOOLS}, ("", CALL, [ADD])),
]  # fmt: skip


@pytest.mark.parametrize(("text", "options", "expected"), CASES)
def test_sections(text: str, options: dict[str, object], expected: object) -> None:
    assert told(text, **options) == expected


FRAGMENTS = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", CALL, '{"name": "add"', "}", "<", "</", "é", " ", "\n",
    "tool_call>", "think", "x",
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    parts=st.lists(st.sampled_from(FRAGMENTS), max_size=9),
    cuts=st.lists(st.integers(0, 200), max_size=12),
    thinks=st.booleans(),
    thinking=st.booleans(),
    tools=st.sampled_from([(), TOOLS]),
)
def test_grouping_does_not_matter(
    parts: list[str], cuts: list[int], thinks: bool, thinking: bool, tools: tuple[str, ...]
) -> None:
    text = "".join(parts)
    options = {"thinks": thinks, "thinking": thinking, "tools": tools}
    once = parse(text, [], **options)
    assert parse(text, sorted(min(c, len(text)) for c in cuts), **options) == once
    assert parse(text, list(range(1, len(text))), **options) == once
    if not thinks and not thinking and not tools:
        assert once.content == text
