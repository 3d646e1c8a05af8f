"""What a training run says while it runs: a bar with the time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from draftproof.cli.terminal import err_console, note


class Reporter:
    """Takes the run's reports (plain data) and shows them on stderr."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        console = err_console()
        shown = not quiet and console.is_terminal
        self.bar = Progress(TextColumn("{task.description}"), BarColumn(), console=console) if shown else None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Reporter:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def line(self, report: dict[str, Any]) -> None:
        text = sentence(report)
        if self.bar is None:
            note(text, quiet=self.quiet)
            return
        if report["kind"] == "evaluation":
            self.bar.console.print(text)
            return
        kind = report["kind"]
        if kind not in self._tasks:
            self._tasks[kind] = self.bar.add_task(text, total=1.0)
        self.bar.update(self._tasks[kind], description=text, completed=report["progress"])


def sentence(report: dict[str, Any]) -> str:
    """One report in words."""
    if report["kind"] == "answers":
        rate = report["tokens"] / max(report["seconds"], 1e-9)
        cut = report["cut"] / max(report["tokens"] + report["cut"], 1)
        return (
            f"{report['answers']} answers, {report['tokens']} tokens ({rate:.0f}/s), "
            f"{100 * cut:.1f} % of them repetition and cut, {report['minutes_left']:.0f} min left"
        )
    if report["kind"] == "taps":
        return f"hidden states of {report['done']} of {report['of']} answers"
    if report["kind"] == "evaluation":
        rates = " ".join(f"{rate:.2f}" for rate in report["rates"])
        interval = "–" if report["tau_ci95"] is None else "{:.2f}–{:.2f}".format(*report["tau_ci95"])
        return f"step {report['step']}: τ {report['tau'] or 1.0:.2f} ({interval}); accepted at least: {rates}"
    return (
        f"step {report['step']}: loss {report['loss']:.3f}, {report['hits']:.2f} right in a row, "
        f"{report['draft_tokens_per_s']:.0f} drafted tokens/s, {report['minutes_left']:.0f} min left"
    )
