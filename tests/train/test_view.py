"""What a run says while it runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from draftproof.cli import train_view
from draftproof.cli.train_view import Reporter, sentence

REPORTS = [
    {"kind": "answers", "answers": 3, "tokens": 90, "cut": 10, "seconds": 3.0, "progress": 0.5, "minutes_left": 2.0},
    {"kind": "taps", "done": 3, "of": 6, "progress": 0.5},
    {
        "kind": "train",
        "step": 9,
        "loss": 2.5,
        "hits": 0.5,
        "draft_tokens_per_s": 70.0,
        "progress": 0.1,
        "minutes_left": 8.0,
    },
    {"kind": "evaluation", "step": 9, "tau": 1.5, "tau_ci95": None, "rates": [0.4, 0.1]},
]


def test_sentences():
    said = [sentence(r) for r in REPORTS]
    assert said[0] == "3 answers, 90 tokens (30/s), 10.0 % of them repetition and cut, 2 min left"
    assert said[1] == "hidden states of 3 of 6 answers"
    assert said[2] == "step 9: loss 2.500, 0.50 right in a row, 70 drafted tokens/s, 8 min left"
    assert said[3] == "step 9: τ 1.50 (–); accepted at least: 0.40 0.10"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_on_a_terminal_lines_elsewhere(monkeypatch, capsys, terminal):
    out = io.StringIO()
    monkeypatch.setattr(
        train_view, "err_console", lambda: Console(file=out, force_terminal=terminal, width=120, highlight=False)
    )
    with Reporter(quiet=False) as reporter:
        for report in REPORTS:
            reporter.line(report)
    shown = out.getvalue() if terminal else capsys.readouterr().err
    assert "τ 1.50" in shown and "8 min left" in shown
    assert ("━" in shown) == terminal


def test_quiet_says_nothing(capsys):
    with Reporter(quiet=True) as reporter:
        reporter.line(REPORTS[0])
    assert capsys.readouterr().err == ""
