"""``draftproof serve`` as a process: ready line, signals, refusals."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.folders import save_target

pytest.importorskip("fastapi")
KEY = "never-to-be-seen"


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "draftproof.cli", "serve", "-m", str(folder), "--kv-cache-gb", "0.01", *arguments]
    environment = os.environ | {"DRAFTPROOF_API_KEY": KEY}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def request(url: str, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
    host = url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=30)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    told = json.loads(response.read())
    connection.close()
    return response.status, told


def test_a_server_starts_answers_and_drains(tmp_path: Path) -> None:
    process = start(save_target(tmp_path / "t"), "-d", "ngram", "--port", "0", "--json", "--served-model-name", "tiny")
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["schema_version"] == "draftproof.serve/1" and ready["model"] == "tiny"
        assert ready["url"].startswith("http://127.0.0.1:") and ready["engine"]["drafter"] == "ngram"
        assert request(ready["url"], "GET", "/ready")[0] == 200
        assert request(ready["url"], "GET", "/v1/models")[0] == 401
        body = {"prompt": "the cat", "max_tokens": 8, "temperature": 0}
        status, told = request(ready["url"], "POST", "/v1/completions", body, KEY)
        assert status == 200 and told["usage"]["completion_tokens"] == 8
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert KEY not in out + err and KEY not in json.dumps(ready) and "Traceback" not in err


def test_refusals_are_one_line(shell: Any) -> None:
    for arguments, wanted in (
        (["--port", "99999"], "port=99999 is out of range"),
        (["--max-queue", "-1"], "max_queue=-1 is out of range"),
        (["--num-speculative-tokens", "3"], "no effect without a --drafter"),
        (["--drain-s", "0"], "drain_s=0.0 is out of range"),
    ):
        assert shell("serve", "-m", "somewhere", *arguments) == 2
        assert wanted in shell.err and shell.err.count("\n") == 1
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert shell("serve", "-m", "somewhere", "--port", port) == 3
        assert f"cannot listen on 127.0.0.1:{port}" in shell.err
    assert not shell.engines
