"""``draftproof capture``: record what a running vLLM, or our own engine, gives its drafter."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.cli.flags import with_flags
from draftproof.cli.options import TARGET_HELP, CommonFlags, Dtype, JsonFlag
from draftproof.cli.terminal import note
from draftproof.errors import UnavailableError, UsageError
from draftproof.proof.capture.recorder.settings import BYTES, ROUNDS, Settings
from draftproof.runtime import configure_threads

SCHEMA = "draftproof.captured/1"
PRIVACY = "a capture holds prompts, answers and hidden states: keep it as you would keep those"


@dataclass(frozen=True)
class BoundFlags:
    """How much, and where it goes."""

    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="The capture becomes a folder in here.", rich_help_panel="Capture"),
    ] = Path("captures")
    rounds: Annotated[
        int,
        typer.Option("--rounds", metavar="N", help="Most rounds (calls of the drafter).", rich_help_panel="Capture"),
    ] = ROUNDS
    max_mb: Annotated[int, typer.Option("--max-mb", metavar="N", help="Most megabytes.", rich_help_panel="Capture")] = (
        BYTES >> 20
    )
    redact: Annotated[
        bool,
        typer.Option(
            "--redact", help="Prompts' token ids only as hashes: taps cannot be recomputed.", rich_help_panel="Capture"
        ),
    ] = False

    def settings(self) -> Settings:
        for name, value in (("--rounds", self.rounds), ("--max-mb", self.max_mb)):
            if value < 1:
                raise UsageError(f"{name} {value} is out of range: it must be at least 1")
        return Settings(str(self.out.resolve()), self.rounds, self.max_mb << 20, redact=self.redact)


@dataclass(frozen=True)
class ServerFlags:
    """For a command after ``--``."""

    ssh: Annotated[
        str | None,
        typer.Option(
            "--ssh", metavar="HOST", help="Run the command there, over your own ssh.", rich_help_panel="Command"
        ),
    ] = None
    send: Annotated[
        bool | None,
        typer.Option("--send", help="Send it the prompts until enough is captured.", rich_help_panel="Command"),
    ] = None
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint", metavar="URL", help="Where it serves. [default: its --port here]", rich_help_panel="Command"
        ),
    ] = None
    stop: Annotated[
        bool | None, typer.Option("--stop", help="End it when enough is captured.", rich_help_panel="Command")
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="S", help="Most seconds for it. [default: 1800]", rich_help_panel="Command"),
    ] = None


@dataclass(frozen=True)
class OwnFlags:
    """For a capture of draftproof's own engine, without a command."""

    target: Annotated[
        str | None, typer.Option("--target", "-t", metavar="TARGET", help=TARGET_HELP, rich_help_panel="Own engine")
    ] = None
    drafter: Annotated[
        str | None,
        typer.Option("--drafter", "-d", metavar="DRAFTER", help="Its folder or hub id.", rich_help_panel="Own engine"),
    ] = None
    dtype: Annotated[Dtype | None, typer.Option("--dtype", help="Number format.", rich_help_panel="Own engine")] = None
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="N", help="CPU threads.", rich_help_panel="Own engine")
    ] = None


@with_flags
def capture(
    bounds: BoundFlags,
    server: ServerFlags,
    own: OwnFlags,
    common: CommonFlags,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", help="Starts the server, e.g. vllm serve …")
    ] = None,
    prompts: Annotated[str, typer.Option("--prompts", metavar="FILE", help="JSON Lines, or demo.")] = "demo",
    max_tokens: Annotated[int, typer.Option("--max-tokens", metavar="N", help="Per answer.")] = 128,
    json_output: JsonFlag = False,
) -> None:
    """Record what an engine gives its drafter: taps, positions, drafts, the weights in its memory.

    With a command (draftproof capture -- vllm serve …) a plugin is put on its PYTHONPATH, nothing is installed.
    Without one, --target and --drafter are run by draftproof's own engine. The answer: where the capture is.
    """
    settings = bounds.settings()
    note(PRIVACY, quiet=common.quiet)
    if command:
        found = _server(command, settings, server, own, prompts, max_tokens, quiet=common.quiet)
    else:
        found = _own(settings, server, own, prompts, max_tokens, quiet=common.quiet)
    if json_output:
        print(json.dumps({"schema_version": SCHEMA, **found}))
    else:
        print(found["capture"])


