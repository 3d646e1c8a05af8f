"""The server's benchmark: its phases against tiny servers in this process, and the file that they are gathered in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftproof.bench import tables
from draftproof.bench.headlines import headlines
from draftproof.bench.serving import phases
from draftproof.bench.serving.client import Got, verdict
from draftproof.bench.serving.equality import VARIANTS
from draftproof.bench.serving.plan import Bench, Plan
from draftproof.bench.serving.soak import slope
from draftproof.errors import DraftproofError, UsageError
from server.world import Served, served, tiny_engine

pytest.importorskip("jsonschema_rs")


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Served]]:
    with served(tiny_engine(None)) as plain, served(tiny_engine("chain")) as drafter:
        yield {"plain": plain, "drafter": drafter}


class Here:
    """In the place of a process."""

    def __init__(self, server: Served) -> None:
        self.url = server.url
        self.engine = {"max_model_len": server.service.engine.max_model_len}

    def stop(self) -> int:
        return 0


def plan(folder: Path, **changes: Any) -> Plan:
    given: dict[str, Any] = {
        "serve": ["-m", "tiny"], "drafter": ["-d", "echo"], "questions": ["hello", "two", "a third"],
        "concurrency": [1, 3], "tokens": 12, "requests": 3, "repeats": 1, "soak_s": 1.0, "soak_clients": 2,
        "fault_s": 1.0, "fault_clients": 2, "idle_connections": 5, "schemas": 6, "examples": 2,
        "log": folder / "bench.log",
    }  # fmt: skip
    return Plan(**given | changes)


@pytest.fixture
def bench(servers: dict[str, Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(Bench, "server", lambda self, way, *more: Here(servers[way]))
    return Bench(plan(tmp_path), None, lambda line: None)  # type: ignore[arg-type]


def test_throughput_is_a_ratio_of_checked_answers(bench: Bench) -> None:
    told = phases.throughput(bench)["clients"]
    assert list(told) == ["1", "3"]
    for row in told.values():
        assert row["wrong"] == 0 and row["responses"] in (6, 12) and row["ratio"] > 0
    bench.references[0].text += "x"
    assert phases.throughput(bench)["clients"]["1"]["wrong"] == 2


def test_a_lone_streams_time_has_three_parts(bench: Bench) -> None:
    for row in phases.one_stream(bench).values():
        assert 0 < row["outside_steps"] < 1 and 0 < row["host_in_steps"] < 1 - row["outside_steps"]


def test_a_second_turn_has_the_same_rounds(bench: Bench) -> None:
    told = phases.second_turn(bench)
    assert told["same_texts"] and told["same_rounds"] and 0 < told["cached_tokens"] < told["prompt_tokens"]
    assert told["tau_cached"] == told["tau_cold"] > 1.5


def test_structured_output_is_judged_by_another(bench: Bench) -> None:
    told = phases.schemas(bench)
    assert (told["asked"], told["valid"], told["unfinished"], told["errors"]) == (6, 6, 0, [])
    both = phases.structured(bench)
    assert both["free"]["tau"] > 1 and both["schema"]["rounds"] > 0


def test_all_that_is_sent_is_compared(bench: Bench, servers: dict[str, Served]) -> None:
    table = phases.equality(bench)["variants"]
    assert set(table) == set(VARIANTS)
    assert {name: row["differ"] for name, row in table.items() if row["differ"]} == {}
    name, servers["drafter"].service.name = servers["drafter"].service.name, "other"
    text_of = servers["drafter"].service.text_of
    servers["drafter"].service.text_of = lambda token: ("x", [0])  # type: ignore[assignment]
    try:
        assert phases.equality(bench)["variants"]["log-probabilities"]["differ"] == 6
    finally:
        servers["drafter"].service.name, servers["drafter"].service.text_of = name, text_of


def test_attacks_leave_the_server_unharmed(bench: Bench) -> None:
    told = phases.hostile(bench)
    assert told["requests"] >= 300 and told["not_refused"] == [] and told["requests_left"] == 0
    assert told["references_after"] == "3 of 3"


def test_an_answer_to_another_question_is_called_that() -> None:
    one, two = Got("one", "stop", 3), Got("two", "stop", 3)
    assert verdict(Got("one", "stop", 3), one, [one, two]) == ""
    assert verdict(two, one, [one, two]) == "the answer to another question"
    assert verdict(Got("on", "stop", 3), one, [one, two]) == "another answer than the reference"
    assert verdict(Got(error="status 500"), one) == "status 500"


def test_a_slope_is_of_the_second_half() -> None:
    assert slope([(0, 1), (1, 2)]) is None
    warming = [(float(t), 100.0 + 10 * min(t, 20)) for t in range(40)]
    assert slope(warming) == pytest.approx(0.0)
    assert slope([(60.0 * t, 5.0 * t) for t in range(10)]) == pytest.approx(5.0)


# -- the file ---------------------------------------------------------------------------------------------


def test_phases_are_chosen_by_name_or_group() -> None:
    assert chosen_together() == list(phases.PHASES)
    assert phases.chosen("kill,hostile") == ["hostile", "kill"]  # in their own order
    with pytest.raises(UsageError, match="phase 'speed' is unknown"):
        phases.chosen("speed")


def chosen_together() -> list[str]:
    both = {*phases.chosen("timed"), *phases.chosen("untimed")}
    return [name for name in phases.chosen(None) if name in both]


def test_what_is_measured_is_kept_whatever_happens_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(bench: Bench) -> dict[str, Any]:
        raise DraftproofError("the server did not start")

    made = {"kill": lambda b: {"x": 1}, "hostile": failing, "soak": lambda b: {"x": 2}}
    monkeypatch.setattr(phases, "PHASES", made)
    out, said = tmp_path / "serve.json", []
    assert phases.run(plan(tmp_path), ["kill", "hostile", "soak"], out, "a command", said.append) == ["hostile"]
    assert said == ["hostile failed: the server did not start"] and "Traceback" in (tmp_path / "bench.log").read_text()
    monkeypatch.setattr(phases, "PHASES", made | {"soak": lambda b: {"x": 3}, "hostile": lambda b: {"x": 4}})
    assert phases.run(plan(tmp_path), ["soak", "hostile"], out, "another", said.append) == []
    kept = json.loads(out.read_text())["phases"]
    assert {name: (p["result"]["x"], p["provenance"]["command"]) for name, p in kept.items()} == {
        "kill": (1, "a command"), "hostile": (4, "another"), "soak": (3, "another"),
    }  # fmt: skip
    out.write_text('{"schema_version": "draftproof.serve-bench/1"}')
    with pytest.raises(UsageError, match="choose another --out"):
        phases.run(plan(tmp_path), ["kill"], out, "x", said.append)


def result(**results: Any) -> dict[str, Any]:
    origin = {
        "command": "c", "time": "2026-12-03T00:00:00", "git": None,
        "machine": {"cpu": "Some CPU", "usable_cores": 1}, "load_average": {"before": [2.5], "after": [3.0]},
    }  # fmt: skip
    settings = {"serve": ["-m", "t"], "drafter": ["-d", "d"]}
    kept = {name: {"result": told, "settings": settings, "provenance": origin} for name, told in results.items()}
    return {"schema_version": phases.SCHEMA, "phases": kept}


def test_what_falls_short_stands_in_bold_type() -> None:
    row = {"plain_tokens_per_s": 100.0, "drafter_tokens_per_s": 110.0, "ratio": 1.1, "ratios": [1.0, 1.2]}
    counts = {"responses": 9, "wrong": 0}
    document = result(
        throughput={"clients": {"1": row | counts, "8": row | counts | {"ratio": 0.98}}},
        schemas={"asked": 200, "valid": 200},
        hostile={"requests": 700, "not_refused": [1], "references_after": "4 of 4", "requests_left": 0},
        schemathesis={"requests": 500, "operations": 14, "server_errors": 0, "references_after": "4 of 4",
                      "requests_left": 0},
    )  # fmt: skip
    shown = tables.render(document) or ""
    assert "| **1.10** |" in shown and "| 0.98 |" in shown and "| 200 of 200 |" in shown
    assert "**699 of 700; 4 of 4 references right after them**" in shown and "1 core, load 2.5 before" in shown
    assert "up to 1 clients" in tables.served_scale(document)
    assert ["server, hostile and generated requests", "1 of 1200 answered wrongly"] in [
        h[:2] for h in headlines(document)
    ]
