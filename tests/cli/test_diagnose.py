"""``draftproof diagnose``: evidence in, a card, JSON, a case or a picture out; one line for what cannot be meant."""

from __future__ import annotations

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from draftproof.proof.case import read_case
from proof.runtime.test_logs import spec
from proof.runtime.test_prometheus import vllm


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "server.log"
    file.write_text("\n".join(["noise", *(spec(second=i) for i in range(5))]))
    return file


def test_a_log_gives_a_healthy_verdict(shell, log: Path) -> None:
    assert shell("diagnose", "--log", str(log), "--workload", "method=dflash") == 0
    assert shell.out.startswith("HEALTHY")
    assert "4.28 (4.1" in shell.out and "from 1,460 drafts" in shell.out


def test_json_has_a_schema_and_raw_figures(shell, log: Path) -> None:
    assert shell("diagnose", "--log", str(log), "--json", "--workload", "method=dflash", "--launch", LAUNCH) == 1
    found = json.loads(shell.out)
    assert found["schema_version"] == "draftproof.diagnose/1"
    assert found["verdict"] == "faulty", "this release taps one layer early"
    assert found["acceptance"]["length"]["of"] == 1460
    assert {"code", "probability", "remedy", "probe", "evidence"} <= set(found["causes"][0])


LAUNCH = (
    "docker run vllm/vllm-openai:v0.20.1 --model Qwen/Qwen3-8B --speculative-config "
    '\'{"method":"dflash","model":"z-lab/Qwen3-8B-DFlash-b16","num_speculative_tokens":5}\''
)


def test_what_was_gathered_is_saved_and_gives_the_same_answer_again(shell, log: Path, tmp_path: Path) -> None:
    saved = tmp_path / "new" / "case.json"
    first = shell("diagnose", "--log", str(log), "--engine", "vllm==0.25.1", "--save", str(saved), "--json")
    verdict = json.loads(shell.out)
    assert read_case(saved).engine.version == "0.25.1"
    assert shell("diagnose", "--case", str(saved), "--json") == first
    assert json.loads(shell.out)["causes"] == verdict["causes"]


def test_two_scrapes(shell, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(vllm(100, 150, 80))
    (tmp_path / "b").write_text(vllm(1100, 2650, 930))
    code = shell("diagnose", "--metrics", str(tmp_path / "a"), "--metrics", str(tmp_path / "b"), "--json")
    assert code in (0, 1)
    assert json.loads(shell.out)["acceptance"]["length"]["value"] == 3.5


def test_too_little_cannot_be_told(shell, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(vllm(23, 44, 20))
    assert shell("diagnose", "--metrics", str(tmp_path / "a")) == 3
    assert "23 drafts are not evidence" in shell.out


def test_the_page_of_a_code(shell) -> None:
    assert shell("diagnose", "--explain", "acceptance_low") == 0
    assert "L(k)" in shell.out
    assert shell("diagnose", "--explain", "ACCEPTANCE_LOW", "--json") == 0
    assert json.loads(shell.out)["area"] == "RUNTIME"


def test_a_plot(shell, log: Path, tmp_path: Path) -> None:
    for name in ("a.png", "a.svg", "a.html"):
        shell("diagnose", "--log", str(log), "--plot", str(tmp_path / name))
        assert (tmp_path / name).stat().st_size > 10_000
    assert "<h1>" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "nothing to diagnose"),
        ("--explain LOW", "no such code"),
        ("--explain HEALTHY --case x", "--case has no effect with --explain"),
        ("--case none.json", "none.json"),
        ("--log none.log", "no such file"),
        ("--engine 0.25", "neither NAME==VERSION"),
        ("--launch 'rm x'", "no engine is started"),
        ("--workload temperature", "must be NAME=VALUE"),
        ("--workload tempreature=0", "unknown name"),
        ("--workload n=-1", "whole number"),
        ("--workload temperature=nan", "must be a number"),
        ("--interval 3 --case x", "--interval has no effect"),
        ("--api-key-env KEY --case x", "--api-key-env has no effect"),
    ],
)
def test_one_line_for_what_cannot_be_meant(shell, words: str, message: str) -> None:
    import shlex

    assert shell("diagnose", *shlex.split(words)) == 2
    assert message in shell.err and shell.err.count("\n") == 1


def test_a_log_without_drafts_is_not_healthy(shell, tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_text("INFO: started\n" * 10)
    assert shell("diagnose", "--log", str(tmp_path / "empty.log")) == 3
    assert "no line of vLLM, SGLang or llama.cpp" in shell.err


def test_a_server_that_refuses_costs_a_note_beside_a_log(shell, log: Path) -> None:
    assert shell("diagnose", "--metrics", "http://127.0.0.1:9/metrics") == 3
    assert shell("diagnose", "--log", str(log), "--metrics", "http://127.0.0.1:9/metrics", "--json") in (0, 1)
    assert "left out" in json.loads(shell.out)["notes"][0]


def test_the_key_goes_to_the_server_and_nowhere_else(shell, tmp_path: Path, monkeypatch) -> None:
    got: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(self.headers.get("Authorization"))
            self.send_response(401 if len(got) == 1 else 200)
            self.end_headers()
            self.wfile.write(vllm(900, 1800, 700).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("MY_KEY", "sk-very-secret-1")
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        saved = tmp_path / "case.json"
        assert shell("diagnose", "--metrics", url, "--api-key-env", "MY_KEY") == 3
        assert "HTTP 401" in shell.err and "very-secret" not in shell.err
        assert shell("diagnose", "--metrics", url, "--api-key-env", "MY_KEY", "--save", str(saved)) in (0, 1)
        server.shutdown()
    assert got == ["Bearer sk-very-secret-1"] * 2
    assert "very-secret" not in shell.out + saved.read_text()


def test_it_starts_without_torch_and_soon(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom draftproof.cli.main import main\n"
        "main(['diagnose', '--explain', 'HEALTHY'])\n"
        "from draftproof.proof.gathering import Sources, gather\nfrom draftproof.proof.diagnosis import report\n"
        "report(*gather(Sources(launch='vllm serve x')))\n"
        "print([n for n in ('torch', 'transformers', 'matplotlib', 'httpx') if n in sys.modules], file=sys.stderr)\n"
        "print(time.process_time(), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy, seconds = done.stderr.split("\n")[:2]
    assert heavy == "[]"
    assert float(seconds) < 3, "six times the usual half second of computing: something heavy is imported"
