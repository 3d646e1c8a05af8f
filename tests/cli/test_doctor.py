"""``draftproof doctor`` as people and scripts use it: flags, exit codes, JSON, JUnit, saved cases, narrow terminals."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from draftproof.cli.doctor import chosen_hosts, split_host
from draftproof.cli.main import main
from draftproof.proof.case import read_case
from draftproof.proof.rules import judge

# A vLLM of nothing but the functions that the facts ask, written for this test.
FILES = {
    "config/speculative.py": """
class SpeculativeConfig:
    method: str | None = None
    def use_eagle(self) -> bool:
        return self.method in ("eagle", "dflash")
    def use_dflash(self) -> bool:
        return self.method == "dflash"
""",
    "model_executor/models/registry.py": """
_SPECULATIVE_DECODING_MODELS = {"DFlashDraftModel": ("qwen3_dflash", "DFlashQwen3ForCausalLM")}
""",
    "transformers_utils/configs/speculators/algos.py": """
from . import broken_on_purpose
SUPPORTED_SPECULATORS_TYPES = {}
def register_speculator(name):
    def register(function):
        SUPPORTED_SPECULATORS_TYPES[name] = function
        return function
    return register
@register_speculator("dflash")
def update_dflash(config_dict, pre_trained_config):
    pre_trained_config["eagle_aux_hidden_state_layer_ids"] = config_dict["aux_hidden_state_layer_ids"]
    pre_trained_config["architectures"] = ["DFlashDraftModel"]
    pre_trained_config["dflash_config"] = {"mask_token_id": config_dict["mask_token_id"]}
""",
    "transformers_utils/configs/speculators/base.py": """
from vllm.transformers_utils.configs.speculators.algos import SUPPORTED_SPECULATORS_TYPES
class SpeculatorsConfig:
    @classmethod
    def extract_transformers_pre_trained_config(cls, config_dict):
        out = config_dict.get("transformer_layer_config", {})
        SUPPORTED_SPECULATORS_TYPES[config_dict["speculators_model_type"]](config_dict, out)
        return out
""",
    "transformers_utils/configs/eagle.py": """
from transformers import PretrainedConfig
class EAGLEConfig(PretrainedConfig):
    def __init__(self, model=None, method="eagle", **kwargs):
        if method == "dflash":
            kwargs["architectures"] = list(model.architectures)
        super().__init__(**kwargs)
        for key, value in model.to_dict().items():
            if key not in kwargs:
                setattr(self, key, value)
""",
    "v1/worker/gpu_model_runner.py": """
import torch
class GPUModelRunner(torch.nn.Module):
    @torch.inference_mode()
    def _get_eagle3_aux_layers_from_config(self) -> tuple[int, ...] | None:
        config = self.speculative_config.draft_model_config.hf_config
        ids = getattr(config, "eagle_aux_hidden_state_layer_ids", None)
        return tuple(ids or (getattr(config, "dflash_config", None) or {}).get("target_layer_ids") or ()) or None
