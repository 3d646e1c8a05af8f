"""Errors are one line on stderr with a documented exit code; flags without effect are errors."""

from __future__ import annotations

import pytest

from draftproof.cli import opening
from draftproof.errors import CheckpointError, UnavailableError

WITHOUT_EFFECT = {
    "--tree-budget 4 -d random": "--tree-budget has no effect without --method tree",
    "--tree-budget 4": "--tree-budget has no effect without a --drafter",
    "--num-speculative-tokens 4": "--num-speculative-tokens has no effect without a --drafter",
    "--draft-sample-method greedy": "--draft-sample-method has no effect without a --drafter",
    "--draft-sample-method greedy -d random": "--draft-sample-method has no effect at temperature 0",
    "--draft-sample-method greedy -d random --method tree --temperature 1": "with --method tree",
    "--top-p 0.5": "--top-p has no effect at temperature 0",
    "--top-k 5 --temperature 0": "--top-k has no effect at temperature 0",
    "--min-p 0.1": "--min-p has no effect at temperature 0",
    "--seed 1": "--seed has no effect at temperature 0",
    "--logprobs 2": "--logprobs has no effect without --json",
    "-d random --method none": "--drafter has no effect with --method none",
    "--raw --system x": "--system has no effect on a raw prompt",
}
BAD_VALUES = {
    "--method chain": "--method chain needs a --drafter",
    "--temperature -1": "temperature=-1.0 is out of range",
    "--max-tokens 0": "max_tokens=0 is out of range",
    "--threads 0": "--threads 0 is out of range",
    "-d random --num-speculative-tokens 0": "--num-speculative-tokens 0 is out of range",
    "--logit-bias nonsense": "is not JSON",
    "--logit-bias []": "must be a JSON object",
    '--logit-bias {"a":1}': "must be a JSON object",
    "--stop-token-ids x": "must be token ids",
    "--dtype float8": "float8",
    "--no-such-flag": "--no-such-flag",
    "--max-tokens many": "--max-tokens",
}


@pytest.mark.parametrize(("words", "says"), [*WITHOUT_EFFECT.items(), *BAD_VALUES.items()])
def test_usage_errors_are_one_line_and_exit_2(shell, words, says):
    assert shell("generate", "-m", "fake", *words.split(), "hello") == 2
    assert says in shell.err
    lines = [line for line in shell.err.splitlines() if not line.startswith("threads")]
    assert len(lines) == 1 and lines[0].startswith("error: ")
    assert shell.out == ""


@pytest.mark.parametrize("target", ["bundled:smollm2", "some.gguf"])
def test_hub_flags_need_a_hub_target(shell, target):
    assert shell("generate", "-m", target, "--revision", "v1", "hello") == 2
    assert shell("generate", "-m", target, "--trust-remote-code", "hello") == 2


def test_empty_prompt(shell):
    assert shell("generate", "-m", "fake", " ") == 2
    assert "the prompt is empty" in shell.err


def test_unknown_command(shell):
    assert shell("generte") == 2
    assert "generte" in shell.err


@pytest.mark.parametrize(("error", "code"), [(CheckpointError("file cut short"), 2), (UnavailableError("no hub"), 3)])
def test_errors_bring_their_exit_code(shell, monkeypatch, error, code):
    def fail(**arguments):
        raise error

    monkeypatch.setattr(opening, "make_engine", fail)
    assert shell("generate", "-m", "fake", "-q", "hello") == code
    assert shell.err == f"error: {error}\n"


def test_internal_errors_hide_the_traceback_until_asked(shell, monkeypatch):
    def fail(**arguments):
        raise KeyError("layers\n.7")

    monkeypatch.setattr(opening, "make_engine", fail)
    assert shell("generate", "-m", "fake", "-q", "hello") == 70
    assert shell.err.startswith("internal error: KeyError: ")
    assert shell.err.count("\n") == 1 and "run with --debug" in shell.err
    for words in (
        ["--debug", "generate", "-m", "fake", "hello"],
        ["generate", "-m", "fake", "hello", "--debug"],
    ):
        assert shell(*words) == 70
        assert "Traceback" in shell.err


def test_interrupt_while_loading(shell, monkeypatch):
    def fail(**arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(opening, "make_engine", fail)
    assert shell("generate", "-m", "fake", "hello") == 130


def test_version_and_help(shell):
    from draftproof import __version__

    assert shell("--version") == 0
    assert shell.out == f"draftproof {__version__}\n"
    assert shell("generate", "--help") == 0
    assert "--num-speculative-tokens" in shell.out
