"""Result files become tables: what is missing is a dash, what was measured stands where it belongs."""

from __future__ import annotations

import json
from pathlib import Path

from draftproof.bench import tables
from draftproof.bench.headlines import headlines
from draftproof.bench.tables_installs import releases, remarks

ORIGIN = {"command": "draftproof x", "machine": {"cpu": "a CPU"}, "time": "2026-12-03T09:00:00"}


def told(tau: float | None, left: float | None = None) -> dict[str, object]:
    return {"tau": tau, "tau_ci95": None, "rounds": 5, "rates": [0.5, 0.25], "prompts": 3, "looping": 1, "left": left}


def test_what_a_drafter_is_worth() -> None:
    document = {
        "schema_version": "draftproof.evaluate/1",
        "engine": {"method": "tree", "tree_budget": 16},
        "max_tokens": 64,
        "workloads": {"maths": told(1.75), "silent": told(None)},
        "provenance": ORIGIN,
    }
    text = tables.render(document)
    assert text and "| maths (3) | 1.75 | 0.50 0.25 | 5 | 1 |" in text and "| silent (3) | – |" in text
    assert "DDTree, 16 nodes" in text and "`draftproof x`, a CPU, 2026-12-03" in text


def test_what_faults_leave() -> None:
    healthy = {"name": "healthy", "says": "as trained", "conditions": {"short": told(2.0, 1.0), "long": told(2.2, 1.0)}}
    fault = {"name": "x", "says": "y", "conditions": {"long": told(1.3, 0.25)}}
    document = {
        "schema_version": "draftproof.lab/1",
        "pair": {"target": "t", "drafter": "d", "workload": {"prompts": 12}},
        "faults": [healthy, fault],
        "provenance": ORIGIN,
    }
    text = tables.render(document)
    assert text and "| x | y | – | 1.30 | 25 % |" in text and "| healthy | as trained | 2.00 | 2.20 | 100 % |" in text
    document["pair"] = {"target": "t", "drafter": "d", "workload": [{"name": "maths"}, {"name": "code"}]}
    assert "prompts of maths, code" in (tables.render(document) or "")


def test_what_doctor_told_of_installs() -> None:
    right, wrong = ({"wanted": "yes", "got": got, "level": "behaviour"} for got in ("yes", "no"))
    release = {"cells": {"a": right, "b": wrong}, "seconds": {"source": 0.5, "behaviour": 2.0}}
    document = {
        "releases": {"vllm==0.20.1": release, "vllm==0.9.0": release},
        "killed_installs": [{"sound": False, "found": ["INSTALL_INCOMPLETE"]}, {"sound": True, "found": []}],
    }
    head, rows = releases(document)
    assert [row[0] for row in rows] == ["vllm 0.9.0", "vllm 0.20.1"] and rows[0][1:3] == ["1 of 2", "2"]
    assert len(head) == len(rows[0])
    assert list(remarks(document)) == [
        "Of 2 installs killed at a random moment 1 were left unsound: 1 of these were found, and 0 of the 1 sound ones "
        "accused."
    ]


def test_the_story_tells_what_ran_and_what_did_not() -> None:
    diagnosed = {"verdict": "faulty", "codes": ["AUX_LAYER_OFFSET"]}
    ran = {"engine": "old", "known": ["taps-one-early"], "rounds": 9, "tau": 1.25, "diagnose": diagnosed, "right": True}
    replayed = {"said": ["taps-one-early"], "verdict": "faulty", "certainty": "certain"}
    refused = {"engine": "older", "error": "too many values", "check": {"codes": ["WINDOW_IGNORED"]}, "right": False}
    acceptance = {
        "prompts": 40,
        "same_text": 40,
        "vllm": {"tau": 2.0, "tau_ci95": [1.9, 2.125]},
        "reference": {"tau": 2.0, "tau_ci95": None},
    }
    document = {
        "schema_version": "draftproof.story/1",
        "rows": [ran | {"replay": replayed}, ran | {"replay": None}, refused],
        "acceptance": acceptance,
        "provenance": ORIGIN,
    }
    text = tables.render(document)
    assert text and "| 9 | 1.25 | faulty: `AUX_LAYER_OFFSET` | taps-one-early, certain | yes |" in text
    assert "no capture of this engine" in text and "does not run; `check` beforehand: `WINDOW_IGNORED`" in text
    assert "vLLM 2.00 (1.90–2.12), the reference engine 2.00; 40 texts" in text
    assert headlines(document)[0][1] == "2 of 3"


def test_headlines_of_every_kept_result_and_of_none() -> None:
    kept = [json.loads(f.read_text()) for f in (Path(__file__).parents[2] / "results").glob("*.json")]
    lines = [line for document in kept for line in headlines(document)]
    assert all(len(line) == 3 and all(line) for line in lines)
    assert headlines({"schema_version": "other/1"}) == []
    speed = {
        "schema_version": "draftproof.speed/1",
        "provenance": ORIGIN,
        "workloads": {
            "maths": {
                "ways": {
                    "plain": {"decode_tokens_per_s": {"median": 100.0}},
                    "chain": {"speedup": {"median": 3.0}},
                    "policy": {"speedup": {"median": 1.5}},
                }
            }
        },
    }
    assert headlines(speed) == [
        ["one stream, maths", "1.50× the target alone (100 tok/s), policy", "a CPU, 2026-12-03"]
    ]
