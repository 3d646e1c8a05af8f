"""chat: history stays in pairs whatever happens; commands; the context window."""

from __future__ import annotations

import pytest

from draftproof.cli.chat import Chat
from draftproof.cli.conversation import Conversation, answer_room
from draftproof.engine.types import SamplingParams
from draftproof.errors import UsageError

from .fakes import ANSWER, FakeEngine


def prompts(engine):
    return [prompt for prompt, _ in engine.requests]


def test_history_grows_by_pairs(shell, typed):
    typed("one\ntwo\n")
    assert shell("chat", "-m", "fake", "--system", "S") == 0
    assert shell.out == f"{ANSWER}\n{ANSWER}\n"
    assert prompts(shell.engines[0]) == [
        "<system>S\n<user>one\n",
        f"<system>S\n<user>one\n<assistant>{ANSWER}\n<user>two\n",
    ]


def test_commands(shell, typed):
    typed("/stats\none\n/stats\n/undo\n/undo\ntwo\n/reset\nthree\n/help\n/nope\n/etc/hosts is what?\n/quit\nx\n")
    assert shell("chat", "-m", "fake", "-d", "random") == 0
    assert "(no answer yet)" in shell.err and "tok/s" in shell.err
    assert "(took back: one)" in shell.err and "(nothing to take back)" in shell.err
    assert "unknown command /nope" in shell.err and "/undo    take back" in shell.err
    asked = prompts(shell.engines[0])
    assert asked[:3] == ["<user>one\n", "<user>two\n", "<user>three\n"]
    assert asked[3].endswith("<user>/etc/hosts is what?\n")
    assert len(asked) == 4


def test_multi_line_input(shell, typed):
    typed('first \\\nsecond\n"""\na\n\n/quit\n"""\n')
    shell("chat", "-m", "fake")
    asked = prompts(shell.engines[0])
    assert asked[0] == "<user>first \nsecond\n"
    assert asked[1].endswith("<user>a\n\n/quit\n")


def test_interrupted_answer_stays_as_far_as_it_came(capsys):
    engine = FakeEngine(drafter="random", interrupt_after=2)
    chat = Chat(engine, SamplingParams(), Conversation())
    chat.take("hello")
    assert chat.conversation.turns == [("hello", "Grü")]
    assert "[stopped]" in capsys.readouterr().out
    assert engine.closed == 1


def test_interrupt_before_the_first_word_leaves_no_turn():
    chat = Chat(FakeEngine(interrupt_after=0), SamplingParams(), Conversation())
    chat.take("hello")
    assert chat.conversation.turns == []


def test_a_failed_answer_leaves_no_turn(capsys):
    chat = Chat(FakeEngine(fail_with="boom"), SamplingParams(), Conversation())
    chat.take("hello")
    assert chat.conversation.turns == []
    assert "error: boom" in capsys.readouterr().err


def test_full_context_drops_the_oldest_turns_with_a_notice(capsys):
    engine = FakeEngine(max_model_len=200)
    chat = Chat(engine, SamplingParams(max_tokens=100), Conversation())
    for number in range(4):
        chat.take(f"question {number}")
    assert "dropped the 1 oldest turn)" in capsys.readouterr().err
    for prompt, params in engine.requests:
        assert len(prompt.encode()) + params.max_tokens <= 200


def test_a_message_longer_than_the_context_is_refused_and_the_chat_goes_on(capsys):
    chat = Chat(FakeEngine(max_model_len=100), SamplingParams(max_tokens=50), Conversation())
    chat.take("x" * 200)
    assert "error: the message is too long" in capsys.readouterr().err
    chat.take("short")
    assert [question for question, _ in chat.conversation.turns] == ["short"]


def test_fit_keeps_as_many_turns_as_possible():
    conversation = Conversation(turns=[("a", "b"), ("c", "d"), ("e", "f")])
    assert conversation.fit("q", len, room=5) == 1
    assert conversation.turns == [("c", "d"), ("e", "f")]
    with pytest.raises(UsageError):
        conversation.fit("q", len, room=0)


def test_answer_room_is_at_most_half_of_the_context():
    assert answer_room(8192, 256) == 256
    assert answer_room(300, 256) == 150


def test_tint_needs_a_drafter_and_a_terminal(shell):
    assert shell("chat", "-m", "fake", "--tint") == 2
    assert "--tint has no effect without a --drafter" in shell.err
    assert shell("chat", "-m", "fake", "-d", "random", "--tint") == 2
    assert "not a terminal" in shell.err
