"""Counters of three engines, one scrape and two; what is none is refused."""

from __future__ import annotations

import pytest

from draftproof.errors import UnavailableError, UsageError
from draftproof.proof.runtime.prometheus import fetch, increase, metrics_of, parse, shown


def vllm(drafts: float, accepted: float, first: float, engine: int = 0) -> str:
    labels = f'engine="{engine}",model_name="m"'
    return (
        f"vllm:spec_decode_num_drafts_total{{{labels}}} {drafts}\n"
        f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} {drafts * 3}\n"
        f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {accepted}\n"
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="0"}} {first}\n'
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="1"}} {accepted - first}\n'
        f"vllm:prefix_cache_queries_total{{{labels}}} 50000\n"
        f"vllm:prefix_cache_hits_total{{{labels}}} 0\n"
        f"vllm:kv_cache_usage_perc{{{labels}}} 0.25\n"
    )


def test_counts_of_all_engines_are_added() -> None:
    found = metrics_of(parse(vllm(100, 150, 80) + vllm(100, 50, 40, engine=1), "a"))
    assert found["num_drafts"] == 200 and found["num_accepted_tokens"] == 200
    assert found["mean_acceptance_length"] == 2.0
    assert found["accepted_per_position"] == [0.6, 0.4]
    assert (found["prefix_cache_hits"], found["prefix_cache_queries"]) == (0, 100000)


def test_two_scrapes_give_the_difference() -> None:
    found = metrics_of(increase(parse(vllm(100, 150, 80), "a"), parse(vllm(300, 250, 130), "b")))
    assert (found["num_drafts"], found["num_accepted_tokens"]) == (200, 100)


def test_a_reset_counts_from_zero() -> None:
    between = increase(parse(vllm(1000, 1500, 800), "a"), parse(vllm(100, 150, 80), "b"))
    assert metrics_of(between)["num_drafts"] == 100
    assert "went backwards" in between.notes[0]


def test_numbers_that_are_none_are_left_out() -> None:
    text = vllm(100, 150, 80).replace("} 150", "} NaN")
    scrape = parse(text, "a")
    assert "num_accepted_tokens" not in metrics_of(scrape)
    assert "left out" in scrape.notes[0]


def test_sglang_and_llama_cpp() -> None:
    sglang = parse(
        'sglang:spec_accept_length{a="b"} 3.2\nsglang:spec_accept_rate 0.31\nsglang:spec_verify_calls_total 900\n', "s"
    )
    assert sglang.engine == "sglang"
    assert metrics_of(sglang)["mean_acceptance_length"] == 3.2 and metrics_of(sglang)["num_drafts"] == 900
    llama = parse("llamacpp:spec_decode_num_drafts_total 50\nllamacpp:spec_decode_num_accepted_tokens_total 60\n", "l")
    assert llama.engine == "llama.cpp" and metrics_of(llama)["mean_acceptance_length"] == 2.2


@pytest.mark.parametrize("text", ["<!doctype html><html>", '{"error": "no"}', "no metrics at all here\n"])
def test_what_is_no_prometheus_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--metrics page"):
        parse(text, "page")


def test_keys_in_urls_are_not_shown() -> None:
    assert shown("http://me:secret@host:8000/metrics?key=abc") == "http://host:8000/metrics"
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:9/metrics") as error:
        fetch("http://me:secret@127.0.0.1:9/metrics", timeout=2)
    assert "secret" not in str(error.value)
