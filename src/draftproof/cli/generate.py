"""``draftproof generate``: one prompt, streamed to stdout or as one JSON object."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from draftproof.cli.flags import with_flags
from draftproof.cli.generate_view import as_json, print_stats
from draftproof.cli.opening import open_engine
from draftproof.cli.options import (
    CommonFlags,
    JsonFlag,
    LoadFlags,
    Model,
    SamplingFlags,
    SpeculationFlags,
)
from draftproof.cli.params import engine_arguments, sampling_params
from draftproof.cli.prompts import as_request, read_prompt
from draftproof.cli.protocol import Prompt, TextEngine
from draftproof.cli.summary import Run, committed_text, run_request, run_to_end
from draftproof.cli.terminal import write_text
from draftproof.engine.types import SamplingParams
from draftproof.errors import UsageError


@with_flags
def generate(
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from stdin.")],
    model: Model,
    load: LoadFlags,
    speculation: SpeculationFlags,
    sampling: SamplingFlags,
    common: CommonFlags,
    chat: Annotated[
        bool | None,
        typer.Option("--chat/--raw", help="Use the chat template, or not. Default: if there is one."),
    ] = None,
    system: Annotated[str | None, typer.Option("--system", help="System message.", metavar="TEXT")] = None,
    json_output: JsonFlag = False,
    stats: Annotated[bool, typer.Option("--stats", help="A small table on stderr at the end.")] = False,
) -> None:
    """Continue or answer one prompt."""
    params = sampling_params(sampling)
    arguments = engine_arguments(model, load, speculation, params)
    if params.logprobs is not None and not json_output:
        raise UsageError("--logprobs has no effect without --json")
    text = read_prompt(prompt)
    engine = open_engine(arguments, quiet=common.quiet, debug=common.debug)
    request = as_request(engine, text, chat=chat, system=system)
    if json_output:
        run = run_to_end(engine, request, params)
        print(as_json(run, engine, params))
    else:
        run = stream_answer(engine, request, params)
    if stats:
        print_stats([run])


def stream_answer(engine: TextEngine, request: Prompt, params: SamplingParams) -> Run:
    """Writes text as it becomes final; Ctrl-C ends the line before it ends the program."""
    run, last = Run.empty(), ""
    with closing(run_request(engine, request, params, run)) as events:
        try:
            for event in events:
                text = committed_text(event)
                if text:
                    last = text
                    write_text(text)
        finally:
            if last and not last.endswith("\n"):
                write_text("\n")
    run.raise_failure()
    return run
