"""Tinting: every character gets the origin of the token that completed it, however late the text comes."""

from __future__ import annotations

from cli.fakes import ANSWER, ByteTokenizer, FakeEngine
from draftproof.engine.origins import OriginTracker
from draftproof.engine.types import RequestFinished, TokensCommitted


def committed(data, accepted, text):
    return TokensCommitted("r", tuple(data), text, accepted)


def test_accepted_and_bonus_tokens():
    tracker = OriginTracker(ByteTokenizer())
    assert list(tracker.pieces(committed(b"abc", 2, "abc"))) == [("ab", True), ("c", False)]


def test_a_character_belongs_to_the_token_that_completes_it():
    tracker = OriginTracker(ByteTokenizer())
    first, second = "é".encode()
    assert list(tracker.pieces(committed([first], 1, ""))) == []
    assert list(tracker.pieces(committed([second, ord("x")], 1, "éx"))) == [("é", True), ("x", False)]


def test_text_held_back_keeps_its_origin():
    tracker = OriginTracker(ByteTokenizer())
    assert list(tracker.pieces(committed(b"ab", 1, ""))) == []
    assert list(tracker.pieces(RequestFinished("r", "stop", "ab"))) == [("a", True), ("b", False)]


def test_pieces_make_up_the_whole_text():
    from draftproof.engine.types import SamplingParams

    engine = FakeEngine(drafter="random")
    tracker = OriginTracker(engine.tokenizer)
    events = engine.stream("p", SamplingParams())
    assert "".join(text for event in events for text, _ in tracker.pieces(event)) == ANSWER
