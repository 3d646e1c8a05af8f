"""The demo's progress on stderr: a bar where someone watches, a line per prompt in a log."""

from __future__ import annotations

from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from draftproof.cli.demo_run import Way
from draftproof.cli.prompts import NamedPrompt
from draftproof.cli.summary import Run
from draftproof.cli.terminal import err_console, note


class DemoProgress:
    """Told of every finished run; ``ways`` runs make a prompt."""

    def __init__(self, prompts: int, ways: int, *, quiet: bool) -> None:
        console = err_console()
        self._prompts, self._ways, self._quiet = prompts, ways, quiet
        self._done = 0
        self._speeds: dict[str, float] = {}
        self._bar = None
        if console.is_terminal and not quiet:
            self._bar = Progress(
                TextColumn("{task.description:<15}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("warming up", total=prompts * ways)

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
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=prompt.name)
            return
        self._speeds[way.name] = run.decoded / run.decode_s
        if len(self._speeds) == self._ways:
            speeds = ", ".join(f"{name} {speed:.1f}" for name, speed in sorted(self._speeds.items()))
            note(f"{self._done // self._ways}/{self._prompts} {prompt.name}: {speeds} tok/s", quiet=self._quiet)
            self._speeds.clear()
