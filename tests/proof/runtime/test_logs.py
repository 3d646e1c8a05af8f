"""Lines of three engines, as they really come: interleaved, coloured, cut, from several replicas, of any size."""

from __future__ import annotations

import gzip
import io
import time
from pathlib import Path
from random import Random

import pytest

from draftproof.errors import UsageError
from draftproof.proof.runtime import llama_log, sglang_log, vllm_log
from draftproof.proof.runtime.logs import hide_secrets, read_logs, read_stream
from draftproof.proof.runtime.reading import BLOCK, Seen, interesting_lines
from draftproof.proof.runtime.windows import Window, drafts_of

SPEC = (
    "(APIServer pid={pid}) INFO 05-01 19:24:{second:02d} [metrics.py:101] SpecDecoding metrics: Mean acceptance "
    "length: 4.28, Accepted throughput: 95.80 tokens/s, Drafted throughput: 146.00 tokens/s, Accepted: 958 tokens, "
    "Drafted: 1460 tokens, Per-position acceptance rate: 0.880, 0.788, 0.644, 0.534, 0.435, "
    "Avg Draft acceptance rate: 65.6%"
)
SGLANG = (
    "[2026-05-01 10:00:{second:02d} TP0] Decode batch. #running-req: {running}, #token: 900, token usage: 0.01, "
    "accept len: {length}, accept rate: 0.41, cuda graph: True, gen throughput (token/s): 123.40, #queue-req: 0"
)
LLAMA = (
    "slot print_timing: id  1 | task 0 | draft acceptance = 0.64479 (  167 accepted /   259 generated), mean "
    "acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)"
)
TOTALS = (
    "statistics     draft-eagle3: #calls(b,g,a) =    1     87     87, #gen drafts =     87, #acc drafts =    70, "
    "#gen tokens =    259, #acc tokens =   167, #mean acc len = 2.92, #acc rate/pos = (0.805, 0.632, 0.483), dur = 0"
)


def spec(pid: int = 1, second: int = 0) -> str:
    return SPEC.format(pid=pid, second=second)


def read(*lines: str, newline: str = "\n"):
    return read_stream(io.BytesIO((newline.join(lines) + newline).encode()))


def test_vllm_windows_give_counts() -> None:
    (window,) = vllm_log.windows(spec())
    assert isinstance(window, Window)
    assert (window.drafts, window.drafted, window.accepted) == (292, 1460, 958)
    assert window.hits == (257, 230, 188, 156, 127)
    assert window.replica == "APIServer:1" and window.stamp == "05-01 19:24:00"


def test_the_older_formats_are_read() -> None:
    (v1,) = vllm_log.windows(
        "SpecDecoding metrics: Draft acceptance rate: 62.1%, Mean acceptance length: 2.86, Accepted: 234 tokens, "
        "Drafted: 378 tokens, Per-position acceptance rate: 0.786, 0.611, 0.460"
    )
    assert isinstance(v1, Window) and v1.drafts == 126
    (v0,) = vllm_log.windows(
        "Speculative metrics: Draft acceptance rate: 0.5, System efficiency: 0.4, Number of speculative tokens: 4, "
        "Number of accepted tokens: 200, Number of draft tokens: 400, Number of emitted tokens: 300."
    )
    assert isinstance(v0, Window) and (v0.drafts, v0.accepted) == (100, 200)


def test_cut_drafts_are_counted_by_the_length() -> None:
    assert drafts_of(958, 1460, 4.28, 5) == 292
    assert drafts_of(100, 300, 2.0, 5) == 100, "a grammar cut drafts: 300 / 5 would be 60"
    assert drafts_of(0, 300, 1.0, 5) == 60
    assert drafts_of(0, 0, None, 5) == 0
    assert drafts_of(7, 30, None, None) is None


def test_colours_glued_lines_and_other_output_do_not_matter() -> None:
    coloured = spec().replace("INFO", "\x1b[32mINFO\x1b[0m").replace("4.28", "\x1b[1m4.28\x1b[0m")
    facts = read("INFO: GET /health 200 accept: */*", coloured, f"{spec(second=1)}{spec(second=2)}", "noise " * 99)
    assert facts.tally.total.windows == 3
    assert facts.tally.total.drafts == 3 * 292


def test_replicas_are_added_and_kept_apart() -> None:
    facts = read(spec(1), spec(2), spec(1), f"vllm-b-1  | {spec(7)}")
    assert facts.tally.total.accepted == 4 * 958
    assert {name: one.windows for name, one in facts.tally.replicas.items()} == {
        "APIServer:1": 2,
        "APIServer:2": 1,
        "vllm-b-1 APIServer:7": 1,
    }


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("Accepted: 958 tokens", "Accepted: -3 tokens", "negative"),
        ("Accepted: 958 tokens", "Accepted: 9580 tokens", "more accepted"),
        ("Mean acceptance length: 4.28", "Mean acceptance length: nan", "nan"),
        ("0.880", "1.880", "above 1"),
        (", Drafted: 1460 tokens", "", "cut"),
    ],
)
def test_impossible_windows_are_named_and_left_out(old: str, new: str, reason: str) -> None:
    facts = read(spec(), spec().replace(old, new))
    assert facts.tally.total.windows == 1
    assert reason in next(iter(facts.unusable))


def test_a_restart_begins_a_new_count() -> None:
    start = "(APIServer pid=1) INFO 05-01 19:00:00 [utils.py:1] vLLM API server version 0.25.1"
    facts = read(start, spec(), start, spec(), spec())
    assert facts.tally.total.windows == 2 and facts.starts == 2
    assert "starts again" in facts.notes[0]
    assert (facts.startup.engine, facts.startup.version) == ("vllm", "0.25.1")


