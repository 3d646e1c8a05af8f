"""What the server does when there is too much, too long, too slow, or nobody left to answer."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from typing import Any

import pytest

from draftproof.engine.types import TokensCommitted
from draftproof.errors import UnavailableError, UsageError
from draftproof.server.options import ServerOptions
from draftproof.server.serving import bind

from .world import Served, served, tiny_engine, wait_until

LONG = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "ignore_eos": True, "max_tokens": 900}


def raw(server: Served, body: Any, *, path: str = "/v1/chat/completions", length: int | None = None) -> socket.socket:
    """An open connection on which a request (or its beginning) has been sent."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(data) if length is None else length}\r\n\r\n".encode() + data)
    return connection


def slow_down(server: Served, seconds: float) -> None:
    """Make every step take at least this long, so that requests are still there when the test looks."""
    step = server.service.engine.step

    def slow() -> Any:
        time.sleep(seconds)
        return step()

    server.service.engine.step = slow  # type: ignore[method-assign]


def idle(server: Served) -> bool:
    engine = server.service.engine
    return engine.scheduler.idle and not engine.has_work and engine.pool.free_blocks == engine.pool.num_blocks


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_vanishes_is_forgotten_within_a_round(stream: bool) -> None:
    with served(tiny_engine("chain")) as server:
        slow_down(server, 0.02)
        connection = raw(server, LONG | {"stream": stream})
        assert wait_until(lambda: len(server.service.engine.scheduler.running) == 1)
        time.sleep(0.2)
        connection.close()
        assert wait_until(lambda: idle(server), 1.0)
        assert server.service.live.tokens < 900
        assert server.chat()["choices"][0]["finish_reason"] == "length"
        told = server.get("/metrics")[2]
        assert 'draftproof:requests_total{model_name="tiny",outcome="done"} 1.0' in told


def test_whoever_is_gone_takes_part_in_no_further_round() -> None:
    with served(tiny_engine("chain")) as server:
        slow_down(server, 0.01)
        log: list[str] = []
        step, release = server.service.engine.step, server.service.runner.release

        def told_step() -> Any:
            events = step()
            log.append("round" if any(isinstance(e, TokensCommitted) for e in events) else "nothing")
            return events

        def told_release(stream: Any) -> None:
            log.append("released")
            release(stream)

        server.service.engine.step = told_step  # type: ignore[method-assign]
        server.service.runner.release = told_release  # type: ignore[method-assign]
        connection = raw(server, LONG | {"stream": True})
        assert wait_until(lambda: log.count("round") > 3)
        connection.close()
        assert wait_until(lambda: "released" in log and idle(server))
        assert log[log.index("released") :].count("round") <= 1, "the round under way, and no other"


def test_who_comes_first_is_served_first() -> None:
    """However long the others' answers and however many of them: nobody is overtaken or starved."""
    with served(tiny_engine("chain", max_num_seqs=2)) as server:
        slow_down(server, 0.005)
        ended: list[int] = []

        def one(i: int) -> None:
            server.chat(max_tokens=40, n=2, ignore_eos=True, messages=[{"role": "user", "content": f"number {i}"}])
            ended.append(i)

        threads = [threading.Thread(target=one, args=(i,)) for i in range(5)]
        for i, thread in enumerate(threads):
            thread.start()
            assert wait_until(lambda i=i: server.service.runner.answers + 2 * len(ended) >= 2 * (i + 1))
        for thread in threads:
            thread.join(60)
        assert ended == [0, 1, 2, 3, 4]


def test_a_full_queue_is_429_with_a_time_to_come_back() -> None:
    with served(tiny_engine(None, max_num_seqs=1), max_queue=1) as server:
        slow_down(server, 0.02)
        held = [raw(server, LONG | {"stream": True}) for _ in range(2)]
        assert wait_until(lambda: server.service.runner.answers == 2)
        status, headers, told = server.post("/v1/chat/completions", LONG)
        assert status == 429 and int(headers["retry-after"]) >= 1 and told["error"]["type"] == "rate_limit_error"
        assert server.post("/v1/completions", {"prompt": "x", "n": 3})[0] == 400  # could never run
        for connection in held:
            connection.close()
        assert wait_until(lambda: server.post("/v1/chat/completions", LONG | {"max_tokens": 2})[0] == 200)


