"""A small model hub on loopback: what the hub's own client asks for, from a folder of repositories."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


class Hub:
    """``sent``: bytes of each file that left it; ``refusing``: the status that every request gets instead."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sent, self.refusing, self.endpoint = folder, dict[str, int](), 0, ""


@contextmanager
def serving(folder: Path) -> Iterator[Hub]:
    """``folder``/owner/name/… as repositories at one commit."""
    hub = Hub(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        if self.hub.refusing:
            return self._answer(self.hub.refusing, b"{}")
        if parts[:2] == ["api", "models"] and (repo := self.hub.folder / "/".join(parts[2:4])).is_dir():
            return self._api(repo, parts[4:])
        if len(parts) > 4 and parts[2] == "resolve":
            file = self.hub.folder.joinpath(*parts[:2], *parts[4:])
            if file.is_file():
                return self._file(file)
            code = "EntryNotFound" if file.parent.is_dir() else "RepoNotFound"
            return self._answer(404, b"", {"X-Error-Code": code})
        return self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def _api(self, repo: Path, rest: list[str]) -> None:
        files = [{"rfilename": p.name, "path": p.name, "type": "file", "size": 1, "oid": "0"} for p in repo.iterdir()]
        told: Any = {"id": "/".join(repo.parts[-2:]), "sha": COMMIT, "siblings": files}
        self._answer(200, json.dumps(files if rest[:1] == ["tree"] else told).encode())

    def _file(self, file: Path) -> None:
        data = file.read_bytes()
        headers = {"ETag": f'"{len(data)}-{hash(data) & 0xFFFFFFFF:x}"', "X-Repo-Commit": COMMIT}
        span = self.headers.get("Range", "").removeprefix("bytes=").split("-")
        if len(span) == 2 and span[0]:
            first, last = int(span[0]), min(int(span[1] or len(data) - 1), len(data) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            return self._answer(206, data[first : last + 1], headers, file.name)
        return self._answer(200, data, headers, file.name)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None, name: str = "") -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
            self.hub.sent[name] = self.hub.sent.get(name, 0) + len(body)
