"""A small OpenAI-compatible server with a drafter that can be broken in known ways, and with counters."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

K = 4
COUNTED = ("drafts", "accepted", "tokens", "hits")
WORDS = [f"word{i}" for i in range(128)]


@dataclass
class Faults:
    """What is wrong. ``length``: tokens per draft where nothing is; ``refuse``: the first n requests get a 429."""

    length: float = 3.5
    cached_length: float | None = None
    many_length: float | None = None
    prefix_cache: bool = True
    repeat: bool = False
    refuse: int = 0
    html: bool = False
    cut_stream: bool = False
    no_grammar: bool = False
    key: str | None = None
    counters: bool = True
    text_shift: int = 0
    delay: float = 0.0
    stream_drops: int = 0
    stream_ends: str = "length"
    usage_more: int = 0
    stream_usage_more: int = 0
    most_tokens: int | None = None
    retry_after: str = "0.01"


@dataclass
class State:
    faults: Faults
    lock: threading.Lock = field(default_factory=threading.Lock)
    seen: set[str] = field(default_factory=set)
    requests: list[dict[str, Any]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    counts: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("drafts", "accepted", "tokens", "hits"), 0.0)
    )


@contextmanager
def serving(faults: Faults) -> Iterator[tuple[str, State]]:
    state = State(faults)
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: State

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if not self._allowed():
            return
        if self.path == "/v1/models":
            limit = {"max_model_len": self.state.faults.most_tokens} if self.state.faults.most_tokens else {}
            return self._send(200, json.dumps({"data": [{"id": "tiny", **limit}]}))
        if not self.state.faults.counters:
            return self._send(404, "{}")
        c = self.state.counts
        self._send(
            200,
            f"vllm:spec_decode_num_drafts_total {c['drafts']}\n"
            f"vllm:spec_decode_num_draft_tokens_total {c['drafts'] * K}\n"
            f"vllm:spec_decode_num_accepted_tokens_total {c['accepted']}\n"
            f"vllm:generation_tokens_total {c['tokens']}\n"
            f"vllm:prefix_cache_hits_total {c['hits']}\n"
            f"vllm:prefix_cache_queries_total {c['tokens'] + c['hits']}\n",
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        state, faults = self.state, self.state.faults
        if not self._allowed():
            return
        if faults.html:
            return self._send(200, "<html>proxy</html>")
        with state.lock:
            state.requests.append(body)
            if len(state.requests) <= faults.refuse:
                return self._send(429, "{}", {"Retry-After": faults.retry_after})
            state.running += 1
            state.most_running = max(state.most_running, state.running)
            many = state.running > 1
        if faults.delay:
            threading.Event().wait(faults.delay)
        try:
            self._answer(body, many)
        finally:
            with state.lock:
                state.running -= 1

    def _answer(self, body: dict[str, Any], many: bool) -> None:
        state, faults = self.state, self.state.faults
        if "response_format" in body and faults.no_grammar:
            return self._send(400, json.dumps({"error": {"message": "grammar is not supported with speculation"}}))
        prompt = body["messages"][0]["content"]
        with state.lock:
            hit = prompt in state.seen and len(prompt) > 1000 and faults.prefix_cache
            state.seen.add(prompt)
            length = faults.length
            if hit and faults.cached_length is not None:
                length = faults.cached_length
            if many and faults.many_length is not None:
                length = faults.many_length
            drafts = 128 / length
            state.counts["drafts"] += drafts
            state.counts["accepted"] += drafts * (length - 1)
            state.counts["tokens"] += 128
            state.counts["hits"] += len(prompt) / 4 if hit else 0
        words = (
            ["again and again it goes"] * 26
            if faults.repeat
            else WORDS[faults.text_shift :] + WORDS[: faults.text_shift]
        )
        text = json.dumps({"summary": "s", "steps": []}) if "response_format" in body else " ".join(words)
        if faults.most_tokens is not None and len(prompt) // 4 > faults.most_tokens:
            said = f"This model's maximum context length is {faults.most_tokens} tokens"
            return self._send(400, json.dumps({"error": {"message": said}}))
        more = faults.stream_usage_more if body.get("stream") else 0
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": 128 + faults.usage_more + more}
        if not body.get("stream"):
            choice = {"message": {"content": text}, "finish_reason": "length"}
            return self._send(200, json.dumps({"choices": [choice], "usage": usage}))
        parts = [{"choices": [{"delta": {"content": text[i : i + 40]}}]} for i in range(0, len(text), 40)]
        del parts[1 : 1 + faults.stream_drops]
        if not faults.cut_stream:
            parts += [
                {"choices": [{"delta": {}, "finish_reason": faults.stream_ends}]},
                {"choices": [], "usage": usage},
            ]
        lines = "".join(f"data: {json.dumps(part)}\n\n" for part in parts)
        self._send(200, lines + ("" if faults.cut_stream else "data: [DONE]\n\n"))

    def _allowed(self) -> bool:
        key = self.state.faults.key
        if key is None or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self._send(401, "{}")
        return False

    def _send(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        payload = text.encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        with suppress(BrokenPipeError):  # who asked may not have waited
            self.wfile.write(payload)
