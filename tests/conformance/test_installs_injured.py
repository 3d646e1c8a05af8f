"""A real vLLM and a real SGLang, injured: edited, back-ported, half installed. And how fast an intact one is read."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from installs_results import keep

from support.installs import codes, environment, look, rewrite_record

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from fetch_installs import cache_folder, fetch, pip_words

pytestmark = pytest.mark.installs

_killed: list[dict[str, object]] = []
MODEL = "vllm/model_executor/models/qwen3_dflash.py"
RUNNER = "vllm/v1/worker/gpu_model_runner.py"
SOURCES = ("provenance", "integrity", "source", "behaviour")


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    """A copy of vLLM's sources as an install that knows of nothing else."""
    return copied("vllm==0.20.1", tmp_path / "install")


def copied(requirement: str, folder: Path) -> Path:
    shutil.copytree(fetch(requirement), folder)
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    (commands / "vllm").touch()  # the cache keeps sources only; what RECORD says of it is rewritten
    rewrite_record(info(folder), keep_only_existing=True)
    return folder


def info(folder: Path) -> Path:
    return next(folder.glob("*.dist-info"))


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_the_intact_sources_give_no_finding(vllm: Path) -> None:
    assert look("vllm", prefix=vllm, levels=SOURCES)[1] == ()


def test_an_edited_line_is_found_and_its_effect_named(tmp_path: Path) -> None:
    folder = copied("vllm==0.33.0", tmp_path / "install")
    edit(folder / MODEL, "return sliding_window, _dflash_layer_causal(config, layer_idx)", "return None, False")
    case, findings = look("vllm", prefix=folder, levels=SOURCES)
    assert codes(findings) == {"INSTALL_MODIFIED", "INSTALL_SOURCE_DIVERGES"}
    assert MODEL in findings[0].says
    facts = case.engine.options["install"]["facts"]
    assert facts["window"]["value"] == "wrong" and facts["window"]["level"] == "behaviour"


def test_a_back_ported_fix_counts_and_the_disagreement_is_said(vllm: Path) -> None:
    old = 'layer_ids = dflash_config.get("target_layer_ids")'
    edit(vllm / RUNNER, old, 'layer_ids = [i + 1 for i in dflash_config.get("target_layer_ids") or []]')
    rewrite_record(info(vllm))
    case, findings = look("vllm", prefix=vllm, levels=SOURCES)
    assert case.engine.options["install"]["facts"]["zlab_ids_v1"]["value"] == "plus_one"
    assert case.engine.options["patches"]["vllm#40727"] is True
    assert codes(findings) == {"INSTALL_SOURCE_DIVERGES"}


def test_code_that_reads_right_and_behaves_wrong(vllm: Path) -> None:
    """The source still mentions what level 4 looks for; only calling it shows what it does."""
    old = 'return self.method in ("eagle", "eagle3", "mtp", "dflash")'
    edit(vllm / "vllm/config/speculative.py", old, f'return "dflash" in self.nothing or {old.removeprefix("return ")}')
    rewrite_record(info(vllm))
    case, _ = look("vllm", prefix=vllm, levels=SOURCES)
    told = case.engine.options["install"]["facts"]["prefix_drop"]
    assert told["level"] == "source"  # the call fails, so the source answers
    edit(vllm / "vllm/config/speculative.py", '"dflash" in self.nothing or', 'self.method != "dflash" and')
    rewrite_record(info(vllm))
    case, findings = look("vllm", prefix=vllm, levels=SOURCES)
    told = case.engine.options["install"]["facts"]["prefix_drop"]
    assert told["level"] == "behaviour" and told["source_says"] is not None
    assert "INSTALL_SOURCE_DIVERGES" in codes(findings)


def test_bytecode_of_other_code_with_the_same_time_and_size(vllm: Path, tmp_path: Path) -> None:
    source = vllm / RUNNER
    other = tmp_path / "other.py"
    other.write_text(source.read_text().replace("return tuple(layer_ids)", "return tuple(layer_idz)"))
    os.utime(other, (source.stat().st_atime, source.stat().st_mtime))
    cached = importlib.util.cache_from_source(str(source))
    py_compile.compile(str(other), cfile=cached, dfile=str(source), doraise=True)
    assert other.stat().st_size == source.stat().st_size
    findings = look("vllm", prefix=vllm, levels=SOURCES)[1]
    assert codes(findings) == {"INSTALL_BYTECODE_WRONG"} and RUNNER in findings[0].says


