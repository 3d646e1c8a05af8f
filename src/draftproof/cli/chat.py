"""``draftproof chat``: a conversation with history, at a terminal or through a pipe."""

from __future__ import annotations

import dataclasses
import sys
from contextlib import closing
from typing import Annotated

import typer

from draftproof.cli.chat_view import HELP, AnswerWriter, farewell, read_turn
from draftproof.cli.conversation import Conversation, answer_room, prompt_length
from draftproof.cli.flags import with_flags
from draftproof.cli.generate_view import print_stats
from draftproof.cli.opening import open_engine
from draftproof.cli.options import CommonFlags, LoadFlags, Model, SamplingFlags, SpeculationFlags
from draftproof.cli.params import engine_arguments, sampling_params
from draftproof.cli.prompts import has_chat_template
from draftproof.cli.protocol import TextEngine
from draftproof.cli.summary import Run, run_request
from draftproof.cli.terminal import note
from draftproof.engine.types import SamplingParams
from draftproof.errors import UsageError


@with_flags
def chat(
    model: Model,
    load: LoadFlags,
    speculation: SpeculationFlags,
    sampling: SamplingFlags,
    common: CommonFlags,
    system: Annotated[str | None, typer.Option("--system", help="System message.", metavar="TEXT")] = None,
    tint: Annotated[bool, typer.Option("--tint", help="Colour drafted tokens; the target's own stay plain.")] = False,
) -> None:
    """Talk to a model; /help lists what can be typed."""
    params = sampling_params(sampling)
    arguments = engine_arguments(model, load, speculation, params)
    if params.logprobs is not None:
        raise UsageError("--logprobs has no effect in chat")
    if tint and load.drafter is None:
        raise UsageError("--tint has no effect without a --drafter")
    if tint and not sys.stdout.isatty():
        raise UsageError("--tint has no effect when stdout is not a terminal")
    engine = open_engine(arguments, quiet=common.quiet, debug=common.debug)
    if not has_chat_template(engine):
        raise UsageError(f"{model}: its tokenizer has no chat template; use draftproof generate --raw")
    Chat(engine, params, Conversation(system), tint=tint, quiet=common.quiet).loop()


class Chat:
    """The loop: read a turn, do a command or answer, until the end of input."""

    def __init__(
        self,
        engine: TextEngine,
        params: SamplingParams,
        conversation: Conversation,
        *,
        tint: bool = False,
        quiet: bool = False,
    ) -> None:
        self.engine = engine
        self.params = params
        self.conversation = conversation
        self.tint = tint
        self.quiet = quiet
        self.runs: list[Run] = []

    def loop(self) -> None:
        note("/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends", quiet=self.quiet)
        while True:
            try:
                text = read_turn()
            except EOFError:
                farewell()
                return
            except KeyboardInterrupt:
                note("\n(Ctrl-D or /quit ends)", quiet=self.quiet)
                continue
            if text == "/quit":
                return
            self.take(text)

    def take(self, text: str) -> None:
        """One turn of input: a command, a message, or nothing."""
        word = text.strip()
        if word.startswith("/") and word[1:].isalpha():
            self.command(word)
        elif word:
            try:
                self.answer(text)
            except UsageError as error:  # this message cannot be answered; the conversation goes on
                note(f"error: {error}")

    def command(self, word: str) -> None:
        match word:
            case "/help":
                note(HELP)
            case "/reset":
                self.conversation.reset()
                note("(history is empty)")
            case "/undo":
                question = self.conversation.undo()
                note("(nothing to take back)" if question is None else f"(took back: {_short(question)})")
            case "/stats" if self.runs:
                print_stats(self.runs)
            case "/stats":
                note("(no answer yet)")
            case _:
                note(f"unknown command {word}; /help lists them")

    def answer(self, question: str) -> None:
        """Streams an answer; whatever was said when Ctrl-C stopped it is what stays in the history."""
        params = self._fit(question)
        prompt = self.engine.apply_chat_template(self.conversation.messages(question))
        writer = AnswerWriter(self.engine.tokenizer, tint=self.tint)
        run = Run.empty()
        try:
            with closing(run_request(self.engine, prompt, params, run)) as events:
                for event in events:
                    writer.write(event)
        except KeyboardInterrupt:
            writer.stopped()
        writer.end()
        if run.output.finish_reason == "error":
            note(f"error: {run.output.finish_detail}")
            return
        self.conversation.keep(question, run.output.text)
        self.runs.append(run)

    def _fit(self, question: str) -> SamplingParams:
        """Makes room in the context; returns the parameters with a max_tokens that fits."""
        limit = self.engine.max_model_len

        def measure(messages: list[dict[str, str]]) -> int:
            return prompt_length(self.engine, self.engine.apply_chat_template(messages))

        room = limit - answer_room(limit, self.params.max_tokens)
        dropped = self.conversation.fit(question, measure, room)
        if dropped:
            note(f"(the context is full: dropped the {dropped} oldest turn{'s' if dropped > 1 else ''})")
        left = limit - measure(self.conversation.messages(question))
        most = min(self.params.max_tokens, left)
        least = min(self.params.min_tokens, most)
        return dataclasses.replace(self.params, max_tokens=most, min_tokens=least)


def _short(text: str, width: int = 50) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
