"""Configs from disk: places of keys, and one clear line for everything that is no config."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.errors import DraftproofError
from draftproof.proof.files.json_file import printable, read_json


def test_lines_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{\n "a": 1,\n "b": {"c": [\n  {"d": 2}], \n  "e": "x,{"},\n "f\\"": null}')
    found = read_json(file)
    assert found.lines == {"a": 2, "b": 3, "b.c": 3, "b.e": 5, 'f"': 6}
    assert found.origins("drafter.config")["drafter.config.b.e"] == f"{file}, line 5"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"{", "line 1, column 2"),
        (b'{\n "a": oops}', "line 2, column 7"),
        (b"[1, 2]", "a list where an object"),
        (b'"text"', "a str where an object"),
        (b'{"a": NaN}', "line 1, column 7: NaN is no JSON number"),
        (b'{"NaN": 1,\n "b": [-Infinity]}', "line 2"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"a": "\xff"}', "line 1: not UTF-8"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "too large"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": ' + b"9" * 400 + b"}", "too large"),
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
        (b'{"a": "' + b"x" * (10 << 20) + b'"}', "more than"),
    ],
)
def test_no_config(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(DraftproofError) as error:
        read_json(file)
    assert said in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 600


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    for name in ("loop", "pipe", "absent", ".", "bad\0name", "x" * 300):
        with pytest.raises(DraftproofError) as error:
            read_json(tmp_path / name)
        assert "\n" not in str(error.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_no_permission(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}")
    file.chmod(0)
    with pytest.raises(DraftproofError, match="Permission"):
        read_json(file)


def test_names_stay_on_one_line() -> None:
    assert printable("a\nb\x1b[31m") == "a\\nb\\x1b[31m"


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=6), JSON, max_size=5), st.sampled_from([None, 1, "\t"]))
def test_any_object_is_read_back_with_lines(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any], indent: Any
) -> None:
    file = tmp_path_factory.mktemp("j") / "c.json"
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    file.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    try:
        found = read_json(file)
    except DraftproofError as error:  # a lone surrogate
        assert "UTF-8" in str(error)
        return
    assert found.data == data
    for key in data:
        assert f"{json.dumps(key, ensure_ascii=False)}:" in text.split("\n")[found.lines[key] - 1]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.mktemp("b") / "c.json"
    file.write_bytes(data)
    try:
        read_json(file)
    except DraftproofError as error:
        assert "\n" not in str(error)
