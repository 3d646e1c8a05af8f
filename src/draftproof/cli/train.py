"""``draftproof train``: the target answers prompts, a drafter learns from them, its folder is written."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.cli.flags import with_flags
from draftproof.cli.opening import listen_to_the_log, prepare_threads, silence_libraries
from draftproof.cli.options import TARGET_HELP, CommonFlags, Dtype
from draftproof.cli.terminal import note
from draftproof.cli.train_view import Reporter
from draftproof.errors import UsageError

_PROMPTS_HELP = (
    "JSON Lines with prompt, question, turns, messages or text, or templates:COUNT for the built-in ones; "
    "=WEIGHT after it sets its share. Repeatable."
)


@with_flags
def train(
    target: Annotated[str, typer.Option("--target", "--model", "-m", help=TARGET_HELP, metavar="TARGET")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Answers, checkpoints and the drafter go here.")],
    common: CommonFlags,
    prompts: Annotated[list[str] | None, typer.Option("--prompts", metavar="FILE[=WEIGHT]", help=_PROMPTS_HELP)] = None,
    answers: Annotated[
        Path | None, typer.Option("--answers", metavar="FILE", help="Answers packed on another machine.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE.yaml", help="Settings; see docs/train.md.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")] = False,
    steps: Annotated[int | None, typer.Option("--steps", metavar="N", help="Steps in all.")] = None,
    max_minutes: Annotated[
        float | None, typer.Option("--max-minutes", metavar="M", help="Train no longer than this.")
    ] = None,
    max_answers: Annotated[
        int | None, typer.Option("--max-answers", metavar="N", help="Use the first N prompts of the mix.")
    ] = None,
    answer_minutes: Annotated[
        float | None, typer.Option("--answer-minutes", metavar="M", help="Let the target answer no longer than this.")
    ] = None,
    init: Annotated[
        str | None, typer.Option("--init", metavar="START", help="target, random, or a drafter's folder.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of weights, anchors, order and prompts.")] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 …")] = "auto",
    dtype: Annotated[Dtype, typer.Option("--dtype", help="Number format of the target.")] = "bfloat16",
    threads: Annotated[int | None, typer.Option("--threads", help="CPU threads.", metavar="N")] = None,
) -> None:
    """Train a DFlash drafter for a target, from prompts to a folder that engines load."""
    for name, value in (("--max-minutes", max_minutes), ("--max-answers", max_answers), ("--steps", steps)):
        if value is not None and not value > 0:
            raise UsageError(f"{name} {value} is out of range: it must be above 0")
    if not prompts and answers is None:
        raise UsageError("nothing to learn from: give --prompts FILE, --prompts templates:COUNT, or --answers FILE")
    if answers is not None and not answers.is_file():
        raise UsageError(f"--answers {answers}: no such file; scripts/pack_answers.py makes one")
    if not prompts and (answer_minutes is not None or max_answers is not None):
        raise UsageError("--answer-minutes and --max-answers have no effect without --prompts")
    if answer_minutes is not None and answer_minutes < 0:
        raise UsageError(f"--answer-minutes {answer_minutes} is out of range: it must be at least 0")
    note(prepare_threads(threads), quiet=common.quiet)
    listen_to_the_log(common.quiet)
    if not common.debug:
        silence_libraries()
    with Reporter(quiet=common.quiet) as reporter:
        run, stream = _prepare(target, prompts or [], out, config, device, dtype, reporter.line, steps, init, seed)
        if answers is not None:
            run.take_answers(answers)
        if prompts and answer_minutes != 0:
            available = sum(len(source.prompts) for source in run.sources)
            run.answer(islice(stream, max_answers), min(max_answers or available, available), answer_minutes)
        folder = run.train(max_minutes=max_minutes, resume=resume)
    print(folder)


def _prepare(
    target: str,
    prompts: list[str],
    out: Path,
    config: Path | None,
    device: str,
    dtype: Dtype,
    report: Callable[[dict[str, Any]], None],
    steps: int | None,
    init: str | None,
    seed: int | None,
) -> tuple[Any, Any]:
    """Everything that can be wrong with the input is found before the first answer."""
    from draftproof.targets.loading import load_target, pick_device, pick_dtype
    from draftproof.train.config import load_settings
    from draftproof.train.run import TrainRun
    from draftproof.train.sources import mix, open_source

    settings, answering = load_settings(config, steps=steps, init=init, seed=seed)
    sources = [open_source(text, answering.seed) for text in prompts]
    where = pick_device(device)
    loaded = load_target(target, device=where, dtype=pick_dtype(dtype, where))
    run = TrainRun(
        target, loaded.model, loaded.tokenizer, out, settings, answering, where, sources=sources, report=report
    )
    return run, mix(sources, answering.seed)