def test_a_module_that_cannot_be_parsed_is_no_answer(vllm: Path) -> None:
    (vllm / "vllm/config/speculative.py").write_text("def broken(:\n")
    case, _ = look("vllm", prefix=vllm, levels=("provenance", "source", "behaviour"))
    told = case.engine.options["install"]["facts"]["prefix_drop_optout"]
    assert told["value"] is None or told["value"] == "no"


@pytest.fixture(scope="module")
def writing(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds from the first change in site-packages to the end of an install, here and now."""
    folder = tmp_path_factory.mktemp("undisturbed")
    python, site = environment(folder / "venv")
    process, began = started_install(python, site, folder)
    assert process.wait(600) == 0 and sound(site)
    return time.monotonic() - began


@pytest.mark.parametrize("seed", range(10))
def test_an_install_killed_at_a_random_moment(seed: int, writing: float, tmp_path: Path) -> None:
    """SIGKILL while pip writes; half of them while it replaces another release. What is there is compared with an
    undisturbed install; if anything differs, the doctor has to say so, else it must be silent."""
    python, site = environment(tmp_path / "venv")
    if seed % 2:
        shutil.copytree(fetch("sglang==0.5.13", whole=True), site, dirs_exist_ok=True)
    moment = writing * random.Random(seed).uniform(0.0, 1.0)
    process, began = started_install(python, site, tmp_path)
    time.sleep(max(0.0, began + moment - time.monotonic()))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _, findings = look("sglang", python, levels=("provenance", "integrity", "source"))
    how = "replacing another release" if seed % 2 else "fresh"
    found = sorted(codes(findings))
    serious = [finding.says for finding in findings if finding.severity != "info"]
    was_sound, again = sound(site), mended(python, site, tmp_path)
    row = {"seconds": moment, "install": how, "sound": was_sound, "found": found, "clean_after_reinstall": not again}
    _killed.append(row)
    keep("killed_installs", _killed)
    assert bool(serious) != was_sound, (moment, serious)
    assert not again


def mended(python: Path, site: Path, folder: Path) -> list[str]:
    """What is still wrong after the remedy: what pip moved aside is deleted, the release installed anew."""
    for left in site.glob("~*"):
        shutil.rmtree(left)
    process, _ = started_install(python, site, folder)
    assert process.wait(600) == 0
    _, findings = look("sglang", python, levels=("provenance", "integrity", "source"))
    return [finding.says for finding in findings if finding.severity != "info"]


def started_install(python: Path, site: Path, folder: Path) -> tuple[subprocess.Popen[bytes], float]:
    """pip, and the time of its first change in ``site``: before that there is nothing to interrupt."""
    before = os.stat(site).st_mtime_ns
    words = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "--quiet"]
    process = subprocess.Popen(
        [*words, "--force-reinstall", str(wheel())],
        env={**os.environ, "TMPDIR": str(folder)},
        start_new_session=True,
    )
    while os.stat(site).st_mtime_ns == before and process.poll() is None:
        time.sleep(0.002)
    return process, time.monotonic()


def sound(site: Path) -> bool:
    """One distribution, nothing moved aside, its last step done (pip writes RECORD anew, with INSTALLER in it), and
    every file as in an undisturbed install of it."""
    entries = [e for e in site.iterdir() if e.name.startswith(("sglang-", "~"))]
    if len(entries) != 1 or not all((entries[0] / name).exists() for name in ("RECORD", "INSTALLER")):
        return False
    if f"{entries[0].name}/INSTALLER," not in (entries[0] / "RECORD").read_text():
        return False
    version = entries[0].name.removeprefix("sglang-").removesuffix(".dist-info")
    return contents(fetch(f"sglang=={version}", whole=True) / "sglang") == contents(site / "sglang")


def contents(folder: Path) -> dict[str, bytes]:
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.parent.name != "__pycache__")
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def wheel() -> Path:
    """SGLang's wheel itself, kept beside the installs; its file name says which interpreter it is for."""
    folder = cache_folder() / "wheels"
    if not list(folder.glob("sglang-0.5.11-*.whl")):
        words = pip_words("sglang==0.5.11", folder, command="download")
        subprocess.run(words, check=True)
    return next(folder.glob("sglang-0.5.11-*.whl"))
