"""Launch lines are read as their engines read them, and set right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.errors import UsageError
from draftproof.proof.launch import parse

JSON = '{"method": "dflash", "model": "z-lab/Qwen3-8B-DFlash-b16", "num_speculative_tokens": 15}'
SEVEN = '{"method": "dflash", "model": "D", "num_speculative_tokens": 7}'
SCRIPT = """#!/bin/sh
# start it
export VLLM_USE_V2_MODEL_RUNNER=1
N=7
MODEL=Qwen/Qwen3-8B
cd /tmp && exec vllm serve \\
  $MODEL \\
  --speculative-config.num_speculative_tokens ${N} \\
  --speculative-config.model ${D:-z-lab/D-DFlash} > log 2>&1
"""


def test_vllm_with_json() -> None:
    found = parse(
        f"VLLM_USE_V2_MODEL_RUNNER=1 vllm serve Qwen/Qwen3-8B --speculative-config '{JSON}' --max-num-seqs 16"
    )
    assert (found.target, found.drafter, found.method, found.k) == (
        "Qwen/Qwen3-8B",
        "z-lab/Qwen3-8B-DFlash-b16",
        "dflash",
        15,
    )
    assert found.options["max_num_seqs"] == 16 and found.command.env == {"VLLM_USE_V2_MODEL_RUNNER": "1"}
    assert not found.problems


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve T" + "".join(f" --speculative-config.{key} {value}" for key, value in json.loads(SEVEN).items()),
        "vllm serve T" + "".join(f" --speculative_config.{key}={value}" for key, value in json.loads(SEVEN).items()),
        """vllm serve T --speculative-config='{"method": "dflash", "model": "D", "num_speculative_tokens": 7}'""",
        """vllm serve T -sc '{"method": "dflash", "model": "D", "num_speculative_tokens": 7}'""",
        f"python -m vllm.entrypoints.openai.api_server --model T -sc '{SEVEN}'",
        f"docker run --gpus all -e A=1 vllm/vllm-openai:v0.20.1 --model T -sc '{SEVEN}'",
    ],
)
def test_ways_to_say_the_same_to_vllm(line: str) -> None:
    found = parse(line)
    assert found.target == "T" and found.method == "dflash" and found.k == 7 and not found.problems


def test_an_image_names_its_version() -> None:
    assert parse("docker run vllm/vllm-openai:v0.20.1 --model T").command.version == "0.20.1"
    assert parse("docker run vllm/vllm-openai:latest --model T").command.version is None


def test_dotted_values_replace_a_json() -> None:
    found = parse(f"vllm serve T --speculative-config '{JSON}' --speculative-config.num_speculative_tokens 7")
    assert found.options["speculative_config"] == {"num_speculative_tokens": 7}
    assert "model" in found.problems[0].what and found.problems[0].severity == "error"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vllm serve T -sc '{oops}'", "not JSON"),
        ("vllm serve T -sc '[1]'", "no JSON object"),
        ("""vllm serve T -sc '{"methd": "dflash"}'""", "unknown keys: methd"),
        ("""vllm serve T -sc '{"tensor_parallel_size": 2}'""", "refused"),
        ("""vllm serve T -sc '{"num_speculative_tokens": 0}'""", "above 0"),
        ("vllm serve T --speculative-model D --num-speculative-tokens 5", "no such flag"),
        ("vllm serve T --enforce-eager --cudagraph-capture-sizes 1 2 4", "no effect"),
        ("python -m sglang.launch_server --model-path T --speculative-algorithm DFLASH", "needs"),
        ("sglang serve --model-path T --speculative-num-steps 4", "no effect without"),
        ("llama-server -m t.gguf --spec-type draft-dflash", "needs a drafter"),
        ("llama-server -m t.gguf -md d.gguf --spec-type none", "no effect"),
        ("llama-server -m t.gguf -md d.gguf --spec-type draft-dflash,ngram-cache", "first"),
    ],
)
def test_problems_of_a_line(text: str, said: str) -> None:
    assert any(said in p.what for p in parse(text).problems), parse(text).problems


def test_sglang() -> None:
    found = parse(
        "python3 -m sglang.launch_server --model-path T --speculative-algorithm DFLASH "
        "--speculative-draft-model-path D --speculative-num-draft-tokens 16 --speculative-num-steps 3 --pp-size 2"
    )
    assert (found.target, found.drafter, found.method, found.k) == ("T", "D", "dflash", 15)
    assert found.options["pipeline_parallel_size"] == 2 and "forces 1" in found.problems[0].what


def test_llama_cpp() -> None:
    found = parse("./llama-server -m t.gguf -md d.gguf --spec-type draft-dflash --spec-draft-n-max 7 --temp 0 -c 4096")
    assert found.k == 7 and found.workload == {"temperature": 0.0} and found.options["ctx_size"] == 4096
    assert found.options["spec_draft_p_min"] == "default"
    assert parse("llama-server -m t.gguf -md d.gguf").k == 3


def test_llama_cpp_reads_variables_where_flags_are_absent() -> None:
    line = "LLAMA_ARG_SPEC_DRAFT_N_MAX=9 LLAMA_ARG_SPEC_DRAFT_MODEL=d.gguf LLAMA_ARG_SPEC_TYPE=draft-dflash "
    found = parse(f"{line} llama-server -m t.gguf --spec-draft-n-max 7")
    assert (found.drafter, found.method, found.k) == ("d.gguf", "dflash", 7) and not found.problems
    assert parse(f"{line} llama-server -m t.gguf").k == 9
    image = (
        "docker run -e LLAMA_ARG_MODEL=/t.gguf -e LLAMA_ARG_SPEC_DRAFT_MODEL=/d.gguf ghcr.io/x/llama.cpp:server-b9300"
    )
    found = parse(image)
    assert (found.target, found.drafter, found.command.version) == ("/t.gguf", "/d.gguf", "b9300")


YAML = """\
model: Qwen/Qwen3-8B
max_num_seqs: 16
api-key: sk-secret
enforce-eager: true
enable-prefix-caching: false
cudagraph-capture-sizes: [8, 16]
speculative-config:
  method: dflash
  model: D
  num_speculative_tokens: 15
