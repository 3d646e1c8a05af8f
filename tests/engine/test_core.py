"""The hand-over between threads, and what is told when a pass fails."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from draftproof import Engine, SamplingParams
from draftproof.engine.types import RequestFinished
from support.tiny import naive_greedy, tiny_model

PROMPT = [3, 14, 15]


def finished(events: Any) -> list[tuple[str, str]]:
    return [(e.request_id, e.reason) for e in events if isinstance(e, RequestFinished)]


def during_the_next_pass(running: Engine, act: Any) -> None:
    """``act`` once while the target computes."""
    inner = running.target.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        running.target.forward = inner  # type: ignore[method-assign]
        act()
        return inner(*args, **kwargs)

    running.target.forward = forward  # type: ignore[method-assign]


def test_an_abort_that_comes_too_late_does_not_hit_the_next_request_of_that_name() -> None:
    running = Engine.from_model(tiny_model("llama"))
    running.add_request(PROMPT, SamplingParams(max_tokens=1), "a")
    during_the_next_pass(running, lambda: running.abort("a"))
    assert finished(running.step()) == [("a", "length")]
    running.add_request(PROMPT, SamplingParams(max_tokens=2), "a")
    events = [event for _ in range(2) for event in running.step()]
    assert finished(events) == [("a", "length")]


def fail() -> None:
    raise RuntimeError("a defect")


def test_a_pass_that_raises_still_tells_everybody_concerned() -> None:
    """The one who steps gets the exception; those whose requests it cost, or who aborted theirs, must not wait."""
    running = Engine.from_model(tiny_model("llama"))
    for name in "abc":
        running.add_request(PROMPT, SamplingParams(max_tokens=9), name)
    during_the_next_pass(running, lambda: running.abort("c"))
    running.step()
    during_the_next_pass(running, fail)
    with pytest.raises(RuntimeError, match="a defect"):
        running.step()
    assert running.has_work
    events = running.step()
    assert finished(events) == [("c", "abort"), ("a", "error"), ("b", "error")]
    assert "RuntimeError: a defect" in events[-1].detail  # type: ignore[union-attr]
    assert not running.has_work and running.pool.free_blocks == running.pool.num_blocks


def test_a_stream_ends_when_another_one_s_step_failed() -> None:
    running = Engine.from_model(tiny_model("llama"))
    streams = [running.stream(PROMPT, SamplingParams(max_tokens=9)) for _ in range(2)]
    for stream in streams:
        next(stream)
    during_the_next_pass(running, fail)
    with pytest.raises(RuntimeError, match="a defect"):
        list(streams[0])
    assert finished(streams[1])[0][1] == "error"
    assert running.generate(PROMPT, SamplingParams(max_tokens=9))[0].token_ids == naive_greedy(
        tiny_model("llama"), PROMPT, 9
    )


def test_a_stream_may_be_collected_at_any_moment() -> None:
    """Closing it aborts its request; the collector may do that in the midst of a hand-over."""
    running = Engine.from_model(tiny_model("llama"))
    stream = running.stream(PROMPT, SamplingParams(max_tokens=9))
    next(stream)

    def collect() -> None:
        with running.core._lock:
            stream.close()  # type: ignore[attr-defined]

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(timeout=20)
    assert not thread.is_alive()
    running.step()
    assert not running.has_work and running.scheduler.idle
