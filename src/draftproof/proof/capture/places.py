"""Where a command is captured: on this machine, or on another one over the user's own ssh."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from draftproof.errors import UnavailableError, UsageError
from draftproof.proof.capture import carry
from draftproof.proof.capture.manifest import MANIFEST
from draftproof.proof.capture.recorder.settings import Settings

STOP_SECONDS = 30.0
MARK = b"\ndraftproof: from here on\n"  # what a login script prints lies before it
SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15")


class Place(Protocol):
    def start(self, command: Sequence[str], settings: Settings) -> subprocess.Popen[bytes]:
        """Begin the command with the plugin in its way; its output stays the user's."""
        ...

    def manifest(self) -> dict[str, Any] | None:
        """Of the newest capture so far."""
        ...

    def stop(self, child: subprocess.Popen[bytes]) -> None:
        """End the command and all it started."""
        ...

    def fetch(self) -> Path | None:
        """The captures' folder on this machine; None if there is none."""
        ...

    def close(self) -> None:
        """Take the plugin away again."""
        ...


class Here:
    """``folder`` receives the captures."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plugin = Path(tempfile.mkdtemp(prefix="draftproof-plugin-"))

    def start(self, command: Sequence[str], settings: Settings) -> subprocess.Popen[bytes]:
        carry.unpack(self._plugin)
        env = {**os.environ, **settings.variables(), **allowed(os.environ)}
        env["PYTHONPATH"] = carry.python_path(str(self._plugin), os.environ.get("PYTHONPATH"))
        try:
            # A group of its own, so that the workers end with it.
            return subprocess.Popen(command, env=env, start_new_session=True)
        except OSError as error:
            raise UnavailableError(f"{command[0]}: cannot be started ({error.strerror})") from None

    def manifest(self) -> dict[str, Any] | None:
        found = sorted(self._folder.glob(f"*/{MANIFEST}"), key=lambda file: file.stat().st_mtime)
        return read_json(found[-1].read_text(encoding="utf-8")) if found else None

    def stop(self, child: subprocess.Popen[bytes]) -> None:
        for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, 5.0)):
            if child.poll() is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(seconds)

    def fetch(self) -> Path | None:
        return self._folder if any(self._folder.glob(f"*/{MANIFEST}")) else None

    def close(self) -> None:
        shutil.rmtree(self._plugin, ignore_errors=True)


class There:
    """``host``: as the user's ssh knows it. Everything there lies in one temporary folder, which goes at the end."""

    def __init__(self, host: str, folder: Path) -> None:
        if host.startswith("-") or not host.strip():
            raise UsageError(f"--ssh {host!r} is no host name")
        self._host, self._folder = host, folder
        made = self._run("d=$(mktemp -d /tmp/draftproof-XXXXXXXX) && chmod 700 $d && tar xf - -C $d && echo $d", pack())
        if not made.strip():
            raise UnavailableError(f"--ssh {host}: it ran no shell command; is its login shell a real one?")
        self._remote = made.decode().strip()

    def start(self, command: Sequence[str], settings: Settings) -> subprocess.Popen[bytes]:
        remote = shlex.quote(self._remote)
        variables = Settings(f"{self._remote}/captures", settings.rounds, settings.bytes, redact=settings.redact)
        words = [f"{name}={shlex.quote(value)}" for name, value in variables.variables().items()]
        path = f'PYTHONPATH={remote}/plugin"${{PYTHONPATH:+:$PYTHONPATH}}"'
        # setsid where there is one, so that the group's number is the one that is noted.
        script = f"echo $$ > {remote}/pid; export {' '.join(words)} {path}; exec {shlex.join(command)}"
        line = f"if command -v setsid >/dev/null; then exec setsid -w sh -c {shlex.quote(script)}; else {script}; fi"
        return subprocess.Popen([*SSH, "--", self._host, line], stdin=subprocess.DEVNULL)

    def manifest(self) -> dict[str, Any] | None:
        found = self._run(f"ls -t {self._remote}/captures/*/{MANIFEST} 2>/dev/null | head -1 | xargs -r cat", b"")
        return read_json(found.decode("utf-8", "replace")) if found.strip() else None

    def stop(self, child: subprocess.Popen[bytes]) -> None:
        for name, seconds in (("TERM", STOP_SECONDS), ("KILL", 5.0)):
            if child.poll() is not None:
                return
            self._run(
                f"p=$(cat {self._remote}/pid); kill -{name} -- -$p 2>/dev/null || kill -{name} $p", b"", check=False
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(seconds)
        child.kill()

    def fetch(self) -> Path | None:
        data = self._run(f"cd {self._remote} && [ -d captures ] && tar cf - captures || true", b"")
        if not data:
            return None
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder) as staging:
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                archive.extractall(staging, filter="data")
            for one in (Path(staging) / "captures").iterdir():
                shutil.move(str(one), self._folder / one.name)
        return self._folder

    def close(self) -> None:
        self._run(f"rm -rf {self._remote}", b"", check=False)

    def _run(self, line: str, data: bytes, *, check: bool = True) -> bytes:
        marked = f"printf %s {shlex.quote(MARK.decode())}; {line}"
        try:
            done = subprocess.run([*SSH, "--", self._host, marked], input=data, capture_output=True)
        except OSError as error:
            raise UnavailableError(f"ssh: {error.strerror}") from None
        if check and done.returncode != 0:
            said = (done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}").splitlines()[-1]
            raise UnavailableError(f"--ssh {self._host}: {said}")
        return done.stdout.partition(MARK)[2]


def pack() -> bytes:
    """The plugin as a tar archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, text in carry.sources().items():
            data = text.encode()
            entry = tarfile.TarInfo(f"plugin/{name}")
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def allowed(env: Mapping[str, str]) -> dict[str, str]:
    """Where the user names the plugins that vLLM may load, ours is one more."""
    named = env.get("VLLM_PLUGINS")
    return {} if named is None else {"VLLM_PLUGINS": ",".join(filter(None, [named, carry.PACKAGE]))}


def read_json(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None
