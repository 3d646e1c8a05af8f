"""One answer on its way to a client: events in, deltas out. Streams and whole responses are made of the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from draftproof.engine.types import (
    Event,
    PrefillFinished,
    RequestFinished,
    RoundFinished,
    RoundStats,
    TokenLogprob,
    TokensCommitted,
)
from draftproof.server.parser import Call, OutputParser, Pieces


@dataclass
class Delta:
    """What one round added to an answer. ``finish``: why it ended, if it did."""

    index: int
    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    first_call: int = 0  # number of calls before these
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: str | None = None
    detail: str = ""
    rounds: list[dict[str, Any]] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.content or self.reasoning or self.calls or self.logprobs or self.finish or self.rounds)

    def add(self, pieces: Pieces) -> None:
        self.content += pieces.content
        self.reasoning += pieces.reasoning
        self.calls += pieces.calls


@dataclass
class Answer:
    """``parser`` None: the text is content as it is. ``origins``: splits a round's text into what was drafted and what
    was not, for clients that ask for it."""

    index: int
    parser: OutputParser | None = None
    origins: Any = None
    token_ids: list[int] = field(default_factory=list)
    cached_tokens: int = 0
    accepted: int = 0
    rounds: list[RoundStats] = field(default_factory=list)
    calls: int = 0

    def take(self, events: Sequence[Event]) -> Delta:
        """One step's events of this answer."""
        delta = Delta(self.index, first_call=self.calls)
        for event in events:
            match event:
                case PrefillFinished():
                    self.cached_tokens = event.cached_tokens
                case TokensCommitted():
                    self.token_ids += event.token_ids
                    self.accepted += event.accepted
                    delta.logprobs += event.logprobs or ()
                    self._say(delta, event.text)
                case RoundFinished():
                    self.rounds.append(event.stats)
                case RequestFinished():
                    self._say(delta, event.text)
                    if self.parser is not None:
                        delta.add(self.parser.finish())
            self._tell(delta, event)
        self.calls += len(delta.calls)
        for event in events:
            if isinstance(event, RequestFinished):
                delta.detail = event.detail
                delta.finish = "tool_calls" if self.calls and event.reason == "stop" else event.reason
        return delta

    def _say(self, delta: Delta, text: str) -> None:
        if self.parser is None:
            delta.content += text
        else:
            delta.add(self.parser.push(text))

    def _tell(self, delta: Delta, event: Event) -> None:
        """The round's pieces of text by origin, then what was drafted and accepted."""
        if self.origins is None:
            return
        if isinstance(event, TokensCommitted | RequestFinished):
            pieces = [[text, drafted] for text, drafted in self.origins.pieces(event)]
            if isinstance(event, TokensCommitted) or pieces:
                accepted = event.accepted if isinstance(event, TokensCommitted) else 0
                delta.rounds.append({"drafted": 0, "accepted": accepted, "pieces": pieces})
        elif isinstance(event, RoundFinished) and delta.rounds:
            delta.rounds[-1] |= {"drafted": event.stats.drafted, "accepted": event.stats.accepted}


def usage(answers: Sequence[Answer], prompts: Sequence[int], reasoning: int | None = None) -> dict[str, Any]:
    """Token counts over a response's prompts and answers. Only the first answer to a prompt reads it."""
    per_prompt = len(answers) // max(len(prompts), 1)
    completion = sum(len(a.token_ids) for a in answers)
    accepted = sum(a.accepted for a in answers)
    drafted = sum(r.drafted for a in answers for r in a.rounds)
    details: dict[str, Any] = {
        "accepted_prediction_tokens": accepted,
        "rejected_prediction_tokens": max(drafted - accepted, 0),
    }
    if reasoning is not None:
        details["reasoning_tokens"] = reasoning
    return {
        "prompt_tokens": sum(prompts),
        "completion_tokens": completion,
        "total_tokens": sum(prompts) + completion,
        "prompt_tokens_details": {"cached_tokens": sum(a.cached_tokens for a in answers[::per_prompt])},
        "completion_tokens_details": details,
    }


def speculation(answers: Sequence[Answer]) -> dict[str, Any]:
    """Raw counts of a response's rounds. ``accepted_at_least[k]``: rounds that accepted more than k tokens."""
    rounds = [r for a in answers for r in a.rounds]
    drafted = [r for r in rounds if r.depth]
    deepest = max((r.depth for r in drafted), default=0)
    return {
        "rounds": len(rounds),
        "rounds_with_drafts": len(drafted),
        "draft_tokens": sum(r.drafted for r in drafted),
        "accepted_tokens": sum(r.accepted for r in drafted),
        "accepted_at_least": [sum(r.accepted > k for r in drafted) for k in range(deepest)],
    }
