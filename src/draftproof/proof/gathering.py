"""From what a user has (a case, files, a launch line, logs, counters, words) to one case."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from draftproof.errors import UnavailableError, UsageError
from draftproof.proof.case import Case, Observation, read_case
from draftproof.proof.runtime import prometheus
from draftproof.proof.runtime.evidence import add, from_log, from_scrape, with_startup
from draftproof.proof.runtime.logs import LogFacts, read_logs

_WORKLOAD = {
    "dataset", "num_prompts", "num_prompt_types", "temperature", "top_p", "top_k", "thinking", "language",
    "concurrency", "context_tokens", "prompt_tokens", "max_tokens", "num_output_tokens", "modality", "tools",
    "tool_choice", "streaming", "structured_output", "reasoning_parser", "request_params",
}  # fmt: skip
# Figures that a user knows and no log prints; they belong to the state under diagnosis.
_FIGURES = {
    "baseline_tok_s", "tok_s", "step_ms", "baseline_step_ms", "speed_reported", "acceptance_reported",
    "mean_acceptance_length", "acceptance_rate", "output", "outcome", "kv_cache_usage", "ttft_s",
}  # fmt: skip
_CONDITIONS = {
    "cached_prefix",
    "repeated_prompt",
    "request_index",
    "enforce_eager",
    "cudagraph_mode",
    "runner",
    "image",
}
_ALIASES = {"context": "context_tokens", "streams": "concurrency", "n": "num_speculative_tokens"}
_ENGINE = re.compile(r"([A-Za-z][\w.+-]*?)(?:==|@)([\w.+!-]+)$")


@dataclass(frozen=True)
class Sources:
    """What was given on the command line; None or empty where nothing was."""

    case: Path | None = None
    drafter: str | None = None
    target: str | None = None
    engine: str | None = None
    launch: str | None = None
    log: Sequence[str] = ()
    metrics: Sequence[str] = ()
    workload: Sequence[str] = ()

    @property
    def empty(self) -> bool:
        return not any(vars(self).values())


def gather(sources: Sources, *, interval: float = 0.0, key: str | None = None) -> tuple[Case, tuple[str, ...]]:
    """One case of everything, and notes on what was odd about it. Logs come before counters: they have a curve over
    time. Raises UsageError or UnavailableError with the flag that gave the trouble."""
    if sources.empty:
        raise UsageError("nothing to diagnose: give --case, --drafter, --launch, --log or --metrics (see --help)")
    case = read_case(sources.case) if sources.case is not None else Case()
    notes: list[str] = []
    case = _engine(case, sources.engine)
    if sources.log:
        case = _logs(case, sources.log, notes)
    if sources.metrics:
        case = _metrics(case, sources.metrics, interval, key, notes)
    return _facts(case, sources.workload), tuple(notes)


def _engine(case: Case, given: str | None) -> Case:
    if given is None:
        return case
    found = _ENGINE.match(given)
    if found is None and re.fullmatch(r"[A-Za-z][\w.+-]*", given) and not Path(given).exists():
        found = re.match(r"(.*)()", given)
    if found is not None:
        name, version = found.group(1), found.group(2) or None
        origins = {**case.origins, "engine.name": "--engine", "engine.version": "--engine"}
        return replace(case, engine=replace(case.engine, name=name, version=version), origins=origins)
    raise UsageError(f"--engine {given}: neither NAME==VERSION (vllm==0.25.1) nor a report of doctor --json")


def _logs(case: Case, names: Sequence[str], notes: list[str]) -> Case:
    if len(set(names)) < len(names):
        raise UsageError(f"--log {max(names, key=list(names).count)}: given twice, its drafts would count twice")
    facts = read_logs(names)
    if facts.empty:
        kind = "looks like a binary file" if facts.seen.nul_bytes else f"{facts.seen.lines} lines read"
        raise UnavailableError(
            f"--log {', '.join(names)}: no line of vLLM, SGLang or llama.cpp about drafts ({kind}); "
            "is statistics logging on (vLLM: without --disable-log-stats)?"
        )
    notes += facts.notes
    notes += [f"{count} windows not counted: {reason}" for reason, count in facts.unusable.items()]
    notes += _remarks(facts)
    observations, origins = from_log(facts)
    return add(with_startup(case, facts.startup), observations, origins)


def _remarks(facts: LogFacts) -> list[str]:
    """What the split of a log suggests but does not prove: the requests were not the same."""
    tally, found = facts.tally, []
    if len(tally.replicas) > 1:
        found.append(f"{len(tally.replicas)} replicas or slots added up: {', '.join(sorted(tally.replicas)[:6])}")
    alone, together = tally.alone.length, tally.together.length
    enough = min(tally.alone.drafts, tally.together.drafts) >= 200
    if enough and alone and together and (together - 1) <= 0.85 * (alone - 1):
        found.append(
            f"windows with several requests accept less ({together:.2f}) than those with one ({alone:.2f}); "
            "the same prompts with 1 and 4 streams would tell whether that is the load"
        )
    if tally.total.estimated:
        found.append("SGLang prints averages, no counts: the number of drafts is an estimate from its logging interval")
    return found


def _metrics(case: Case, names: Sequence[str], interval: float, key: str | None, notes: list[str]) -> Case:
    if len(names) > 2:
        raise UsageError(f"--metrics: {len(names)} given; one scrape, or two to take the difference of")
    scrapes = [_scrape(name, key) for name in names]
    if len(names) == 1 and interval > 0:
        if not _is_url(names[0]):
            raise UsageError("--interval has no effect on a file; it is the time between two scrapes of a URL")
        time.sleep(interval)
        scrapes.append(_scrape(names[0], key))
    found = scrapes[0] if len(scrapes) == 1 else prometheus.increase(*scrapes)
    notes += found.notes
    observation, origins = from_scrape(found)
    if not observation.metrics:
        raise UnavailableError(f"--metrics {', '.join(names)}: no counter of vLLM, SGLang or llama.cpp in it")
    if len(scrapes) == 1:
        notes.append("one scrape counts since the server started; two scrapes show what happens now")
    if case.engine.name is None and found.engine is not None:
        origins_of_case = {**case.origins, "engine.name": names[0]}
        case = replace(case, engine=replace(case.engine, name=found.engine), origins=origins_of_case)
    return add(case, [observation], origins)


def _scrape(name: str, key: str | None) -> prometheus.Scrape:
    if _is_url(name):
        return prometheus.parse(prometheus.fetch(name, key=key), name)
    path = Path(name)
    try:
        if path.stat().st_size > prometheus.MAX_BYTES:
            raise UsageError(f"--metrics {name}: {path.stat().st_size} bytes are no scrape")
        return prometheus.parse(path.read_text(encoding="utf-8", errors="replace"), name)
    except OSError as error:
        raise UsageError(f"--metrics {name}: cannot be read ({error.strerror})") from None


def _is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def _facts(case: Case, words: Sequence[str]) -> Case:
    """``--workload NAME=VALUE``: requests, conditions, and figures that no log prints."""
    for word in (part for given in words for part in given.split()):
        name, sign, text = word.partition("=")
        name = _ALIASES.get(name, name)
        if not sign or not text:
            raise UsageError(f"--workload {word}: must be NAME=VALUE, as in temperature=0")
        value = _value(text)
        if name == "num_speculative_tokens":
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise UsageError(f"--workload {word}: must be a whole number")
            case = replace(case, k=value)
        elif name == "method":
            case = replace(case, method=text)
        elif name in _WORKLOAD:
            case = replace(case, workload={**case.workload, name: value})
        elif name in _FIGURES | _CONDITIONS:
            case = _into_first(case, name, value)
        else:
            known = ", ".join(sorted(_WORKLOAD | _FIGURES | _CONDITIONS))
            raise UsageError(f"--workload {word}: unknown name {name!r}; known: {known}")
        case = replace(case, origins={**case.origins, f"workload.{name}": "--workload"})
    return case


def _into_first(case: Case, name: str, value: Any) -> Case:
    first = case.primary or Observation("as stated")
    if name in _FIGURES:
        first = replace(first, metrics={**first.metrics, name: value})
        path = f"observations.0.metrics.{name}"
    else:
        first = replace(first, conditions={**first.conditions, name: value})
        path = f"observations.0.conditions.{name}"
    return replace(case, observations=(first, *case.observations[1:]), origins={**case.origins, path: "--workload"})


def _value(text: str) -> Any:
    lowered = text.lower()
    if lowered in ("true", "on", "yes", "false", "off", "no"):
        return lowered in ("true", "on", "yes")
    for read in (int, float):
        try:
            number = read(text)
        except ValueError:
            continue
        if number != number or number in (float("inf"), float("-inf")):
            raise UsageError(f"--workload …={text}: must be a number")
        return number
    return text
