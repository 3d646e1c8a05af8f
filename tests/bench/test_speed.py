"""The speed run on tiny models: every figure is there and is rendered; arithmetic on made-up runs."""

from __future__ import annotations

import json

import pytest
import torch

from draftproof import Engine
from draftproof.bench.passes import PassBench, read_bandwidth, weight_bytes
from draftproof.bench.peers import PeerResult
from draftproof.bench.results import to_text
from draftproof.bench.speed import measure, round_parts, run_speed, spread, summarise
from draftproof.bench.tables import label, render
from draftproof.bench.ways import TimedRun, rotated, ways_of
from draftproof.engine.types import RoundStats, SamplingParams
from draftproof.errors import UnavailableError
from support.tiny import tiny_drafter, tiny_model

PROMPTS = [("one", [3, 14, 15, 92]), ("two", [65, 35, 89])]


def engine_of(family="llama", **options):
    return Engine.from_model(tiny_model(family), drafter=lambda t: tiny_drafter(t), length_policy="fixed", **options)


def peer():
    return PeerResult(
        peer="other",
        version="1",
        tokens_per_second=100.0,
        runs=[100.0],
        end_to_end=None,
        command=[],
        settings={},
    )


def absent():
    raise UnavailableError("other is not on PATH")


def test_a_whole_run(monkeypatch):
    monkeypatch.setattr("draftproof.bench.speed.read_bandwidth", lambda: 1e9)
    lines = []
    result = run_speed(
        ways_of(engine_of(), (4, 8)),
        {"asked": PROMPTS, "again": PROMPTS[:1]},
        max_tokens=12,
        repeats=3,
        peers={"here": peer, "gone": absent},
        progress=lines.append,
    )
    json.loads(to_text(result))
    ways = result["workloads"]["asked"]["ways"]
    assert list(ways) == ["plain", "chain", "tree-4", "tree-8"]
    assert ways["plain"]["speedup"] == {"median": 1.0, "p10": 1.0, "p90": 1.0}
    assert ways["plain"]["acceptance"] is None and ways["plain"]["tokens"] == 24
    assert ways["chain"]["acceptance"]["tau_ci95"] is not None
    for told in ways.values():
        parts = told["ms_per_round"]
        assert parts["verify"] > 0 and 0 < parts["host_share"] < 1
        assert told["with_prefill_tokens_per_s"]["median"] > 0
    assert [c["rows"] for c in result["passes"]["costs"]] == [1, 8, 16, 32, 64]
    speed = ways["chain"]["decode_tokens_per_s"]["median"]
    assert result["peers"]["here"]["ratio"]["chain"] == pytest.approx(speed / 100)
    assert result["peers"]["gone"] == {"skipped": "other is not on PATH"}
    assert any(line.startswith("asked 2/2 two: plain ") for line in lines)
    shown = render(result)
    assert shown is not None
    for part in ("| asked (2) | DDTree, 8 nodes |", "left out: other is not on PATH", "| 64 | ", "of weights at"):
        assert part in shown


def test_every_way_runs_each_prompt_in_turn():
    ways = ways_of(engine_of())
    runs = measure(ways, PROMPTS, SamplingParams(max_tokens=4), repeats=2)
    assert {way: [len(r) for r in found] for way, found in runs.items()} == {way: [2, 2] for way in ways}
    assert [[name for name, _ in rotated({"a": 1, "b": 2, "c": 3}, turn)] for turn in range(4)] == [
        ["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"],
    ]  # fmt: skip


def made(tokens, prefill, total, rounds=()):
    return TimedRun(4, tuple(range(tokens)), prefill, total, tuple(rounds))


def test_rates_leave_the_first_token_to_the_prefill():
    run = made(11, 0.5, 2.5)
    assert run.decode_rate == pytest.approx(5.0) and run.total_rate == pytest.approx(11 / 2.5)


def test_medians_over_repeats_then_prompts_and_paired_ratios():
    def repeats(*seconds):
        return [made(11, 0.0, s) for s in seconds]

    told = summarise({"plain": [repeats(1, 2, 9), repeats(4, 4, 4)], "chain": [repeats(1, 1, 1), repeats(1, 1, 9)]})
    plain, chain = told["ways"]["plain"], told["ways"]["chain"]
    assert plain["decode_tokens_per_s"] == {"median": 3.75, "p10": 2.5, "p90": 5.0}
    assert chain["speedup"] == {"median": 3.0, "p10": 2.0, "p90": 4.0}


def test_parts_of_a_round_add_up_to_the_wall_clock():
    rounds = [RoundStats(7, 7, 2, 3, 0.01, 0.03, 0.001)] * 10
    parts = round_parts([made(31, 0.1, 0.6, rounds)])
    assert parts == pytest.approx({"draft": 10.0, "verify": 30.0, "host": 10.0, "host_share": 0.2})
    assert round_parts([made(1, 0.1, 0.1)])["host_share"] == 0.0


def test_repeats_do_not_narrow_the_interval():
    rounds = [RoundStats(7, 7, a, a + 1, 0.01, 0.03, 0.001) for a in (0, 3)]
    once = summarise({"plain": [[made(7, 0, 1, rounds)], [made(7, 0, 1, rounds[:1])]]})
    thrice = summarise({"plain": [[made(7, 0, 1, rounds)] * 3, [made(7, 0, 1, rounds[:1])] * 3]})
    assert once["ways"]["plain"]["acceptance"] == thrice["ways"]["plain"]["acceptance"]


def test_spread_of_many_values():
    assert spread([float(i) for i in range(20)]) == {"median": 9.5, "p10": 2.0, "p90": 17.0}
    assert spread([3.0]) == {"median": 3.0, "p10": 3.0, "p90": 3.0}


@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen3_5"])
def test_pass_costs_leave_the_engine_as_it_was(family):
    engine = engine_of(family)
    before = engine.generate([PROMPTS[0][1]], SamplingParams(max_tokens=8))[0].token_ids
    bench = PassBench(engine, context=16, repeats=2)
    costs = bench.run((1, 4, 8, 12, 16))
    assert all(c.target_ms > 0 for c in costs)
    assert [c.drafter_ms is None for c in costs] == [True, False, False, True, False]  # blocks of 8 rows
    assert bench.pool.free_blocks == bench.pool.num_blocks
    assert engine.generate([PROMPTS[0][1]], SamplingParams(max_tokens=8))[0].token_ids == before


@pytest.mark.parametrize("native", [False, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weight_bytes_are_all_but_the_embedding_table(native, dtype):
    model = tiny_model("llama", dtype=dtype)
    table = model.get_input_embeddings().weight.nbytes
    norms = sum(p.nbytes for n, p in model.named_parameters() if "norm" in n)
    every = sum(p.nbytes for p in model.parameters())
    counted = weight_bytes(Engine.from_model(model, native=native))
    assert counted is not None and every - table - norms <= counted <= every - table


def test_bandwidth_is_measured():
    assert read_bandwidth(megabytes=8, repeats=2) > 1e8


def test_labels():
    assert [label(way) for way in ("plain", "tree", "tree-8")] == [
        "target alone",
        "DDTree",
        "DDTree, 8 nodes",
    ]
    assert render({"schema_version": "draftproof.demo/1"}) is None