def test_startup_facts_of_each_engine() -> None:
    vllm = read(
        "non-default args: {'model': 'm', 'speculative_config': {'method': 'dflash', 'num_speculative_tokens': 7}}"
    )
    assert (vllm.startup.method, vllm.startup.k) == ("dflash", 7)
    sglang = read(
        "server_args=ServerArgs(model_path='m', speculative_algorithm='DFLASH', speculative_num_draft_tokens=16)"
    )
    assert (sglang.startup.engine, sglang.startup.method, sglang.startup.k) == ("sglang", "dflash", 15)
    llama = read(
        "build: 9859 (4fc4ec554) with gcc", "common_speculative_impl_draft_dflash: - n_max=7, n_min=0, p_min=0.00"
    )
    assert (llama.startup.version, llama.startup.k, llama.startup.method) == ("b9859", 7, "dflash")


def test_sglang_lines_weigh_by_running_requests() -> None:
    (window,) = sglang_log.windows(SGLANG.format(second=0, running=2, length=3.0))
    assert isinstance(window, Window) and window.estimated
    assert (window.drafts, window.accepted, window.replica) == (80, 160, "TP0")
    facts = read(SGLANG.format(second=0, running=1, length=4.0), SGLANG.format(second=1, running=3, length=2.0))
    assert facts.tally.total.length == pytest.approx(1 + (40 * 3 + 120 * 1) / 160)
    assert facts.tally.alone.windows == facts.tally.together.windows == 1


def test_llama_requests_are_not_counted_twice_with_the_totals() -> None:
    (window,) = llama_log.windows(LLAMA)
    assert isinstance(window, Window) and window.drafts == 87 and window.hits == (70, 55, 42)
    assert read(LLAMA, TOTALS).tally.total.accepted == 167
    totals = read(TOTALS)
    assert (totals.tally.total.drafts, totals.tally.total.accepted) == (87, 167)


def test_benchmark_summaries() -> None:
    facts = read("Drafts:        20,312", "Draft tokens:    162496", "Accepted tokens:   8", "Acceptance length: 1.00")
    assert facts.tally.total.metrics()["num_drafts"] == 20312
    facts = read("n_draft   = 6", "n_drafted = 430", "n_accept  = 427", "accept    = 99.302%")
    assert facts.tally.total.metrics()["acceptance_rate"] == pytest.approx(0.99302)


def test_a_step_to_zero_that_never_recovers_is_two_observations() -> None:
    zero = spec().replace("Accepted: 958", "Accepted: 0").replace("4.28", "1.00")
    facts = read(*[spec()] * 3, *[zero] * 3)
    fell = facts.tally.step_to_zero()
    assert fell is not None and fell[0].drafts == fell[1].drafts == 3 * 292
    assert read(*[zero] * 3, *[spec()] * 3).tally.step_to_zero() is None


def test_fault_lines_are_kept_once_with_their_place_and_without_keys() -> None:
    facts = read(
        "x", "RuntimeError: size 12 at 0x7f12", "RuntimeError: size 13 at 0x7f99", "Error: api_key=sk-abcdef123456 bad"
    )
    assert [place for _, place in facts.lines] == ["log:2", "log:4"]
    assert "sk-abc" not in facts.lines[1][0]
    assert "secret" not in hide_secrets("Authorization: Bearer secret-token-1")


def test_lines_across_blocks_endings_and_encodings() -> None:
    padding = "x" * (BLOCK - 300)
    seen = Seen()
    text = f"{padding}\n{spec()}\r\n{padding}\n{spec()}".encode()
    assert len(list(interesting_lines(io.BytesIO(text), (b"SpecDecoding",), seen))) == 2
    assert seen.bytes == len(text)
    facts = read_stream(io.BytesIO("\ufeff".encode("utf-16-le") + f"a\n{spec()}\n".encode("utf-16-le")))
    assert facts.tally.total.windows == 1


def test_binary_and_truncated_files(tmp_path: Path) -> None:
    assert read_stream(io.BytesIO(bytes(range(256)) * 4096)).empty
    packed = gzip.compress("\n".join([spec()] * 2000).encode())
    (tmp_path / "whole.gz").write_bytes(packed)
    (tmp_path / "cut.gz").write_bytes(packed[: len(packed) // 2])
    assert read_logs([str(tmp_path / "whole.gz")]).tally.total.windows == 2000
    cut = read_logs([str(tmp_path / "cut.gz")])
    assert cut.notes and "ends early" in cut.notes[0]
    with pytest.raises(UsageError, match="no such file"):
        read_logs([str(tmp_path / "none.log")])


@pytest.mark.parametrize("seed", range(5))
def test_garbled_lines_never_end_in_a_traceback(seed: int) -> None:
    random = Random(seed)
    kinds = [spec(), SGLANG.format(second=0, running=2, length=3.0), LLAMA, TOTALS, "num_drafts: 9", "n_drafted = 4"]
    lines = []
    for _ in range(300):
        line = bytearray(random.choice(kinds).encode())
        for _ in range(random.randrange(6)):
            line[random.randrange(len(line))] = random.randrange(256)
        lines.append(bytes(line[random.randrange(20) :][: random.randrange(20, 400)]))
    facts = read_stream(io.BytesIO(b"\n".join(lines)))
    assert facts.seen.lines >= 300
    assert facts.tally.total.accepted <= facts.tally.total.drafted or facts.tally.total.drafted == 0


def test_hostile_lines_cost_no_time() -> None:
    started = time.process_time()
    read("Error " + "a" * 16000, "statistics a: " * 1000, "Avg generation throughput: 1 " * 500, "accept len: " * 1000)
    assert time.process_time() - started < 2
