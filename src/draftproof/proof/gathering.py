"""From what a user has (a case, files, a launch line, logs, counters, words) to one case."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from draftproof.errors import UnavailableError, UsageError
from draftproof.proof import launch
from draftproof.proof.case import SCHEMA, Case, Engine, parse_case, read_case
from draftproof.proof.files.drafter import read_drafter
from draftproof.proof.files.json_file import read_json
from draftproof.proof.files.target import read_target
from draftproof.proof.layouts import drafter_method
from draftproof.proof.runtime import prometheus
from draftproof.proof.runtime.evidence import add, from_log, from_scrape, with_startup
from draftproof.proof.runtime.logs import LogFacts, hide_secrets, read_logs
from draftproof.proof.stated import with_stated

_ENGINE = re.compile(r"([A-Za-z][\w.+-]*?)(?:(?:==|@)([\w.+!-]+))?$")


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
    capture: Path | None = None

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
    case = _launch(case, sources.launch)
    case = _files(case, sources, notes)
    case = _engine(case, sources.engine)
    case = _capture(case, sources, notes)
    for given, read in (
        (sources.log, lambda before: _logs(before, sources.log, notes)),
        (sources.metrics, lambda before: _metrics(before, sources.metrics, interval, key, notes)),
    ):
        if given:
            case = _or_note(case, read, notes, alone=not case.observations)
    return with_stated(case, sources.workload), tuple(notes)


def _or_note(case: Case, read: Callable[[Case], Case], notes: list[str], *, alone: bool) -> Case:
    """What cannot be reached costs a note where other measurements are at hand, and is an error where none are."""
    try:
        return read(case)
    except UnavailableError as error:
        if alone:
            raise
        notes.append(f"left out: {error}")
        return case


def _launch(case: Case, line: str | None) -> Case:
    if line is None:
        return case
    parsed = launch.parse(line)
    command = parsed.command
    options = {**case.engine.options, **parsed.options}
    if parsed.problems:
        options["launch_problems"] = [problem.to_dict() for problem in parsed.problems]
    engine = replace(
        case.engine,
        name=command.engine,
        version=command.version or case.engine.version,
        options=options,
        launch=hide_secrets(line),
        env={**case.engine.env, **command.env},
    )
    drafter = replace(
        case.drafter, name=case.drafter.name or parsed.drafter, revision=case.drafter.revision or parsed.revision
    )
    return replace(
        case,
        engine=engine,
        drafter=drafter,
        target=replace(case.target, name=case.target.name or parsed.target),
        method=parsed.method or case.method,
        k=parsed.k if parsed.k is not None else case.k,
        workload={**case.workload, **parsed.workload},
        origins={**case.origins, "engine": "--launch", "num_speculative_tokens": "--launch", "method": "--launch"},
    )


def _files(case: Case, sources: Sources, notes: list[str]) -> Case:
    """Drafter and target as their files say; the target's name as the user gave it where that is a hub id."""
    if sources.drafter is not None:
        found = read_drafter(sources.drafter)
        notes += found.notes
        named = replace(found.drafter, name=found.drafter.name or case.drafter.name)
        case = replace(case, drafter=named, origins={**case.origins, **found.origins})
        kind = drafter_method(replace(case, method=None))
        case = replace(case, method=case.method or kind)
    if sources.target is not None:
        target = read_target(sources.target)
        notes += target.notes
        case = replace(case, target=target.target, origins={**case.origins, **target.origins})
    return case


def _engine(case: Case, given: str | None) -> Case:
    """``NAME==VERSION``, ``NAME``, a case that doctor saved, or what doctor --json printed."""
    if given is None:
        return case
    path = Path(given)
    if path.exists():
        return _doctor(case, path)
    found = _ENGINE.match(given)
    if found is None:
        raise UsageError(f"--engine {given}: neither NAME==VERSION (vllm==0.25.1) nor a report of doctor --json")
    name, version = found.group(1), found.group(2)
    origins = {**case.origins, "engine.name": "--engine", "engine.version": "--engine"}
    return replace(case, engine=replace(case.engine, name=name, version=version), origins=origins)


def _capture(case: Case, sources: Sources, notes: list[str]) -> Case:
    """Replayed through the reference engine: the strongest evidence there is, and the only one that needs torch."""
    if sources.capture is None:
        return case
    if sources.drafter is None or sources.target is None:
        raise UsageError("--capture needs --drafter and --target, the pair that it is replayed with")
    from draftproof.proof.capture.replay.chain import replay

    document = replay(sources.capture, sources.drafter, sources.target).to_dict()
    engine = document["engine"]
    notes.append(f"replay: {document['verdict']} ({document['certainty']}): {document['says']}")
    merged = replace(
        case.engine,
        name=case.engine.name or engine.get("name"),
        version=case.engine.version or engine.get("version"),
        options={**case.engine.options, "capture": document},
    )
    return replace(case, engine=merged, origins={**case.origins, "engine.options.capture": str(sources.capture)})


def _doctor(case: Case, path: Path) -> Case:
    """Name, version and probed facts of the one install in a report; launch line and options of the case stay."""
    data = read_json(path).data
    if data.get("schema") == SCHEMA:
        engine = parse_case(data, str(path)).engine
    else:
        installs = data.get("installs")
        if not isinstance(installs, list) or len(installs) != 1 or not isinstance(installs[0], dict):
            count = len(installs) if isinstance(installs, list) else "no"
            raise UsageError(f"--engine {path}: {count} installs in it; doctor --engine NAME --save FILE gives one")
        one = installs[0]
        facts = {key: value for key, value in one.items() if key not in ("findings", "answer")}
        options = {"install": facts} | ({"commit": one["commit"]} if one.get("commit") else {})
        engine = Engine(one.get("engine"), one.get("version"), options)
    merged = replace(
        case.engine,
        name=engine.name or case.engine.name,
        version=engine.version or case.engine.version,
        options={**engine.options, **case.engine.options},
    )
    return replace(case, engine=merged, origins={**case.origins, "engine.version": str(path)})


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
        return prometheus.parse(prometheus.fetch(name, key=key), prometheus.shown(name))
    path = Path(name)
    try:
        if path.stat().st_size > prometheus.MAX_BYTES:
            raise UsageError(f"--metrics {name}: {path.stat().st_size} bytes are no scrape")
        return prometheus.parse(path.read_text(encoding="utf-8", errors="replace"), name)
    except OSError as error:
        raise UsageError(f"--metrics {name}: cannot be read ({error.strerror})") from None


def _is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))
