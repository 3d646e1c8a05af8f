"""Peers that answer many prompts at once: transformers on a tiny model, and vLLM's wrapper with a stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from draftproof.bench.peers import check_prompts
from draftproof.bench.peers.child import run_child
from draftproof.bench.peers.transformers_batch import padded, run_transformers_batch
from draftproof.bench.peers.vllm_cpu import PYTHON_VARIABLE, RUNNER, run_vllm_cpu
from draftproof.errors import CapabilityError, DraftproofError, UnavailableError, UsageError
from support.folders import save_target, zlab_config
from support.tiny import drafter_spec, naive_greedy, tiny_model

PROMPTS = [[3, 14, 15, 92, 65, 35], [89, 79], [3, 23, 84, 62]]
TOKENS = 6


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_target(tmp_path_factory.mktemp("target")))


# ---------------------------------------------------------------------------------------------- transformers


def test_a_padded_batch_gives_the_answers_of_the_single_prompts(tmp_path: Path) -> None:
    """All of them to their full length, though the first one's first token would end it."""
    model = tiny_model("llama")
    answers = [naive_greedy(model, ids, TOKENS) for ids in PROMPTS]
    model.generation_config.eos_token_id = answers[0][0]
    model.save_pretrained(tmp_path)
    result = run_transformers_batch(str(tmp_path), PROMPTS, max_tokens=TOKENS, dtype="float32", threads=1, runs=2)
    assert result["token_ids"] == answers
    assert result["streams"] == 3 and result["tokens"] == 18 and len(result["runs"]) == 2
    assert result["tokens_per_second"] == pytest.approx(18 / result["seconds"])
    assert min(result["runs"]) <= result["seconds"] <= max(result["runs"])
    assert result["settings"]["prompt_tokens"] == [6, 2, 4] and result["acceptance"] is None
    assert result["settings"]["target"] == str(tmp_path) and sys.executable not in json.dumps(result)


def test_padding_is_on_the_left() -> None:
    ids, mask = padded([[1, 2, 3], [4]])
    assert ids.tolist() == [[1, 2, 3], [0, 0, 4]] and mask.tolist() == [[1, 1, 1], [0, 0, 1]]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"threads": 0}, "threads=0"),
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"wait_policy": "lazy"}, "wait_policy='lazy'"),
        ({"prompts": [[1], []]}, "prompts: at least one"),
        ({"model": "no/such/folder"}, "no/such/folder"),
    ],
)
def test_a_bad_batch_is_refused_before_the_child_starts(target: str, change: dict[str, Any], expected: str) -> None:
    values: dict[str, Any] = {"model": target, "prompts": PROMPTS, "max_tokens": 4, "dtype": "float32", "threads": 1}
    values |= change
    with pytest.raises(DraftproofError, match=expected):
        run_transformers_batch(values.pop("model"), values.pop("prompts"), **values)


# ------------------------------------------------------------------------------------------------------ vLLM

# A stand-in for the interpreter: it keeps what it was given and answers what each test says.
FAKE = """#!{python}
import json, os, sys, time
job = json.load(sys.stdin)
keep = {{"job": job, "arguments": sys.argv[1:], "environment": dict(os.environ)}}
with open({seen!r}, "w") as file:
    json.dump(keep, file)
levels = [
    {{"streams": n, "seconds": [2.0] * job["runs"], "token_ids": [[7] * job["max_tokens"]] * n, "acceptance": None}}
    for n in job["levels"]
]
{body}
"""
GOOD = "print('chatter')\nprint(json.dumps({'version': '0', 'levels': levels}))"


