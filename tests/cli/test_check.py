"""``draftproof check`` as a user calls it: exit codes, the card, JSON and the reports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftproof.proof.case import read_case
from draftproof.proof.rules import PAGES, judge
from proof.configs import TARGET, sliding, zlab

LINE = "vllm serve {t} --speculative-config.method dflash --speculative-config.model {d} --max-num-seqs 16 "


def write(path: Path, config: object) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config, indent=1))
    return path


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    return write(tmp_path / "drafter", sliding())


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write(tmp_path / "target", TARGET)


def test_nothing_found(shell, drafter, target):
    assert shell("check", str(drafter), "--target", str(target), "-e", "vllm==0.33.0") == 0
    assert "z-lab id             1, 5, 9" in shell.out and "output_hidden_states 2, 6, 10" in shell.out
    assert "1 × sliding, window 256, causal in the block" in shell.out
    assert "num_speculative_tokens 7" in shell.out and "--speculative-num-draft-tokens 8" in shell.out
    assert "0.33.0  honoured" in shell.out and "Nothing found in the files, the fit to the target" in shell.out
    assert "no model.safetensors" in shell.err


def test_faults(shell, drafter):
    assert shell("check", str(drafter), "-e", "vllm==0.20.1", "-q") == 1
    assert "AUX_LAYER_OFFSET" in shell.out and "silently different" in shell.out and not shell.err
    told = " ".join(shell.out.split())  # a long folder name breaks lines anywhere
    assert "config.json, line" in told and "1 fault and 2 risks found." in told


@pytest.mark.parametrize(
    ("version", "lost"), [("0.20.1", True), ("0.23.0", True), ("0.25.1", True), ("0.26.0", False), ("0.32.0", False)]
)
def test_a_stated_direction_of_sliding_layers(shell, tmp_path, version, lost):
    """Until 0.26 nothing but dflash_config.causal makes a sliding layer causal."""
    uniform = write(tmp_path / "uniform", sliding(full=0, is_causal=True))
    shell("check", str(uniform), "-e", f"vllm=={version}", "-q")
    assert ("ENGINE_CAUSALITY_MISMATCH" in shell.out) == lost


def test_the_whole_matrix(shell, drafter):
    assert shell("check", str(drafter), "--engine", "all", "-q") == 0
    for text in ("vLLM", "SGLang", "llama.cpp", "z-lab dflash", "0.25.0 – 0.25.1", "refused", "b10048"):
        assert text in shell.out
    answer = " ".join(shell.out.split("\n\n")[-1].split())
    assert answer.startswith("Nothing found in the files. It runs as the files mean in draftproof 0.1.0, SGLang 0.5.14")
    assert "vLLM 0.33.0 (at a cost 0.26.0 – 0.32.0)" in answer and answer.endswith("in no release read of llama.cpp.")


def test_risks_can_be_let_pass(shell, drafter):
    assert shell("check", str(drafter), "-e", "vllm==0.24.0", "-q") == 1
    assert shell("check", str(drafter), "-e", "vllm==0.24.0", "-q", "--fail-on", "error") == 0


def test_could_not_tell(shell, drafter):
    assert shell("check", str(drafter), "-e", "vllm==9.9.9", "-q") == 3
    assert "newer than what was read" in shell.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "no such file or folder"),
        ([], "needs a DRAFTER"),
        (["{t}"], "is no drafter"),
        (["{d}", "-e", "tgi==1"], "known are"),
        (["{d}", "-e", "vllm=="], "version is missing"),
        (["{d}", "--launch", "ls"], "no engine is started"),
        (["{d}", "--launch", "vllm serve x", "--launch-file", "y"], "give one"),
        (["{d}", "--launch", "vllm serve x", "-e", "sglang==0.5.20"], "contradict"),
        (["{d}", "--target", "nowhere"], "no such file"),
        (["{d}", "--save", "/proc/x/case.json"], "cannot be written"),
        (["--explain", "AUX_LAYER_OFSET"], "did you mean AUX_LAYER_OFFSET"),
    ],
)
def test_usage(shell, drafter, target, words, said):
    assert shell("check", *(w.format(d=drafter, t=target) for w in words)) == 2
    assert said in shell.err and len([line for line in shell.err.splitlines() if line.startswith("error")]) == 1


@pytest.mark.parametrize("value", ["64", 0, -1, 64.0, True, [64], {}, "6" * 3_000_000])
def test_a_size_that_is_none_is_said_with_its_line(shell, tmp_path, target, value):
    for place in (None, "dflash_config"):
        config = sliding()
        (config if place is None else config[place])["block_size"] = value
        assert shell("check", str(write(tmp_path / "d", config)), "-t", str(target), "-q") == 2
        assert "block_size = " in shell.err and "config.json, line" in shell.err and len(shell.err) < 500
    wrong = write(tmp_path / "t", {**TARGET, "vocab_size": value})
    assert shell("check", str(write(tmp_path / "d", sliding())), "-t", str(wrong), "-q") == 2
    assert "vocab_size = " in shell.err and "t/config.json, line" in shell.err


def test_a_launch_line_is_corrected(shell, drafter, target):
    line = LINE.format(t=target, d=drafter) + "--max-num-batched-tokens 64 --api-key sk-secret --max-model-len 8k "
    line += "--speculative-config.num_speculative_tokens 8"
    assert shell("check", str(drafter), "--launch", line, "-e", "vllm==0.33.0", "-q") == 1
    for code in ("K_EXCEEDS_BLOCK", "BATCHED_TOKENS_TOO_SMALL", "DRAFT_MAX_LEN_LT_TARGET"):
        assert code in shell.out
    pasted = shell.out[shell.out.index("corrected\n") :]
    assert '"num_speculative_tokens": 7}' in pasted and "--max-num-batched-tokens 128 " in pasted
    assert "--max-model-len 4096" in pasted and "sk-secret" not in shell.out
    again = " ".join(pasted.split("\n\n")[0].splitlines()[1:]).replace("\\", " ")
    assert shell("check", str(drafter), "--launch", again, "-e", "vllm==0.33.0", "-q") == 0, shell.out


def test_a_line_without_a_drafter_gets_one(shell, drafter, target, tmp_path):
    script = tmp_path / "start.sh"
    script.write_text(f"#!/bin/sh\npython -m sglang.launch_server \\\n  --model-path {target}\n")
    assert shell("check", str(drafter), "--launch-file", str(script), "-q") == 1
    assert f"--speculative-draft-model-path {drafter}" in shell.out and "--speculative-num-draft-tokens 8" in shell.out


def test_a_config_file_is_read_and_written_out(shell, drafter, target, tmp_path):
    file = tmp_path / "serve.yaml"
    given = f"  method: dflash\n  model: {drafter}\n  num_speculative_tokens: 8\n"
    file.write_text(f"speculative-config:\n{given}max-model-len: 2048\n")
    words = ("check", str(drafter), "--launch", f"vllm serve {target} --config {file}", "-e", "vllm==0.33.0", "-q")
    assert shell(*words) == 1 and "K_EXCEEDS_BLOCK" in shell.out
    pasted = shell.out[shell.out.index("corrected\n") :]
    assert "--config" not in pasted and "--max-model-len 2048" in pasted and '"num_speculative_tokens": 7}' in pasted
    file.unlink()
    assert shell(*words) == 3 and "No such file" in shell.out


def test_json(shell, drafter, target):
    words = ("check", str(drafter), "--target", str(target), "-e", "vllm==0.25.0", "--json", "-q")
    assert shell(*words) == 1
    found = json.loads(shell.out)
    assert found["schema_version"] == "draftproof.check/1" and found["exit_code"] == 1
    assert found["drafter"]["taps"]["output_hidden_states"] == [2, 6, 10]
    assert found["drafter"]["flags"]["vllm"] == 7 and found["drafter"]["flags"]["sglang"] == 8
    assert found["matrix"][0]["state"] == "refused"
    assert {"ENGINE_SWA_REFUSED"} <= {f["code"] for f in found["findings"]}
    assert all(row["state"] in ("fits", "note", "unknown") for row in found["fit"])


def test_reports(shell, drafter, tmp_path):
    files = {name: tmp_path / "reports" / name for name in ("case.json", "junit.xml", "sarif.json")}
    words = [w for name, path in files.items() for w in (f"--{name.split('.')[0].replace('case', 'save')}", str(path))]
    assert shell("check", str(drafter), "-e", "vllm==0.20.1", "-q", *words) == 1
    case = read_case(files["case.json"])
    assert "AUX_LAYER_OFFSET" in judge(case).codes and case.engine.version == "0.20.1"
    suite = ElementTree.parse(files["junit.xml"]).getroot()[0]
    failed = {test.get("name") for test in suite if test.find("failure") is not None}
    assert "AUX_LAYER_OFFSET" in failed and suite.get("failures") == str(len(failed))
    run = json.loads(files["sarif.json"].read_text())["runs"][0]
    result = next(r for r in run["results"] if r["ruleId"] == "AUX_LAYER_OFFSET")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("config.json") and place["region"]["startLine"] > 1
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "AUX_LAYER_OFFSET"


def test_explain(shell):
    assert shell("check", "--explain", "aux-layer-offset") == 0
    assert "one layer too early" in shell.out
    assert shell("check", "--explain", "K_EXCEEDS_BLOCK", "--json") == 0
    assert json.loads(shell.out)["area"] == "LAUNCH"


def test_starts_quickly_and_without_torch(drafter):
    """Processor time of the whole command, start included: a machine's load is no part of it."""
    program = (
        "import resource, sys\n"
        "from draftproof.cli.main import main\n"
        f"main(['check', {str(drafter)!r}, '-e', 'all', '-q', '--json'])\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules, used.ru_utime + used.ru_stime, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    torch, transformers, seconds = done.stderr.split()
    assert (torch, transformers) == ("False", "False") and float(seconds) < 1.0


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.one_of(st.integers(-5, 5), st.integers(-(10**29), 10**29)),
    st.floats(0, 1e6),
    st.text(max_size=5),
)
VALUES = st.one_of(LEAVES, st.lists(LEAVES, max_size=4), st.dictionaries(st.text(max_size=4), LEAVES, max_size=3))
KEYS = sorted({*zlab(), *sliding(), "is_causal", "rope_parameters", "rope_scaling", "quantization_config", "gguf",
               "transformer_layer_config", "speculators_config", "speculators_model_type", "draft_vocab_size",
               "aux_hidden_state_layer_ids", "sliding_window_non_causal", "target_hidden_size"})  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
)
def test_any_config_gets_an_answer(shell, tmp_path, changes, other):
    """Whatever the values are: an answer or one line, never a traceback; 70 would be one."""
    drafter = write(tmp_path / "d", {**sliding(), **changes})
    target = write(tmp_path / "t", {**TARGET, **other})
    code = shell("check", str(drafter), "--target", str(target), "-e", "all", "-q", "--json")
    assert code in (0, 1, 2, 3), shell.err
    if code == 2:
        assert len(shell.err.splitlines()) == 1
    assert shell("check", str(drafter), "--target", str(target), "-e", "vllm==0.20.1", "-q") in (0, 1, 2, 3), shell.err


def test_every_code_has_a_page():
    assert all(page.meaning and page.derived and page.remedy and page.probe for page in PAGES.values())
