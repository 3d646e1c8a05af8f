"""``draftproof``: one command per file; errors become one line on stderr and a documented exit code."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.main import get_command

from draftproof import __version__
from draftproof.cli.flags import ReaderGone
from draftproof.cli.sections import SectionedCommand
from draftproof.cli.terminal import tolerate_encodings
from draftproof.errors import (
    EXIT_FINDINGS,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    DraftproofError,
)

EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h: a defect of draftproof itself
EXIT_READER_GONE = 141  # 128 + SIGPIPE, as shells count it
EXIT_CODES = {
    EXIT_OK: "done",
    EXIT_FINDINGS: "a check ran and found something, or failed, e.g. the demo's ways differ in invariant mode",
    EXIT_USAGE: "a flag, a value or an input that cannot be meant; one line says what and how to mend it",
    EXIT_UNAVAILABLE: "something outside is missing (hub, package, device, disk space), or a check could not tell",
    EXIT_INTERNAL: "internal error, a defect of draftproof; --debug shows the traceback",
    EXIT_INTERRUPTED: "stopped by Ctrl-C",
    EXIT_READER_GONE: "whoever read the output closed it (draftproof … | head)",
}

# One module each, of the same name, imported when it is wanted: a command starts without the others.
COMMANDS = (
    "generate",
    "chat",
    "demo",
    "train",
    "convert",
    "evaluate",
    "lab",
    "capture",
    "replay",
    "check",
    "doctor",
    "diagnose",
    "serve",
    "bench",
)


def make_app(only: str | None = None) -> typer.Typer:
    """The command line: all commands, or one."""
    app = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="DFlash speculative decoding that gives exactly the target's text, and shows it.",
    )
    for name in COMMANDS if only is None else (only,):
        module = importlib.import_module(f"draftproof.cli.{name}")
        if name == "bench":  # a group of its own
            app.add_typer(module.app, name=name)
        else:
            app.command(cls=SectionedCommand)(getattr(module, name))
    app.callback()(_root)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"draftproof {__version__}")
        raise typer.Exit()


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks (also after a command).")] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    options = words[: words.index("--")] if "--" in words else words
    tolerate_encodings()
    code = _run(words, debug="--debug" in options)
    return _flushed(code)


def _run(words: list[str], *, debug: bool) -> int:
    try:
        asked = next((word for word in words if not word.startswith("-")), None)
        app = make_app(asked if asked in COMMANDS else None)
        result = get_command(app).main(args=words, prog_name="draftproof", standalone_mode=False)
        return result if isinstance(result, int) else EXIT_OK
    except DraftproofError as error:
        return _failed(f"error: {error}", error.exit_code, debug)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except (BrokenPipeError, ReaderGone):
        return EXIT_READER_GONE
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else EXIT_OK
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of typer's parser
            return _usage_error(error)
        kind = type(error).__name__
        return _failed(f"internal error: {kind}: {_one_line(error)}", EXIT_INTERNAL, debug, hint=True)


def _usage_error(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message() or error.ctx.get_help(), file=sys.stderr)
        return int(error.exit_code)
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "draftproof"
    print(f"error: {_one_line(error.format_message())} (see {path} --help)", file=sys.stderr)
    return int(error.exit_code)


def _failed(message: str, code: int, debug: bool, *, hint: bool = False) -> int:
    if debug:
        traceback.print_exc()
    print(message + ("" if debug or not hint else " (run with --debug for the traceback)"), file=sys.stderr)
    return code


def _one_line(message: object) -> str:
    return " ".join(str(message).split()) or "no message"


def _flushed(code: int) -> int:
    """Writes out what is left; a reader that is gone must not cause a message at interpreter exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = EXIT_READER_GONE
    if code == EXIT_READER_GONE:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


if __name__ == "__main__":
    sys.exit(main())
