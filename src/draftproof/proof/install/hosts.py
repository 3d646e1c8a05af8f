"""Where the probe is sent, and what comes back: a whole report, or the reason why there is none."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from draftproof.proof.install.probe import wire

LEVELS = ("provenance", "integrity", "importability", "source", "behaviour")
GRACE = 3.0  # seconds after --timeout before a silent process is ended
Progress = Callable[["Host", dict[str, Any]], None]


@dataclass(frozen=True)
class Host:
    """``ssh``: destination as the user's ssh knows it, None for this machine; ``python``: interpreter there."""

    ssh: str | None = None
    python: str | None = None
    prefix: str | None = None

    @property
    def label(self) -> str:
        where = self.ssh or self.prefix or self.python or "here"
        return f"{where}:{self.python}" if self.ssh and self.python else where

    def command(self, seconds: float) -> list[str]:
        if self.ssh is None:
            return [self.python or sys.executable, "-"]
        # BatchMode: nobody is there to type a password; everything else is the user's own configuration.
        options = ["-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={max(1, int(min(seconds, 30)))}"]
        options += ["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
        return ["ssh", *options, "--", self.ssh, f"exec {shlex.quote(self.python or 'python3')} -"]


@dataclass(frozen=True)
class Wish:
    """What is asked of every host. ``engine`` None: whatever known engine is installed there."""

    engine: str | None = None
    levels: tuple[str, ...] = LEVELS
    seconds: float = 120.0
    drafter: dict[str, Any] | None = None


@dataclass(frozen=True)
class Answer:
    """``report`` is None when there is none: then ``failure`` names the kind ("unreachable", "no_python", "timeout",
    "dropped") and ``says`` the reason in one line."""

    host: Host
    report: dict[str, Any] | None = None
    failure: str = ""
    says: str = ""
    noise: tuple[str, ...] = field(default=())


def ask(hosts: Sequence[Host], wish: Wish, progress: Progress = lambda *_: None) -> list[Answer]:
    """All hosts at once, answers in their order."""
    with ThreadPoolExecutor(max_workers=max(1, min(32, len(hosts)))) as pool:
        return list(pool.map(lambda host: _ask(host, wish, progress), hosts))


def sources() -> dict[str, str]:
    """The probe's modules, name → text."""
    folder = resources.files("draftproof.proof.install") / "probe"
    files = [f for f in folder.iterdir() if f.name.endswith(".py")]
    return {f.name[: -len(".py")]: f.read_text(encoding="utf-8") for f in files}


def script(host: Host, wish: Wish, mark: str) -> str:
    request = {
        "mark": mark,
        "seconds": wish.seconds,
        "engine": wish.engine,
        "prefix": host.prefix,
        "python_known": host.prefix is None or host.python is not None,
        "levels": list(wish.levels),
        "drafter": wish.drafter,
    }
    return wire.bundle(sources(), request)


def _ask(host: Host, wish: Wish, progress: Progress) -> Answer:
    mark = f"draftproof-{secrets.token_hex(8)}"
    listener = wire.Listener(mark, lambda values: progress(host, values))
    try:
        child = subprocess.Popen(
            host.command(wish.seconds), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        name = host.command(wish.seconds)[0]
        return Answer(
            host, failure="no_python" if host.ssh is None else "unreachable", says=f"{name}: {error.strerror}"
        )
    complaints: list[str] = []
    threads = [threading.Thread(target=_send, args=(child, script(host, wish, mark)), daemon=True)]
    threads += [threading.Thread(target=_listen, args=(child.stdout, listener.line), daemon=True)]
    threads += [threading.Thread(target=_listen, args=(child.stderr, complaints.append), daemon=True)]
    for thread in threads:
        thread.start()
    late = False
    try:
        child.wait(wish.seconds + GRACE)
    except subprocess.TimeoutExpired:
        late = True
        child.kill()
        child.wait()
    for thread in threads:
        thread.join(2.0)
    return _answer(host, wish, listener, complaints, child.returncode, late)


def _send(child: subprocess.Popen[bytes], text: str) -> None:
    assert child.stdin is not None
    with contextlib.suppress(OSError), child.stdin:  # it may be gone already: its exit code and stderr say why
        child.stdin.write(text.encode("ascii"))


def _listen(stream: Any, hear: Callable[[str], None]) -> None:
    with stream:
        for line in iter(lambda: stream.readline(64 << 20), b""):
            hear(line.decode("utf-8", "replace"))


def _answer(host: Host, wish: Wish, listener: wire.Listener, complaints: list[str], code: int, late: bool) -> Answer:
    noise = tuple(listener.noise)
    if listener.value is not None:
        return Answer(host, listener.value, noise=noise)
    said = [line.strip() for line in complaints if line.strip()]
    last = said[-1][:300] if said else ""
    if late:
        return Answer(
            host, None, "timeout", f"no answer within {wish.seconds:.0f} s" + (f" ({last})" if last else ""), noise
        )
    if listener.begun or listener.broken:
        return Answer(host, None, "dropped", f"the answer ended half-way ({last or f'exit code {code}'})", noise)
    if code == 127 or "not found" in last or "No such file" in last:
        return Answer(host, None, "no_python", last or f"{host.python or 'python3'} was not found", noise)
    if host.ssh is not None and code == 255:
        return Answer(host, None, "unreachable", last or "ssh ended with code 255", noise)
    return Answer(host, None, "dropped", f"it ended without an answer: {last or f'exit code {code}'}", noise)
