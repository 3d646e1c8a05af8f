"""llama.cpp from outside: its converter and its server, greedy and with float32 caches, one request at a time."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from draftproof.errors import UnavailableError
from draftproof.proof.runtime import prometheus

START_S, ANSWER_S, CONVERT_S = 300.0, 300.0, 900.0
CONTEXT = 1024
NAMES = {
    "rounds": "spec_decode_num_drafts_total",
    "drafted": "spec_decode_num_draft_tokens_total",
    "accepted": "spec_decode_num_accepted_tokens_total",
}
AS_IT_IS = "as it is"
RENAMED = "architecture renamed to DSparkDraftModel, the converter's class that maps a reduced vocabulary; same weights"


@dataclass(frozen=True)
class Answers:
    """Per prompt the tokens, and [drafted, accepted] tokens as the server counted them; its /metrics and its log."""

    tokens: list[list[int]]
    counted: list[list[int]]
    metrics: str
    log: str


@dataclass(frozen=True)
class Converted:
    """``error``: the converter's last line about the files as they are, None if it took them. ``file`` None: it took
    them in no way that was tried."""

    file: Path | None
    error: str | None
    how: str


def converted(converter: Sequence[str], folder: Path, out: Path, target: Path | None) -> Converted:
    """A GGUF file in float32. A drafter that is refused is tried again under another architecture's name."""
    if target is None and out.is_file():
        return Converted(out, None, AS_IT_IS)
    error = _convert(converter, folder, out, target)
    if error is None:
        return Converted(out, None, AS_IT_IS)
    if target is None:
        return Converted(None, error, AS_IT_IS)
    with tempfile.TemporaryDirectory() as other:
        again = _convert(converter, _renamed(folder, Path(other) / folder.name), out, target)
    return Converted(None if again else out, error, again or RENAMED)


def _convert(converter: Sequence[str], folder: Path, out: Path, target: Path | None) -> str | None:
    """The last line of complaint, None if the file was written."""
    command = [*converter, str(folder), "--outtype", "f32", "--outfile", str(out)]
    command += ["--target-model-dir", str(target)] if target is not None else []
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CONVERT_S)
    if done.returncode == 0:
        return None
    out.unlink(missing_ok=True)
    return (done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}").splitlines()[-1]


def _renamed(folder: Path, place: Path) -> Path:
    """The same drafter for the converter's DSpark class. That class writes d2t as the runtime wants it; the runtime
    takes a file without a Markov head for plain DFlash."""
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["DSparkDraftModel"], "sample_from_anchor": False}
    place.mkdir()
    (place / "config.json").write_text(json.dumps(config))
    (place / "model.safetensors").symlink_to((folder / "model.safetensors").resolve())
    return place


def counters(metrics: str) -> dict[str, Any]:
    """The server's own totals, rounds that accepted at least 1, 2, … tokens among them."""
    samples = prometheus.parse(metrics, "/metrics").samples
    found: dict[str, Any] = {key: round(samples[f"llamacpp:{name}", ()]) for key, name in NAMES.items()}
    each = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
    place = {int(dict(labels)["position"]): round(value) for (name, labels), value in samples.items() if name == each}
    return found | {"accepted_at_least": [place[i] for i in sorted(place)]}


class GreedyServer:
    """A llama-server while the block lasts; ``drafter`` None: without one."""

    def __init__(self, program: Path, target: Path, drafter: Path | None, threads: int, drafts: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.command = [str(program), "-m", str(target), "--host", "127.0.0.1", "--port", str(port), "--metrics"]
        self.command += ["-c", str(CONTEXT), "-np", "1", "-t", str(threads), "-tb", str(threads)]
        self.command += ["-ctk", "f32", "-ctv", "f32"]
        if drafter is not None:
            self.command += ["-md", str(drafter), "--spec-type", "draft-dflash", "--spec-draft-n-max", str(drafts)]
            self.command += ["-ctkd", "f32", "-ctvd", "f32", "-td", str(threads), "-tbd", str(threads)]
        self.log = tempfile.NamedTemporaryFile("w+", prefix="llama-server-", suffix=".log", errors="replace")  # noqa: SIM115

    def __enter__(self) -> GreedyServer:
        try:
            self.process = subprocess.Popen(self.command, stdout=self.log, stderr=subprocess.STDOUT)
        except OSError as error:
            raise UnavailableError(f"{self.command[0]} does not start: {error.strerror or error}") from None
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise UnavailableError(f"llama-server ended with status {self.process.returncode}: {self._said()}")
            try:
                self._get("/health")
                return self
            except OSError:  # not listening yet, or 503 while the model loads
                time.sleep(0.3)
        self.process.kill()
        raise UnavailableError(f"llama-server is not ready after {START_S:.0f} s; it said: {self._said()}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def answer(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Answers:
        tokens, counted = [], []
        for ids in prompts:
            body = {"prompt": list(ids), "n_predict": max_tokens, "temperature": 0.0, "cache_prompt": False}
            got = json.loads(self._get("/completion", body | {"return_tokens": True}))
            tokens.append(list(got["tokens"]))
            timings: dict[str, Any] = got["timings"]
            counted.append([timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)])
        return Answers(tokens, counted, self._get("/metrics"), self.logged())

    def logged(self) -> str:
        return Path(self.log.name).read_text(errors="replace")

    def _get(self, path: str, body: dict[str, Any] | None = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as response:
                return str(response.read().decode())
        except urllib.error.HTTPError as error:
            if body is None:
                raise
            said = error.read().decode(errors="replace")[:200]
            raise UnavailableError(f"llama-server {path}: HTTP {error.code}: {said}") from None

    def _said(self) -> str:
        lines = [line for line in self.logged().splitlines() if line.strip()]
        return lines[-1] if lines else "nothing"


def served(server: GreedyServer, ids: Sequence[Sequence[int]], max_tokens: int, stem: Path) -> Answers:
    """The server's answers, kept beside ``stem``: an interrupted run goes on where it was."""
    kept = stem.with_name(f"{stem.name}-{len(ids)}x{max_tokens}.json")
    if kept.is_file():
        return Answers(**json.loads(kept.read_text()))
    with server:
        answers = server.answer(ids, max_tokens)
    kept.write_text(json.dumps(asdict(answers)))
    return answers