@pytest.mark.parametrize("stream", [True, False])
def test_a_deadline_ends_a_request(stream: bool) -> None:
    with served(tiny_engine("chain"), request_timeout_s=0.5) as server:
        slow_down(server, 0.02)
        began = time.monotonic()
        status, _, told = server.post("/v1/chat/completions", LONG | {"stream": stream, "timeout_s": 60})
        assert 0.4 < time.monotonic() - began < 5
        if stream:
            error = json.loads(told.split("\n\n")[-3].removeprefix("data: "))
            assert status == 200 and error["error"]["code"] == "deadline" and told.endswith("data: [DONE]\n\n")
        else:
            assert status == 504 and told["error"]["code"] == "deadline"
        assert wait_until(lambda: idle(server), 1.0)


def test_a_deadline_of_its_own_is_no_fault_of_the_server() -> None:
    with served(tiny_engine("chain")) as server:
        for seconds in (0.05, 5e-324):
            status, _, told = server.post("/v1/chat/completions", LONG | {"timeout_s": seconds})
            assert status == 408 and told["error"]["code"] == "deadline" and told["error"]["param"] == "timeout_s"
        assert wait_until(lambda: idle(server), 1.0)


def test_bodies_too_large_too_slow_or_cut_off() -> None:
    with served(tiny_engine(None), max_body_mb=0.01, body_timeout_s=0.3) as server:
        big = {"messages": [{"role": "user", "content": "x" * 20_000}]}
        assert server.post("/v1/chat/completions", big)[0] == 413
        connection = raw(server, b'{"messages"', length=500)
        assert b"408" in connection.recv(1000).split(b"\r\n")[0]
        connection.close()
        host, port = server.url.removeprefix("http://").split(":")
        chunked = socket.create_connection((host, int(port)))
        chunked.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                        b"Transfer-Encoding: chunked\r\n\r\n")  # fmt: skip
        for _ in range(20):
            try:
                chunked.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
            except OSError:
                break
        assert b"413" in chunked.recv(1000).split(b"\r\n")[0]
        chunked.close()
        raw(server, b"{", length=100).close()
        assert server.chat()["choices"]


def test_only_json_and_only_from_here() -> None:
    with served(tiny_engine(None)) as server:
        body = json.dumps(LONG | {"max_tokens": 1}).encode()
        path = "/v1/chat/completions"
        assert server.post(path, body, Content_Type="text/plain")[0] == 415
        assert server.post(path, body, Origin="https://evil.example")[0] == 403
        assert server.post(path, body, Origin=server.url)[0] == 200


def test_a_key_is_asked_for_and_never_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    options = ServerOptions(api_key="s3cret-key")
    assert "s3cret" not in repr(options)
    with served(tiny_engine(None), api_key="s3cret-key") as server:
        for key in (None, "Bearer", "Bearer s3cret-ke", "Basic s3cret-key", "Bearer s3cret-key2", "bearer s3cret-key"):
            sent = {} if key is None else {"Authorization": key}
            status, _, told = server.get("/v1/models", **sent)
            assert status == (200 if key == "bearer s3cret-key" else 401)
            assert "s3cret" not in json.dumps(told)
        server.post("/v1/chat/completions", {"nonsense": 1}, Authorization="Bearer s3cret-key")
        assert "s3cret" not in server.get("/metrics")[2]
    assert "s3cret" not in caplog.text


