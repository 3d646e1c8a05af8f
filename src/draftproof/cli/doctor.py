"""``draftproof doctor``: is an installed engine whole, and does the code that would run hold DFlash's facts?"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.cli.flags import with_flags
from draftproof.cli.options import JsonFlag
from draftproof.cli.terminal import note
from draftproof.errors import UnavailableError, UsageError

SCHEMA = "draftproof.doctor/1"
LEVEL_HELP = "Only these levels: provenance (always), integrity, importability, source, behaviour. Repeatable."


@dataclass(frozen=True)
class WhereFlags:
    """Which interpreter, folder or hosts."""

    python: Annotated[
        str | None,
        typer.Option("--python", metavar="PATH", help="Another environment, or its interpreter. [default: this]"),
    ] = None
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="DIR", help="A plain folder (pip install --target DIR).")
    ] = None
    ssh: Annotated[
        list[str] | None,
        typer.Option("--ssh", metavar="HOST[:PYTHON]", help="Another host, over your own ssh. Repeatable."),
    ] = None


@with_flags
def doctor(
    where: WhereFlags,
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="NAME", help="Distribution to look at. [default: vllm and sglang if there]"),
    ] = None,
    drafter: Annotated[
        str | None,
        typer.Option("--drafter", "-d", metavar="D", help="Send this drafter's config.json through the engine."),
    ] = None,
    level: Annotated[list[str] | None, typer.Option("--level", metavar="LEVEL", help=LEVEL_HELP)] = None,
    timeout: Annotated[float, typer.Option("--timeout", metavar="S", help="Most seconds per host.")] = 120.0,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML, for CI.")] = None,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Also save the facts as a case (draftproof.case/1).")
    ] = None,
    json_output: JsonFlag = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors.")] = False,
) -> None:
    """Look at an installed engine: whole, importable, and which of DFlash's facts its code holds.

    Exit code 0: nothing found; 1: faults found; 2: usage or unreadable input; 3: could not tell (a host that gives no
    answer, a level that did not end in time).
    """
    from draftproof.cli.doctor_view import Watcher, show
    from draftproof.proof.install.cases import cases
    from draftproof.proof.install.closing import exit_code
    from draftproof.proof.install.drafter import read_config
    from draftproof.proof.install.hosts import Wish, ask
    from draftproof.proof.rules import judge

    hosts = chosen_hosts(where.python, where.prefix, where.ssh or [])
    if timeout < 5:
        raise UsageError(f"--timeout {timeout:g} is out of range: it must be at least 5 seconds")
    levels = chosen_levels(level or [], drafter)
    wish = Wish(chosen_engine(engine), levels, timeout, None if drafter is None else read_config(drafter))
    with Watcher(hosts, quiet=quiet) as watcher:
        answers = ask(hosts, wish, watcher)
    judged = [
        (case, judge(case, areas=["INSTALL"]).findings) for answer in answers for case in cases(answer, wish, drafter)
    ]
    code = max((exit_code(found) for _, found in judged), key=_weight)
    if save is not None:
        _save(save, [case for case, _ in judged], quiet=quiet)
    if junit is not None:
        from draftproof.proof.install.junit import junit as xml

        _write(junit, xml(judged))
    if json_output:
        print(json.dumps(document(judged, code)))
    else:
        show(judged)
    raise typer.Exit(code)


def chosen_hosts(python: str | None, prefix: str | None, ssh: list[str]) -> list[Any]:
    """Where to look, from the flags."""
    from draftproof.proof.install.hosts import Host

    if not ssh:
        return [Host(None, _interpreter(python), _packages(prefix))]
    if python is not None:
        raise UsageError(f"--python {python} has no effect with --ssh; write --ssh HOST:{python}")
    if len(set(ssh)) < len(ssh):
        raise UsageError("--ssh names a host twice")
    return [Host(*split_host(text), prefix) for text in ssh]


def _interpreter(given: str | None) -> str | None:
    """``--python`` may name an environment's folder: its interpreter is meant."""
    if given is None or not Path(given).is_dir():
        return given
    inside = Path(given) / "bin" / "python"
    if not inside.exists():
        raise UsageError(f"--python {given} is a folder without bin/python")
    return str(inside)


def _packages(given: str | None) -> str | None:
    if given is not None and (Path(given) / "pyvenv.cfg").exists():
        raise UsageError(f"--prefix {given} is an environment, no folder of packages; use --python {given}/bin/python")
    return given


def chosen_engine(given: str | None) -> str | None:
    """The name of a distribution. Raises UsageError for anything else, a version among it: doctor finds that out."""
    if given is None or re.fullmatch(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?", given):
        return given
    name, equals, version = given.partition("==")
    why = f"; the version is what doctor finds out: --engine {name}" if equals and version else ""
    raise UsageError(f"--engine {given!r} is no name of a distribution{why}")


def split_host(text: str) -> tuple[str, str | None]:
    """``HOST[:PYTHON]``; an interpreter is a path or begins with python, so ``ssh://host:22`` stays one destination."""
    match = re.fullmatch(r"(?P<host>.+?):(?P<python>(?:[~./]|python|pypy).*)", text)
    # The // of ssh:// is no path to an interpreter.
    if match and not (match["python"].startswith("//") and match["host"] == "ssh"):
        return _checked(match["host"]), match["python"]
    uri = re.fullmatch(r"(?P<host>ssh://[^/]+?):(?P<python>(?:/|python).*)", text)
    return (_checked(uri["host"]), uri["python"]) if uri else (_checked(text), None)


def _checked(host: str) -> str:
    if not host or host.startswith("-") or any(c.isspace() for c in host):
        raise UsageError(f"--ssh {host!r} is no host name")
    return host


def chosen_levels(given: list[str], drafter: str | None) -> tuple[str, ...]:
    from draftproof.proof.install.hosts import LEVELS

    for one in given:
        if one not in LEVELS:
            raise UsageError(f"--level {one!r} is unknown: it must be one of {', '.join(LEVELS)}")
    if given and drafter is not None and "behaviour" not in given:
        raise UsageError("--drafter has no effect without --level behaviour")
    return tuple(one for one in LEVELS if not given or one in given or one == "provenance")


def document(judged: list[tuple[Any, Any]], code: int) -> dict[str, Any]:
    """What ``--json`` prints: one entry per host and engine, in the order asked."""
    from draftproof.proof.install.cases import install_of
    from draftproof.proof.install.closing import closing

    return {
        "schema_version": SCHEMA,
        "exit_code": code,
        "installs": [
            {
                "engine": case.engine.name,
                "version": case.engine.version,
                "commit": case.engine.options.get("commit"),
                "answer": closing(case, found),
                "findings": [finding.to_dict() for finding in found],
                **(install_of(case) or {}),
            }
            for case, found in judged
        ],
    }


def _weight(code: int) -> int:
    """Faults outweigh doubts, doubts outweigh nothing."""
    return {0: 0, 3: 1, 1: 2}[code]


def _save(file: Path, cases: list[Any], *, quiet: bool) -> None:
    if len(cases) != 1:
        raise UsageError(f"--save {file} holds one case, these are {len(cases)}; name one host and one --engine")
    _write(file, json.dumps(cases[0].to_dict(), indent=1) + "\n")
    note(f"saved {file}", quiet=quiet)


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnavailableError(f"{file}: cannot be written ({error.strerror})") from None
