"""demo: the card, the JSON line, and what it says when ways differ."""

from __future__ import annotations

import json

import pytest

from draftproof.bench.equality import first_divergence
from draftproof.cli import demo_run
from draftproof.cli.demo_view import bar, drafter_remark
from draftproof.cli.prompts import demo_prompts


def last_line(shell):
    return json.loads(shell.out.splitlines()[-1])


def test_card_and_json(shell):
    assert shell("demo", "--max-tokens", "32") == 0
    result = last_line(shell)
    assert result["schema_version"] == "draftproof.demo/1"
    assert list(result["ways"]) == ["plain", "chain", "tree"]
    for way in ("chain", "tree"):
        assert result["ways"][way]["identical"] is True
        assert result["ways"][way]["acceptance"]["tau"] > 1
    assert result["identical"] is True and "random weights" in result["stand_in"]
    assert "text identical: yes" in shell.out and "random weights" in shell.out
    assert "2 threads" in shell.out and "█" in shell.out
    assert "\x1b" not in shell.out + shell.err
    assert not any(line != line.rstrip() for line in shell.out.splitlines())


def test_ways_share_one_engine_and_are_interleaved_after_one_warm_up(shell):
    shell("demo", "--max-tokens", "32")
    assert [a["drafter"] for a in shell.arguments] == ["random"]
    for engine in shell.ways.values():
        assert [params.max_tokens for _, params in engine.requests] == [16] + [32] * 6


def test_json_alone(shell):
    assert shell("demo", "--json", "--quiet", "--method", "chain") == 0
    assert list(json.loads(shell.out)["ways"]) == ["plain", "chain"]
    assert shell.err == ""


@pytest.fixture
def judged(monkeypatch):
    """Lets a test say what the judge of differences says."""
    return lambda rounding, text: monkeypatch.setattr(demo_run, "explain", lambda *_: (rounding, text))


def test_a_difference_in_invariant_mode_fails(shell, judged):
    judged(True, "a tie")
    shell.by_method = {"tree": {"answer": "Grüße vom Baum"}}
    assert shell("demo") == 1
    result = last_line(shell)
    assert result["ways"]["chain"]["identical"] is True
    assert result["ways"]["tree"]["identical"] is False
    assert result["ways"]["tree"]["differences"][0]["position"] == 8
    assert "text identical: no" in shell.out and "first difference at token 9: a tie" in shell.out


@pytest.mark.parametrize(("rounding", "code"), [(True, 0), (False, 1)])
def test_without_invariant_mode_only_what_rounding_cannot_explain_fails(shell, judged, rounding, code):
    judged(rounding, "as judged")
    shell.settings = {"invariant": False}
    shell.by_method = {"tree": {"answer": "Grüße vom Baum"}}
    assert shell("demo", "--no-invariant") == code
    assert "text identical: no" in shell.out and "as judged" in shell.out
    assert ("rounding explains every difference" in shell.out) is rounding


def test_options_reach_the_engine(shell):
    assert shell("demo", "-d", "random:2", "--num-speculative-tokens", "3", "--tree-budget", "9") == 0
    assert shell.arguments == [{"target": "bundled:smollm2", "drafter": "random:2", "num_speculative_tokens": 3}]
    assert shell.tree_budget == 9


def test_an_ngram_drafter_has_no_tree(shell):
    assert shell("demo", "-d", "ngram") == 0
    assert list(last_line(shell)["ways"]) == ["plain", "chain"]
    assert "n-gram chain" in shell.out and "DDTree" not in shell.out
    assert shell("demo", "-d", "ngram", "--method", "tree") == 2
    assert "tree: this target or drafter cannot have it" in shell.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--method plain", "not a way of the demo"),
        ("--method chain --tree-budget 4", "--tree-budget has no effect"),
        ("--tree-budget 0", "--tree-budget 0 is out of range"),
        ("--prompts /no/such/file", "No such file"),
        ("--max-tokens 0", "max_tokens=0"),
    ],
)
def test_bad_usage(shell, words, says):
    assert shell("demo", *words.split()) == 2
    assert says in shell.err


def test_own_prompts(shell, tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "hi", "name": "greeting"}\n\n{"prompt": "bye"}\n')
    assert shell("demo", "--prompts", str(file)) == 0
    assert last_line(shell)["prompts"] == 2
    assert "1/2 greeting:" in shell.err
    file.write_text('{"prompt": "hi"}\n{"prompt": 3}\n')
    assert shell("demo", "--prompts", str(file)) == 2
    assert f"{file}:2:" in shell.err


@pytest.mark.parametrize("width", [60, 140])
def test_the_card_fits(shell, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    shell("demo")
    card = shell.out.splitlines()[:-1]
    assert max(map(len, card)) <= width
    assert "…" not in "".join(card)


def test_shipped_prompts():
    prompts = demo_prompts(None)
    assert [p.name for p in prompts] == ["math", "code", "explain", "list", "rewrite", "chat"]


def test_helpers():
    assert first_divergence([1, 2], [1, 2]) is None
    assert first_divergence([1, 2], [1]) == 1
    assert first_divergence([1, 2, 3], [1, 5, 3]) == 1
    assert bar(0.5, 4) == "██·· 0.50" and bar(None, 4) == ""
    assert drafter_remark("models/x-standin") and drafter_remark("random:7")
    assert drafter_remark("models/real") is None and drafter_remark(None) is None
