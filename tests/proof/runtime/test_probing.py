"""Live probes against a server with known faults: the fault is named, a healthy server is not accused."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from draftproof.proof.runtime.endpoint import Answer, Ask, Endpoint
from draftproof.proof.runtime.probe_plan import Group, make_plan
from draftproof.proof.runtime.probing import Measured, against_whole, divergence, repeats
from proof.runtime.fake_server import Faults, serving


@pytest.fixture
def probe(shell, tmp_path: Path):
    def run(faults: Faults, *words: str) -> tuple[int, dict[str, Any], Any]:
        with serving(faults) as (url, state):
            raw = tmp_path / "raw.jsonl"
            more = ("--workload", "method=dflash n=4")
            code = shell("diagnose", "--endpoint", url, "--raw", str(raw), "--json", *more, *words)
            return code, json.loads(shell.out), state

    return run


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]):
    from draftproof.cli.main import main

    class Shell:
        out = err = ""

        def __call__(self, *words: str) -> int:
            code = main(list(words))
            self.out, self.err = capsys.readouterr()
            return code

    return Shell()


def codes(found: dict[str, Any]) -> set[str]:
    return {f["code"] for f in found["causes"] + found["other_findings"] if f["level"] != "low"}


def test_a_healthy_server(probe, tmp_path: Path) -> None:
    code, found, state = probe(Faults())
    assert (code, found["verdict"]) == (0, "healthy"), codes(found)
    assert found["acceptance"]["length"]["value"] == pytest.approx(3.5, abs=0.02)
    assert len(state.requests) <= 40 and state.most_running <= 4
    lines = [json.loads(line) for line in (tmp_path / "raw.jsonl").read_text().splitlines()]
    assert len(lines) == len(state.requests)


def test_drafts_lost_on_a_cache_hit(probe) -> None:
    code, found, _ = probe(Faults(cached_length=1.1))
    assert (code, found["verdict"]) == (1, "faulty")
    assert {"ACCEPTANCE_DROPS_ON_CACHE_HIT", "PREFIX_CACHE_DRAFT_KV"} <= codes(found)


def test_a_server_without_prefix_cache_has_no_hits_to_lose(probe) -> None:
    _, found, _ = probe(Faults(cached_length=1.1, prefix_cache=False))
    assert "PREFIX_CACHE_DRAFT_KV" not in codes(found)


def test_acceptance_that_falls_with_streams(probe) -> None:
    code, found, state = probe(Faults(many_length=1.5, delay=0.05))
    assert code == 1 and "ACCEPTANCE_DROPS_WITH_CONCURRENCY" in codes(found)
    assert 2 <= state.most_running <= 4


def test_a_plain_endpoint_shows_lost_losslessness_and_speed(probe) -> None:
    with serving(Faults(text_shift=3, counters=False)) as (plain, _):
        code, found, _ = probe(Faults(), "--plain-endpoint", plain, "--max-requests", "12")
    assert code == 1 and "OUTPUT_NOT_LOSSLESS" in codes(found)
    assert found["break_even"] is not None


def test_degenerate_output_is_seen(probe) -> None:
    _, found, _ = probe(Faults(repeat=True), "--max-requests", "6")
    assert found["verdict"] == "inconclusive", "the text is broken, why is not known"


def test_rate_limits_are_obeyed_and_requests_bounded(probe) -> None:
    code, found, state = probe(Faults(refuse=2), "--max-requests", "6", "--max-concurrency", "1")
    assert found["verdict"] == "healthy" and len(state.requests) == 8
    assert any("no room" in note for note in found["notes"]) and code == 0


@pytest.mark.parametrize("faults", [Faults(html=True), Faults(no_grammar=True), Faults(cut_stream=True)])
def test_bad_answers_are_partial_results(probe, faults: Faults) -> None:
    _, found, _ = probe(faults)
    words = {"html": "HTML page", "no_grammar": "grammar is not supported", "cut_stream": "cut"}
    wrong = next(name for name in words if getattr(faults, name))
    assert any(words[wrong] in note for note in found["notes"])
    assert found["verdict"] != "healthy" or wrong != "html"


@pytest.mark.parametrize(
    ("faults", "code", "verdict"),
    [
        (Faults(stream_drops=1), "STREAM_DIFFERS", "faulty"),
        (Faults(stream_ends="stop"), "STREAM_DIFFERS", "suspicious"),
        (Faults(usage_more=1), "USAGE_MISCOUNTED", "suspicious"),
        (Faults(stream_usage_more=3), "USAGE_MISCOUNTED", "suspicious"),
    ],
)
def test_what_reaches_the_client_is_checked(probe, faults: Faults, code: str, verdict: str) -> None:
    status, found, _ = probe(faults)
    assert (status, found["verdict"]) == (1, verdict) and code in codes(found)
    assert "STREAM_DIFFERS" not in codes(found) or code == "STREAM_DIFFERS"


def test_a_server_with_little_context_is_not_accused(probe) -> None:
    code, found, state = probe(Faults(most_tokens=900))
    assert (code, found["verdict"]) == (0, "healthy"), codes(found)
    assert max(len(body["messages"][0]["content"]) // 4 for body in state.requests) < 900


def test_a_stream_with_lost_pieces_is_told_from_another_text() -> None:
    def measured(text: str) -> Measured:
        return Measured(Group("x", "", (Ask("p"),)), [Answer(text=text, finish_reason="stop")])

    assert against_whole(measured("one two three"), measured("one three")) == {"streamed_lost": 1}
    assert against_whole(measured("one two three"), measured("one 2 three")) == {"streamed_differs": 1}
    assert against_whole(measured("one"), measured("one")) == {}


def test_a_server_that_asks_for_a_date_or_for_ever_is_waited_for_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("draftproof.proof.runtime.endpoint.time.sleep", slept.append)
    for asked, tries in (("99999", 1), ("Wed, 21 Oct 2099 07:28:00 GMT", 1), ("nonsense", 4), ("nan", 4), ("inf", 1)):
        slept.clear()
        with serving(Faults(refuse=9, retry_after=asked)) as (url, state):
            endpoint = Endpoint(url)
            assert "HTTP 429" in (endpoint.ask(Ask("x")).error or "")
            endpoint.close()
        assert len(state.requests) == tries and all(0 < seconds <= 60 for seconds in slept)


def test_a_key_is_sent_and_never_shown(shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "sk-do-not-show-me")
    with serving(Faults(key="sk-do-not-show-me")) as (url, _):
        words = ("--endpoint", url, "--max-requests", "6", "--raw", str(tmp_path / "raw"))
        assert shell("diagnose", *words) == 3
        assert "HTTP 401; give --api-key-env" in shell.err
        assert shell("diagnose", *words, "--api-key-env", "KEY", "--save", str(tmp_path / "case.json")) in (0, 3)
    everything = shell.out + shell.err + (tmp_path / "raw").read_text() + (tmp_path / "case.json").read_text()
    assert "do-not-show" not in everything


def test_a_server_that_hangs(tmp_path: Path) -> None:
    with serving(Faults(delay=3.0)) as (url, _):
        endpoint = Endpoint(url, timeout=0.3)
        started = time.monotonic()
        answer = endpoint.ask(Ask("x"))
        endpoint.close()
        assert answer.error == "no answer in time" and time.monotonic() - started < 2


def test_dry_run_sends_nothing(shell) -> None:
    with serving(Faults()) as (url, state):
        assert shell("diagnose", "--endpoint", url, "--dry-run") == 0
        assert "cached" in shell.out and not state.requests
        assert shell("diagnose", "--endpoint", url, "--dry-run", "--json") == 0
        assert sum(len(group["requests"]) for group in json.loads(shell.out)["groups"]) <= 40


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-requests", "3", "--case", "x"), "--max-requests has no effect without --endpoint"),
        (("--endpoint", "localhost:8000"), "must begin with http"),
        (("--endpoint", "http://127.0.0.1:9", "--max-requests", "0"), "out of range"),
    ],
)
def test_one_line_for_what_cannot_be_meant(shell, words: tuple[str, ...], message: str) -> None:
    assert shell("diagnose", *words) == 2
    assert message in shell.err


def test_plans_keep_to_the_limit_and_drop_what_has_nothing_to_compare_with() -> None:
    for limit in (1, 6, 12, 25, 40, 100):
        plan = make_plan(max_requests=limit, max_concurrency=4, seed=1)
        assert plan.requests <= limit
        names = [group.name for group in plan.groups]
        assert all(group.against in (None, *names) for group in plan.groups)
    assert "streams" not in [g.name for g in make_plan(max_requests=100, max_concurrency=1, seed=1).groups]
    one, two = (make_plan(max_requests=40, max_concurrency=4).groups[0].asks[0].prompt for _ in range(2))
    assert one != two, "another first word each time, or the cache would know it"


def test_divergence_names_the_token_and_its_gap() -> None:
    one = Answer(text="a b c", tops=[("a", -0.1, -3.0), ("b", -0.2, -2.0)])
    other = Answer(text="a x c", tops=[("a", -0.1, -3.0), ("x", -0.69, -0.7)])
    index, gap = divergence(one, other) or (None, None)
    assert index == 1 and gap == pytest.approx(0.01)
    assert divergence(Answer(text="a b"), Answer(text="a c")) == (1, None)
    assert divergence(one, one) is None


def test_repetition() -> None:
    assert repeats("the same words again " * 30)
    assert repeats("!" * 200)
    assert not repeats(" ".join(str(n) for n in range(200)))