def test_draining_lets_running_answers_end() -> None:
    with served(tiny_engine("chain")) as server:
        slow_down(server, 0.01)
        told: list[Any] = []
        running = threading.Thread(target=lambda: told.append(server.chat(**LONG | {"max_tokens": 200})))
        running.start()
        assert wait_until(lambda: len(server.service.engine.scheduler.running) == 1)
        server.server.handle_exit(15, None)
        assert not server.service.ready
        running.join(20)
        assert told[0]["usage"]["completion_tokens"] == 200
        server.thread.join(10)
        assert not server.thread.is_alive()


def test_half_a_body_does_not_hold_up_a_drain() -> None:
    with served(tiny_engine(None), drain_s=30.0) as server:
        connection = raw(server, b'{"messages"', length=500)
        time.sleep(0.3)  # its head has been read
        began = time.monotonic()
        server.server.handle_exit(15, None)
        assert b" 503 " in connection.recv(1000).split(b"\r\n")[0]
        server.thread.join(20)
        assert not server.thread.is_alive() and time.monotonic() - began < 15  # a body may take 20 s otherwise
        connection.close()


def test_a_drain_has_an_end() -> None:
    with served(tiny_engine("chain"), drain_s=1.0) as server:
        slow_down(server, 0.05)
        connection = raw(server, LONG | {"stream": True})
        assert wait_until(lambda: len(server.service.engine.scheduler.running) == 1)
        began = time.monotonic()
        server.server.handle_exit(15, None)
        server.thread.join(15)
        assert not server.thread.is_alive() and time.monotonic() - began < 10
        connection.close()


def test_a_defect_in_a_step_ends_its_requests_and_nothing_else() -> None:
    with served(tiny_engine("chain")) as server:
        forward, left = server.service.engine.target.forward, [1]

        def failing(*arguments: Any, **options: Any) -> Any:
            if left and left.pop():
                raise ZeroDivisionError("on purpose")
            return forward(*arguments, **options)

        server.service.engine.target.forward = failing  # type: ignore[method-assign]
        status, _, told = server.post("/v1/chat/completions", LONG | {"max_tokens": 5})
        assert status == 500 and told["error"]["type"] == "server_error"
        assert server.chat()["choices"][0]["finish_reason"] == "length"
        assert wait_until(lambda: idle(server))


def test_a_tiny_pool_preempts_and_loses_nothing() -> None:
    """Twelve streams in memory for about two: everyone gets the answer that it gets alone."""
    asked = [LONG | {"messages": [{"role": "user", "content": f"number {i}"}], "max_tokens": 150} for i in range(12)]
    with served(tiny_engine("chain")) as server:
        alone = [server.chat(**body)["choices"][0]["message"]["content"] for body in asked]
    with served(tiny_engine("chain", kv_cache_gb=0.0002, max_model_len=400, block_size=8)) as server:
        told: dict[int, str] = {}

        def one(i: int) -> None:
            told[i] = server.chat(**asked[i])["choices"][0]["message"]["content"]

        threads = [threading.Thread(target=one, args=(i,)) for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [told[i] for i in range(12)] == alone
        assert "num_preemptions_total" in server.get("/metrics")[2]
        assert server.service.metrics.registry.get_sample_value(
            "draftproof:num_preemptions_total", {"model_name": "tiny"}
        )
        assert wait_until(lambda: idle(server))


def test_idle_connections_do_not_matter() -> None:
    with served(tiny_engine(None)) as server:
        host, port = server.url.removeprefix("http://").split(":")
        held = [socket.create_connection((host, int(port))) for _ in range(300)]
        assert server.chat()["choices"]
        for connection in held:
            connection.close()


def test_settings_are_checked() -> None:
    for wrong in ({"port": 70_000}, {"max_queue": -1}, {"drain_s": 0.0}, {"api_key": " "}):
        with pytest.raises(UsageError):
            ServerOptions(**wrong)
    with bind(ServerOptions(port=0)) as taken:
        assert taken.getsockname()[0] == "127.0.0.1"
        taken.listen()
        with pytest.raises(UnavailableError, match="cannot listen on"):
            bind(ServerOptions(port=taken.getsockname()[1]))
