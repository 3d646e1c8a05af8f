"""A log, whoever wrote it, as facts: draft counts, load, start-up facts and the lines that name a fault.

Counts of all replicas are added; a server that starts again in the same log begins a new count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO

from draftproof.proof.runtime import llama_log, sglang_log, vllm_log
from draftproof.proof.runtime.reading import Seen, interesting_lines, open_log
from draftproof.proof.runtime.startup import Startup
from draftproof.proof.runtime.summary_lines import Summary
from draftproof.proof.runtime.tally import Tally
from draftproof.proof.runtime.windows import Window

# One of these stands in every line that any parser wants.
WORDS = (
    b"ccept", b"raft", b"eval time", b"Avg generation", b"rror", b"ailed", b"assert", b"ASSERT", b"KV cache group",
    b"suboptimal", b"cannot run", b"not yet supported", b"lash", b"speculative", b"version", b"build:",
)  # fmt: skip
_FAULT = re.compile(
    r"Error\b|Exception\b|GGML_ASSERT|\bfailed\b|out of memory|illegal memory access|Xid|KV cache group could be|"
    r"suboptimal performance|draft_logits=|cannot run the operation|not yet supported with speculative|"
    r"DFlash context target|does not support mixed|ctx_other|unclaimed|unexpected tensor|missing tensor|"
    r"_impl_draft_|p_min=",
)
_SECRET = re.compile(
    r"(?i)(\b(?:authorization|api[_-]?key|token|secret|password)\b[\"']?\s*[:=]\s*[\"']?(?:bearer\s+)?|\bbearer\s+)"
    r"[^\s\"',;)]{6,}|\b(?:sk|hf|gsk|xai)[-_][A-Za-z0-9_-]{8,}"
)
_DIGITS = re.compile(r"[0-9a-fx]*\d[0-9a-fx]*")
MOST_LINES = 60
LONGEST = 500


@dataclass
class LogFacts:
    """``lines``: fault lines, each kind once, with their place; ``unusable``: reason → how many windows."""

    names: list[str] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    startup: Startup = field(default_factory=Startup)
    lines: list[tuple[str, str]] = field(default_factory=list)
    load: dict[str, float] = field(default_factory=dict)
    unusable: dict[str, int] = field(default_factory=dict)
    eval_ms: float = 0.0
    eval_tokens: float = 0.0
    starts: int = 0
    seen: Seen = field(default_factory=Seen)
    notes: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not self.tally.total.windows and not self.lines and not self.startup.found


def read_logs(names: Sequence[str]) -> LogFacts:
    """All files as one log, in the order given. Raises UsageError or UnavailableError for one that cannot be read."""
    facts = LogFacts()
    for name in names:
        with open_log(name) as stream:
            _read(stream, name, facts)
    facts.tally.finish()
    return facts


def read_stream(stream: IO[bytes], name: str = "log") -> LogFacts:
    facts = LogFacts()
    _read(stream, name, facts)
    facts.tally.finish()
    return facts


def _read(stream: IO[bytes], name: str, facts: LogFacts) -> None:
    seen = Seen()
    summary = Summary()
    reader = _Reader(name, facts, summary)
    for number, line in interesting_lines(stream, WORDS, seen):
        try:
            reader.line(number, line)
        except ValueError:  # digits and dots that make no number
            reader.window("a garbled number", number)
    if left := summary.flush():
        reader.window(left, reader.last)
    facts.names.append(name)
    facts.seen.lines += seen.lines
    facts.seen.bytes += seen.bytes
    facts.seen.nul_bytes += seen.nul_bytes
    facts.notes += [f"{name}: {note}" for note in seen.notes]
    if seen.nul_bytes > seen.bytes // 100:
        facts.notes.append(f"{name}: {seen.nul_bytes} NUL bytes of {seen.bytes}; this looks like a binary file")


@dataclass
class _Reader:
    name: str
    facts: LogFacts
    summary: Summary
    last: int = 0
    steps: int = sglang_log.INTERVAL
    templates: set[str] = field(default_factory=set)

    def line(self, number: int, line: str) -> None:
        self.last = number
        # By far the most lines of a long log are these; two processes may have glued a window to one.
        alone = "Avg generation throughput" in line and "Spec" not in line
        if alone and (load := vllm_log.load(line)):
            self._load(vllm_log.replica(line), load)
            return
        if "decode_log_interval=" in line:
            self.steps = sglang_log.interval(line) or self.steps
        found = self._windows(line)
        for window in found:
            self.window(window, number)
        if found:
            return
        if timing := llama_log.eval_speed(line):
            self.facts.eval_ms += timing[0]
            self.facts.eval_tokens += timing[1]
        elif done := self.summary.line(line):
            self.window(done, number)
        if self.facts.startup.line(line, f"{self.name}:{number}"):
            self._start(vllm_log.replica(line))
        if _FAULT.search(line):
            self._keep(number, line)

    def _windows(self, line: str) -> list[Window | str]:
        if ("Spec" in line and vllm_log.MARK.search(line)) or "Per-position acceptance rate:" in line:
            return vllm_log.windows(line)
        return sglang_log.windows(line, self.steps) or llama_log.windows(line)

    def window(self, window: Window | str, number: int) -> None:
        if isinstance(window, str):
            self.facts.unusable[window] = self.facts.unusable.get(window, 0) + 1
        else:
            window.line = number
            self.facts.tally.add(window)

    def _load(self, replica: str, load: dict[str, float]) -> None:
        self.facts.tally.load(replica, load["running"], load["tok_s"])
        self.facts.load |= {name: load[name] for name in load if name not in ("running", "tok_s")}

    def _start(self, replica: str) -> None:
        """A server starts: what was counted before belongs to an earlier run."""
        self.facts.starts += 1
        if self.facts.tally.total.windows:
            windows = self.facts.tally.total.windows
            self.facts.notes.append(
                f"{self.name}:{self.last}: the server starts again; {windows} windows before it left"
            )
            self.facts.tally = Tally()

    def _keep(self, number: int, line: str) -> None:
        line = hide_secrets(line[: 8 * LONGEST])[:LONGEST]  # cut before patterns run over it, again after
        template = _DIGITS.sub("#", line)[-160:]
        if template in self.templates or len(self.facts.lines) >= MOST_LINES:
            return
        self.templates.add(template)
        self.facts.lines.append((line, f"{self.name}:{number}"))


def hide_secrets(text: str) -> str:
    """Keys and tokens never reach a report or a saved case."""
    return _SECRET.sub(lambda found: (found.group(1) or "") + "[hidden]", text)
