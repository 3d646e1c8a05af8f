"""docs/case.md names every key: those of the code that reads and writes cases, and those of the collected cases."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from draftproof.proof.case import FOR_PEOPLE, Drafter, Engine, Observation, Target, parse_case
from draftproof.proof.launch import llama_cpp, sglang, vllm

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "case.md").read_text(encoding="utf-8")
CASES = ROOT.parent / "shared" / "data" / "cases.jsonl"
SUFFIXES = re.compile(r"_(range|above|below|min|not|reported)$")
READ = re.compile(r"\b(options|metrics|conditions|workload)(?:\.get\(|\[|, )\"([a-z_0-9]+)\"")


def section(name: str) -> str:
    found = re.search(rf"^## `{re.escape(name)}`$(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found, name
    return found[1]


def named(key: str, text: str = PAGE) -> bool:
    return f"`{key}`" in text or f"`{SUFFIXES.sub('', key)}`" in text


def test_the_example_is_a_case() -> None:
    example = re.search(r"```json\n(.*?)```", PAGE, re.S)
    assert example
    case = parse_case(json.loads(example[1]))
    assert case.engine.version == "0.20.1" and case.where("engine.version") == "serve.log, line 3"


def test_every_field_is_named() -> None:
    for kind, prefix in ((Engine, "engine"), (Drafter, "drafter"), (Target, "target"), (Observation, "observations[]")):
        for field in fields(kind):
            assert named(f"{prefix}.{field.name}"), f"{prefix}.{field.name}"
    assert all(named(name) for name in FOR_PEOPLE)


def test_every_key_that_code_reads_or_writes_is_named() -> None:
    for file in (ROOT / "src" / "draftproof" / "proof").rglob("*.py"):
        for place, key in READ.findall(file.read_text(encoding="utf-8")):
            assert named(key), f"{file.name}: {place}.{key}"
    numbers = [*vllm._NUMBERS.values(), *sglang._NUMBERS.values(), *llama_cpp._NUMBERS.values()]
    texts = [*vllm._TEXTS.values(), *sglang._TEXTS.values(), *llama_cpp._TEXTS.values()]
    switches = [key for key, _ in vllm._SWITCHES.values()]
    for key in (*numbers, *texts, *switches):
        assert named(key, section("engine.options")), key


@pytest.mark.skipif(not CASES.exists(), reason="needs the collected cases")
def test_every_key_of_the_collected_cases_is_named() -> None:
    for line in CASES.read_text(encoding="utf-8").splitlines():
        entry: dict[str, Any] = json.loads(line)
        for key in entry["engine"].get("options") or {}:
            assert named(key, section("engine.options")), key
        for key in entry.get("workload") or {}:
            assert named(key, section("workload")), key
        for seen in entry["observations"]:
            for key in seen.get("metrics") or {}:
                assert named(key, section("metrics")), key
            for key in seen.get("conditions") or {}:
                assert named(key), key