class Fake:
    """Installs a stand-in and reads what it was given."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.python, self.record, self._patch = folder / "python", folder / "seen.json", monkeypatch

    def install(self, body: str) -> None:
        self.python.write_text(FAKE.format(python=sys.executable, seen=str(self.record), body=body))
        self.python.chmod(0o755)
        self._patch.setenv(PYTHON_VARIABLE, str(self.python))

    @property
    def seen(self) -> Any:
        return json.loads(self.record.read_text())


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(tmp_path, monkeypatch)


def vllm(target: str, **change: Any) -> Any:
    values: dict[str, Any] = {"max_tokens": 4, "dtype": "float32", "threads": 1} | change
    return run_vllm_cpu(target, values.pop("prompts", PROMPTS), values.pop("levels", [1, 3]), **values)


def test_levels_come_back_in_their_order(target: str, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMP_SPINCOUNT", "5")
    fake.install(GOOD)
    results = vllm(target, levels=[3, 1], runs=2)
    assert [r["streams"] for r in results] == [3, 1] and [r["tokens"] for r in results] == [12, 4]
    assert [r["tokens_per_second"] for r in results] == [6.0, 2.0] and results[0]["runs"] == [2.0, 2.0]
    seen = fake.seen
    assert seen["arguments"] == ["-I", str(RUNNER)] and seen["job"]["max_model_len"] == 6 + 4 + 1
    assert seen["job"]["prompts"] == PROMPTS and seen["job"]["drafter"] is None
    environment = seen["environment"]
    assert environment["VLLM_CPU_OMP_THREADS_BIND"] == str(min(os.sched_getaffinity(0)))
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == "2" and "GOMP_SPINCOUNT" not in environment
    assert str(fake.python.parent) not in json.dumps(results) and results[0]["version"] == "vllm-cpu 0"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("print(json.dumps({'stage': 'import', 'error': 'ImportError: no vllm'}))", "no vllm; run: make vllm"),
        ("print(json.dumps({'stage': 'run', 'error': 'ValueError: too long'}))", "failed: ValueError: too long"),
        ("print('hello\\nworld')", "without an answer; its last words: world"),
        ("", "without an answer; its last words: nothing"),
        ("print('[1, 2]')", "without an answer"),
        ("print('{}')", "without the figures of levels"),
        ("print(json.dumps({'version': '0', 'levels': levels[:1]}))", "without the figures of levels"),
        ("sys.exit('first\\nlast words')", "status 1; it said: last words"),
        ("os.kill(os.getpid(), 9)", "signal 9"),
    ],
)
def test_vllm_failures_are_one_line(target: str, fake: Fake, body: str, expected: str) -> None:
    fake.install(body)
    with pytest.raises(UnavailableError) as error:
        vllm(target)
    assert expected in str(error.value) and "\n" not in str(error.value)


def test_a_timeout_ends_the_workers_too(target: str, fake: Fake, tmp_path: Path) -> None:
    """A worker that holds our pipes open would otherwise keep us waiting for it."""
    pid_file = tmp_path / "worker"
    fake.install(
        "import subprocess\nworker = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(pid_file)!r}, 'w').write(str(worker.pid))\ntime.sleep(600)"
    )
    for patience in (1, 5, 30):  # as much as a busy machine needs to start the worker
        with pytest.raises(UnavailableError, match=f"longer than {patience} s: lower max_tokens"):
            vllm(target, timeout_s=float(patience))
        if pid_file.exists() and pid_file.read_text():
            break
    worker = int(pid_file.read_text())
    assert any(_gone(worker) or time.sleep(0.1) for _ in range(100))


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_missing_interpreter_is_named(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    with pytest.raises(UnavailableError, match=f"{PYTHON_VARIABLE} is not set.*make vllm"):
        vllm(target)
    monkeypatch.setenv(PYTHON_VARIABLE, str(tmp_path))
    with pytest.raises(UnavailableError, match="not an executable file; run: make vllm"):
        vllm(target)


def test_an_interpreter_without_vllm_says_so(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real runner, in an interpreter that has everything but vLLM."""
    monkeypatch.setenv(PYTHON_VARIABLE, sys.executable)
    with pytest.raises(UnavailableError, match=r"cannot be imported: ModuleNotFoundError.*make vllm"):
        vllm(target)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"levels": [4]}, r"levels=\[4\].*number of prompts, 3"),
        ({"levels": []}, r"levels=\[\]"),
        ({"levels": [0]}, r"levels=\[0\]"),
        ({"dtype": "float16"}, "dtype='float16'"),
        ({"runs": 0}, "runs=0"),
        ({"threads": 100_000}, "threads=100000: vLLM binds one core"),
        ({"num_speculative_tokens": 3}, "no effect without a drafter"),
        ({"prompts": []}, "prompts: at least one"),
    ],
)
def test_a_bad_vllm_job_is_refused(target: str, fake: Fake, change: dict[str, Any], expected: str) -> None:
    fake.install(GOOD)
    with pytest.raises(UsageError, match=expected):
        vllm(target, **change)
    assert not fake.record.exists()


@pytest.mark.parametrize(("kinds", "accepted"), [("ff", True), ("ss", True), ("sf", False)])
def test_only_drafters_with_layers_of_one_kind(
    target: str, fake: Fake, tmp_path: Path, kinds: str, accepted: bool
) -> None:
    from draftproof.engine.options import EngineOptions
    from draftproof.targets.open import wrap_model

    fake.install(GOOD)
    spec = drafter_spec(wrap_model(tiny_model("llama"), EngineOptions()), kinds)
    folder = tmp_path / "drafter"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(zlab_config(spec)))
    if not accepted:
        with pytest.raises(CapabilityError, match="both sliding and full layers"):
            vllm(target, drafter=str(folder))
        return
    vllm(target, drafter=str(folder))
    job = fake.seen["job"]
    assert job["num_speculative_tokens"] == 7 and job["drafter"] == str(folder) and job["max_model_len"] == 18
    with pytest.raises(UsageError, match="num_speculative_tokens=8"):
        vllm(target, drafter=str(folder), num_speculative_tokens=8)


# ---------------------------------------------------------------------------------------------------- shared


def test_a_child_that_does_not_start() -> None:
    with pytest.raises(UnavailableError, match="does not start"):
        run_child(["/no/such/program"], {}, peer="p", env={}, timeout_s=5, remedy="")


def test_prompts_become_plain_lists() -> None:
    assert check_prompts([(1, 2), range(2)]) == [[1, 2], [0, 1]]


def test_peers_for_many_import_without_torch() -> None:
    program = (
        "import sys, draftproof.bench.peers.transformers_batch, draftproof.bench.peers.vllm_cpu\n"
        "import draftproof.bench.peers.vllm_runner\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
