"""A real sshd on loopback with a key of its own, and an ssh that knows its hosts."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
TOOLS = SSHD is not None and shutil.which("ssh") is not None and shutil.which("ssh-keygen") is not None
WHY_NOT = "needs openssh-server and openssh-client"


class Server:
    """``config``: an ssh configuration whose hosts all lead here. ``process``: the listening sshd."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, _free_port()
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        shutil.copy(folder / "user.pub", folder / "authorized_keys")
        self.write_config({})

    def write_config(self, forced: dict[str, str]) -> None:
        """``forced``: host name → command that its sshd runs in place of what the client asks for (by a Match on the
        name that the client sends along)."""
        lines = ["Host *", "  HostName 127.0.0.1", f"  Port {self.port}", f"  IdentityFile {self.folder / 'user'}"]
        lines += ["  IdentitiesOnly yes", "  StrictHostKeyChecking no", "  UserKnownHostsFile /dev/null"]
        lines += ["  LogLevel ERROR", "  SetEnv DRAFTPROOF_HOST=%n"]
        hosts = [f"Host {name}\n  SetEnv DRAFTPROOF_HOST={name}" for name in forced]
        (self.folder / "config").write_text("\n".join([*hosts, *lines]) + "\n")
        script = [f"  {name}) {command};;" for name, command in forced.items()]
        body = ["#!/bin/sh", 'case "$DRAFTPROOF_HOST" in', *script, "esac", 'exec sh -c "$SSH_ORIGINAL_COMMAND"']
        (self.folder / "forced").write_text("\n".join(body) + "\n")
        (self.folder / "forced").chmod(0o700)

    def options(self) -> list[str]:
        given = {
            "Port": self.port,
            "ListenAddress": "127.0.0.1",
            "HostKey": self.folder / "host",
            "AuthorizedKeysFile": self.folder / "authorized_keys",
            "PidFile": self.folder / "pid",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "PermitRootLogin": "yes",
            "AcceptEnv": "DRAFTPROOF_HOST",
            "ForceCommand": self.folder / "forced",
        }
        return [word for name, value in given.items() for word in ("-o", f"{name}={value}")]


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    Path("/run/sshd").mkdir(parents=True, exist_ok=True)  # where sshd drops its privileges
    assert SSHD is not None
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", "/dev/null", *server.options()], stderr=subprocess.PIPE)
    try:
        _wait(server.port, process)
        yield server
    finally:
        process.terminate()
        process.communicate()


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(100):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    raise AssertionError("sshd does not listen")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