"""


def test_a_config_file_stands_before_the_line(tmp_path: Path) -> None:
    """As vllm 0.32.0 merges it: the line's own flags win, and so does its model."""
    file = tmp_path / "serve.yaml"
    file.write_text(YAML)
    found = parse(f"vllm serve --config {file} --max-num-seqs 4")
    assert (found.target, found.drafter, found.method, found.k) == ("Qwen/Qwen3-8B", "D", "dflash", 15)
    assert found.options["max_num_seqs"] == 4 and found.options["enforce_eager"] is True
    assert found.options["prefix_caching"] is False and found.options["cudagraph_capture_sizes"] == [8, 16]
    assert "sk-secret" not in found.command.render() and "--config" not in found.command.render()
    assert parse(f"vllm serve T --config {file}").target == "T"
    assert parse(f"vllm serve --config {file} T").target == "T"
    changed = parse(f"vllm serve T --config {file} --speculative-config.num_speculative_tokens 7")
    assert "so method, model from it has no effect" in changed.problems[0].what and changed.k == 7


def test_a_config_file_of_sglang(tmp_path: Path) -> None:
    file = tmp_path / "serve.yml"
    file.write_text("model-path: T\nspeculative-algorithm: DFLASH\nspeculative-draft-model-path: D\ntp: 2\n")
    found = parse(f"python -m sglang.launch_server --config {file} --speculative-num-draft-tokens 16")
    assert (found.target, found.drafter, found.method, found.k) == ("T", "D", "dflash", 15)
    assert found.options["tensor_parallel_size"] == 2 and not found.problems


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--config={f}", "as two words"),
        ("--config", "names no file"),
        ("--config {f} --config {f}", "more than once"),
        ("--config {t}", "must end in .yaml"),
    ],
)
def test_config_files_that_the_engine_refuses_or_passes_over(tmp_path: Path, words: str, said: str) -> None:
    for name in ("f.yaml", "f.txt"):
        (tmp_path / name).write_text("max-num-seqs: 4\n")
    found = parse("vllm serve T " + words.format(f=tmp_path / "f.yaml", t=tmp_path / "f.txt"))
    assert [p.severity for p in found.problems] == ["error"] and said in found.problems[0].what


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("a: [1,\n", "line 2, column 1: not YAML"),
        ("- a\n- b\n", "a list where settings"),
        ("", "a NoneType where settings"),
        ("a: &x [1]\nb: [*x, *x]\n", "aliases (*name) are not followed"),
        ("a: !!python/object/apply:os.system ['id']\n", "not YAML"),
        ("a: " + "[" * 5000, "as YAML"),
        ("a: 2026-99-99\n", "as YAML"),
    ],
)
def test_a_config_file_that_cannot_be_read_is_no_good_answer(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "f.yaml"
    if text is not None:
        file.write_text(text)
    found = parse(f"vllm serve T --config {file}")
    assert len(found.unread) == 1 and said in found.unread[0] and "\n" not in found.unread[0]


@settings(max_examples=100, deadline=None)
@given(text=st.one_of(st.text(max_size=60), st.text("ab:-[]{}*&!\"'\n 1.", max_size=60)))
def test_any_config_file_is_read_or_named(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(text.encode("utf-8", "replace"))
    found = parse(f"vllm serve T --config {file}")
    assert found.command.render() and all("\n" not in one for one in found.unread)


def test_a_script() -> None:
    found = parse(SCRIPT)
    assert found.target == "Qwen/Qwen3-8B" and found.k == 7 and found.drafter == "z-lab/D-DFlash"
    assert found.method == "dflash" and found.command.env["VLLM_USE_V2_MODEL_RUNNER"] == "1"


def test_human_numbers() -> None:
    found = parse("vllm serve T --max-model-len 32k --max-num-batched-tokens 8K")
    assert found.options == {"max_model_len": 32000, "max_num_batched_tokens": 8192}


@pytest.mark.parametrize("text", ["", "ls -l", "vllm bench", "echo 'unclosed", "x" * (2 << 20)])
def test_no_engine(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


FLAGS = ["vllm serve ", "sglang serve ", "llama-server ", "-sc ", "--speculative-config", ".method ", "--", "-", "-1"]
SIGNS = ["=", "'", '"', "{", "}", json.dumps({"method": "dflash"}), "\\\n", "$X", "${X:-y}", ";", "&&", "#", "\0", "é"]
WORDS = st.sampled_from([*FLAGS, *SIGNS])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(WORDS, st.text(max_size=8)), max_size=14).map("".join))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        found: Any = parse(text)
    except UsageError as error:
        assert "\n" not in str(error)
    else:
        assert found.command.engine in ("vllm", "sglang", "llama.cpp") and found.command.render()