""",
    "model_executor/models/qwen3_dflash.py": "class DFlashQwen3ForCausalLM: ...\n",
    "v1/spec_decode/dflash.py": "CAUSAL = False\n",
    "logger.py": "LOGGER = None\n",
    "__init__.py": "__version__ = '0.20.1'\n",
}
INFO = {"METADATA": "Name: vllm\nVersion: 0.20.1\n", "WHEEL": "Tag: py3-none-any\n", "INSTALLER": "pip\n"}
SPECULATORS = {
    "speculators_model_type": "dflash",
    "aux_hidden_state_layer_ids": [2, 10],
    "mask_token_id": 7,
    "transformer_layer_config": {
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 32,
    },
}


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """An install of that vLLM, with a RECORD."""
    from support.installs import rewrite_record

    site = tmp_path / "site"
    for name, text in FILES.items():
        file = site / "vllm" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    info = site / "vllm-0.20.1.dist-info"
    info.mkdir()
    for name, text in INFO.items():
        (info / name).write_text(text)
    listed = [f"vllm/{name},," for name in FILES] + [f"{info.name}/{name},," for name in [*INFO, "RECORD"]]
    (info / "RECORD").write_text("\n".join(listed) + "\n")
    rewrite_record(info)
    return site


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    code = main(["doctor", *map(str, words), "--json", "--quiet"])
    return code, json.loads(capsys.readouterr().out)


def test_an_intact_install_is_answered(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, "--prefix", prefix)
    (install,) = found["installs"]
    assert (code, found["schema_version"], install["findings"]) == (0, "draftproof.doctor/1", [])
    facts = install["facts"]
    assert facts["zlab_ids_v1"]["value"] == "raw" and facts["zlab_ids_v1"]["level"] == "behaviour"
    assert facts["window"]["value"] == "none" and facts["window"]["level"] == "source"
    assert facts["zlab_ids_v1"]["where"].startswith("vllm/v1/worker/gpu_model_runner.py:")
    assert install["answer"].startswith(f"vllm 0.20.1 is complete ({len(FILES) + 3} files verified)")
    assert "DFlash: layer ids one layer early, sliding layers run as full attention" in install["answer"]
    assert "prefix drop on (costs one block per hit)" in install["answer"]


def test_a_drafter_goes_through(prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SPECULATORS))
    code, found = run(capsys, "--prefix", prefix, "--drafter", tmp_path)
    (install,) = found["installs"]
    rows = {row["field"]: row for row in install["behaviour"]["chain"]["rows"]}
    assert code == 1 and rows["taps (V1 runner)"]["same"] and not rows["layer 0"]["same"]
    assert [f["code"] for f in install["findings"]] == ["INSTALL_DRAFTER_MISREAD"]
    assert (
        "layer 0: the file means window 32, causal, the engine sees full, not causal" in install["findings"][0]["says"]
    )


def test_what_is_found_can_be_saved_and_judged_again(prefix: Path, tmp_path: Path, capsys: Any) -> None:
    (prefix / "vllm" / "logger.py").unlink()
    case, xml = tmp_path / "new" / "case.json", tmp_path / "new" / "junit.xml"
    code, found = run(capsys, "--prefix", prefix, "--save", case, "--junit", xml)
    assert code == 1
    again = [finding.to_dict() for finding in judge(read_case(case), areas=["INSTALL"]).findings]
    assert again == found["installs"][0]["findings"]
    suite = ElementTree.parse(xml).getroot().find("testsuite")
    assert suite is not None and suite.get("failures") == "1"
    assert [failure.get("type") for failure in suite.iter("failure")] == ["INSTALL_INCOMPLETE"]


def test_levels_that_were_not_asked_for_are_not_run(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = run(capsys, "--prefix", prefix, "--level", "source")
    assert set(found["installs"][0]["seconds"]) == {"provenance", "source"}
    assert "was not verified" in found["installs"][0]["answer"]


def test_nothing_installed_is_a_fault_not_a_good_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, "--prefix", tmp_path)
    assert code == 1 and found["installs"][0]["findings"][0]["code"] == "INSTALL_ENGINE_MISSING"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--level", "all"], "--level"),
        (["--timeout", "1"], "--timeout"),
        (["--engine", "vllm==0.20.1"], "--engine vllm"),
        (["--engine", "a;b"], "no name of a distribution"),
        (["--python", "/etc"], "without bin/python"),
        (["--prefix", "{venv}"], "--python {venv}/bin/python"),
        (["--ssh", "a", "--ssh", "a"], "twice"),
        (["--ssh", "a", "--python", "p"], "--python"),
        (["--ssh", "-oProxyCommand=x"], "no host name"),
        (["--drafter", "./nowhere"], "no such folder"),
        (["--drafter", ".", "--level", "source"], "--drafter"),
    ],
)
def test_flags_that_cannot_be_meant(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyvenv.cfg").touch()
    assert main(["doctor", *(word.format(venv=tmp_path) for word in words)]) == 2
    error = capsys.readouterr().err
    assert said.format(venv=tmp_path) in error and error.count("\n") == 1


def test_an_environment_may_be_named_by_its_folder() -> None:
    (host,) = chosen_hosts(sys.prefix, None, [])
    assert host.python == str(Path(sys.prefix) / "bin" / "python")


def test_an_answer_is_not_said_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--python", "/nowhere/python", "--quiet"]) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("is or has no such Python: No such file") == 1 and "--python PATH" in out


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("gpu1", ("gpu1", None)),
        ("me@gpu1:/opt/venv/bin/python", ("me@gpu1", "/opt/venv/bin/python")),
        ("gpu1:~/venv/bin/python", ("gpu1", "~/venv/bin/python")),
        ("gpu1:python3.12", ("gpu1", "python3.12")),
        ("ssh://me@gpu1:2222", ("ssh://me@gpu1:2222", None)),
        ("ssh://me@gpu1:2222:/usr/bin/python3", ("ssh://me@gpu1:2222", "/usr/bin/python3")),
    ],
)
def test_hosts_and_interpreters(text: str, parts: tuple[str, str | None]) -> None:
    assert split_host(text) == parts


@pytest.mark.parametrize("columns", [60, 140])
def test_the_card_fits_the_terminal(columns: int, prefix: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["doctor", "--prefix", str(prefix), "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert lines[-1].endswith("hit)") or "prefix drop" in " ".join(lines[-5:])


def test_it_starts_without_torch_and_at_once() -> None:
    program = (
        "import sys, draftproof.cli.doctor, draftproof.cli.doctor_view, draftproof.proof.rules\n"
        "print([name for name in ('torch', 'transformers', 'numpy') if name in sys.modules])"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert time.monotonic() - began < 5  # measured 0.4 s; the machine may be busy
