"""The demo's progress on stderr: a bar where someone watches, a line per prompt in a log."""

from __future__ import annotations

from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from draftproof.cli.demo_run import Way
from draftproof.cli.prompts import NamedPrompt
from draftproof.cli.summary import Run
from draftproof.cli.terminal import err_console, note


class DemoProgress:
    def __init__(self, runs: int, *, quiet: bool) -> None:
        console = err_console()
        self._runs = runs
        self._done = 0
        self._quiet = quiet
        self._bar = None
        if console.is_terminal and not quiet:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("warming up", total=runs)

    def __enter__(self) -> DemoProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, way: Way, prompt: NamedPrompt, run: Run) -> None:
        self._done += 1
        speed = run.decoded / run.decode_s
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=f"{prompt.name}, {way.name}")
        else:
            text = f"{self._done}/{self._runs} {prompt.name}, {way.name}: {speed:.1f} tok/s"
            note(text, quiet=self._quiet)
