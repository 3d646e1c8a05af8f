"""A chat's history and its fitting into the context window. Knows no terminal and no engine internals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from draftproof.cli.protocol import Message, Prompt, TextEngine
from draftproof.errors import UsageError


@dataclass
class Conversation:
    """Turns of user and assistant, always in pairs except for the question being answered."""

    system: str | None = None
    turns: list[tuple[str, str]] = field(default_factory=list)

    def messages(self, question: str) -> list[Message]:
        listed: list[Message] = []
        if self.system is not None:
            listed.append({"role": "system", "content": self.system})
        for asked, answered in self.turns:
            listed.append({"role": "user", "content": asked})
            listed.append({"role": "assistant", "content": answered})
        return [*listed, {"role": "user", "content": question}]

    def keep(self, question: str, answer: str) -> None:
        """Ends a turn. An answer stopped before its first word leaves no trace."""
        if answer.strip():
            self.turns.append((question, answer))

    def undo(self) -> str | None:
        """Takes back the last turn; returns its question."""
        return self.turns.pop()[0] if self.turns else None

    def reset(self) -> None:
        self.turns.clear()

    def fit(self, question: str, measure: Callable[[list[Message]], int], room: int) -> int:
        """Drops oldest turns until the prompt fits into ``room`` tokens; returns how many were dropped."""
        for dropped in range(len(self.turns) + 1):
            shorter = Conversation(self.system, self.turns[dropped:])
            length = measure(shorter.messages(question))
            if length <= room:
                self.turns = shorter.turns
                return dropped
        raise UsageError(
            f"the message is too long: {length} tokens, and the context has room for {room};"
            " shorten it or raise --max-model-len"
        )


def prompt_length(engine: TextEngine, prompt: Prompt) -> int:
    """Tokens of a prompt that the chat template made (its special tokens are in the text already)."""
    if isinstance(prompt, str):
        return len(engine.tokenizer.encode(prompt, add_special_tokens=False))
    return len(prompt)


def answer_room(max_model_len: int, max_tokens: int) -> int:
    """Tokens kept free for the answer: what was asked for, but never more than half of the context."""
    return min(max_tokens, max_model_len // 2)