def _server(
    command: list[str], settings: Settings, flags: ServerFlags, own: OwnFlags, prompts: str, most: int, *, quiet: bool
) -> dict[str, Any]:
    from draftproof.bench.workloads import load_workload
    from draftproof.proof.capture.places import Here, Place, There
    from draftproof.proof.capture.watching import Wanted, endpoint_of, watch

    for name, value in vars(own).items():
        if value is not None:
            raise UsageError(f"--{name} {value} has no effect with a command; the command names its own models")
    if flags.endpoint is not None and not flags.send:
        raise UsageError("--endpoint has no effect without --send")
    texts: tuple[str, ...] = ()
    endpoint = None
    if flags.send:
        endpoint = flags.endpoint or endpoint_of(command)
        if flags.ssh is not None and flags.endpoint is None:
            raise UsageError(f"--ssh {flags.ssh} --send: give --endpoint URL, the server's address as seen from here")
        texts = tuple(prompt.messages[-1]["content"] for prompt in load_workload(prompts).prompts)
    wanted = Wanted(settings, texts, endpoint, most, bool(flags.stop), flags.timeout or 1800.0)
    folder = Path(settings.folder)
    before = {one.name for one in folder.glob("*")} if folder.is_dir() else set()
    place: Place = Here(folder) if flags.ssh is None else There(flags.ssh, folder)
    outcome = watch(place, command, wanted, lambda text: note(text, quiet=quiet))
    new = sorted(one for one in folder.glob("*/manifest.json") if one.parent.name not in before)
    if not new:
        raise UnavailableError(
            f"nothing was captured (the command {_ended(outcome.exit_code)}): does it draft with DFlash, did it get "
            "requests, is it vLLM in an interpreter that heeds PYTHONPATH?"
        )
    return {"capture": str(new[-1].parent), "rounds": outcome.rounds, "complete": outcome.complete}


def _ended(code: int | None) -> str:
    return "was ended" if code is None else f"ended with code {code}"


def _own(
    settings: Settings, server: ServerFlags, own: OwnFlags, prompts: str, most: int, *, quiet: bool
) -> dict[str, Any]:
    for name, value in vars(server).items():
        if value is not None:
            raise UsageError(f"--{name} has no effect without a command after --")
    if own.target is None or own.drafter is None:
        raise UsageError("give a command after --, or --target and --drafter for draftproof's own engine")
    note(configure_threads(own.threads), quiet=quiet)
    from draftproof.bench.workloads import encode, load_workload
    from draftproof.engine.engine import Engine
    from draftproof.engine.types import SamplingParams
    from draftproof.proof.capture.own import RecordingDrafter
    from draftproof.proof.capture.recorder.recorder import Recorder

    recorder = Recorder(settings)
    engine = Engine(own.target, own.drafter, dtype=own.dtype or "auto", length_policy="fixed")
    inner: Any = engine.drafter
    names = (own.target, own.drafter)
    watched = engine.with_drafter(lambda target: RecordingDrafter(inner, recorder, *names))
    for prompt in load_workload(prompts).prompts:
        if not recorder.open:
            break
        watched.generate([encode(engine, prompt)], SamplingParams(max_tokens=most))
    recorder.close("prompts")
    if recorder.path is None or not recorder.rounds:
        raise UnavailableError(f"--out {settings.folder}: nothing was captured; the line above says why")
    return {"capture": recorder.path, "rounds": recorder.rounds, "complete": True}
