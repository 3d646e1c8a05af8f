"""Opens an engine for a command: threads first, libraries silenced, then the models."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from draftproof.cli.protocol import TextEngine
from draftproof.cli.terminal import err_console, note


def open_engine(arguments: dict[str, Any], *, quiet: bool, debug: bool) -> TextEngine:
    """The engine for these arguments. Says on stderr what was set and what is being loaded."""
    note(prepare_threads(arguments.get("threads")), quiet=quiet)
    listen_to_the_log(quiet)
    if not debug:
        silence_libraries()
    with _loading(str(arguments["target"]), arguments.get("drafter"), quiet):
        engine = make_engine(**arguments)
    for remark in engine.describe().get("notes", ()):
        note(f"note: {remark}", quiet=quiet)
    return engine


def prepare_threads(threads: int | None) -> str:
    """Must come before torch is imported: OpenMP reads its settings once."""
    from draftproof.runtime import configure_threads

    return configure_threads(threads)


def make_engine(**arguments: Any) -> TextEngine:
    from draftproof import Engine

    return cast(TextEngine, Engine(**arguments))


def ways_on(engine: TextEngine, tree_budget: int | None) -> dict[str, TextEngine]:
    """Target alone, chain and tree on this engine's weights, so that they are loaded once."""
    from draftproof.bench.ways import ways_of

    return cast(dict[str, TextEngine], ways_of(cast(Any, engine), (tree_budget,)))


def silence_libraries() -> None:
    """transformers and huggingface_hub draw bars and log on import; stderr is ours."""
    for name, value in (
        ("TRANSFORMERS_VERBOSITY", "error"),
        ("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1"),
        ("HF_HUB_DISABLE_PROGRESS_BARS", "1"),
        ("HF_HUB_VERBOSITY", "error"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("TQDM_DISABLE", "1"),
    ):
        os.environ.setdefault(name, value)
    for library in ("transformers", "huggingface_hub", "torch"):
        logging.getLogger(library).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    if "transformers" in sys.modules:  # imported already: the environment comes too late
        from transformers.utils import logging as transformers_logging

        transformers_logging.set_verbosity_error()


class _Notes(logging.Handler):
    """The package's own log lines as notes on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        note(prefix + record.getMessage())


def listen_to_the_log(quiet: bool) -> None:
    """Show what the package logs: announcements of slow steps unless quiet, warnings always."""
    logger = logging.getLogger("draftproof")
    if not any(isinstance(handler, _Notes) for handler in logger.handlers):
        logger.addHandler(_Notes())
        logger.propagate = False
    logger.setLevel(logging.WARNING if quiet else logging.INFO)


def _loading(target: str, drafter: str | None, quiet: bool) -> AbstractContextManager[object]:
    """A spinner while loading, where someone watches."""
    console = err_console()
    if quiet or not console.is_terminal:
        return nullcontext()
    return console.status(f"loading {target}" + (f" and {drafter}" if drafter else ""))
