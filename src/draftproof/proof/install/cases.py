"""From a probe's answer to cases that rules can judge, one per engine found; the report rides in ``engine.options``."""

from __future__ import annotations

import os
from typing import Any

from draftproof.proof.case import Case, Drafter, Engine
from draftproof.proof.install.facts import held
from draftproof.proof.install.hosts import Answer, Wish

KEY = "install"  # engine.options[KEY]: the facts of one install, see docs/findings.md


def cases(answer: Answer, wish: Wish, drafter: str | None = None) -> list[Case]:
    """At least one case: without an engine, or without an answer, that is what it says. ``drafter``: its name."""
    asked = {"host": answer.host.label, "asked": wish.engine, "levels": list(wish.levels)}
    if answer.report is None:
        facts = {**asked, "failure": answer.failure, "says": answer.says}
        return [_case(wish, drafter, Engine(wish.engine, None, {KEY: facts}))]
    report = answer.report
    shared = {**asked, **{name: report.get(name) for name in ("python", "prefix", "prefix_exists", "unfinished")}}
    if not report.get("engines"):
        return [_case(wish, drafter, Engine(wish.engine, None, {KEY: {**shared, "engine": None}}))]
    return [_case(wish, drafter, _engine(one, shared)) for one in report["engines"]]


def _case(wish: Wish, drafter: str | None, engine: Engine) -> Case:
    origins = {"engine": str(engine.options[KEY]["host"])}
    if drafter is not None:
        origins["drafter.config"] = f"{drafter}/config.json"
    method = "dflash" if wish.drafter is not None else None
    return Case(engine, method=method, drafter=Drafter(drafter, config=wish.drafter), origins=origins)


def _engine(one: dict[str, Any], shared: dict[str, Any]) -> Engine:
    owner = running(one)
    version = owner["version"] if owner else None
    facts = held(one, version)
    options: dict[str, Any] = {KEY: {**shared, **one, "facts": {h.fact.id: h.to_dict() for h in facts}}}
    if owner is not None:
        options["package"] = owner["name"]
        if owner["commit"]:
            options["commit"] = owner["commit"]
        if owner["editable"] or (owner["direct_url"] or {}).get("vcs_info"):
            options["build"] = "branch"
    patches = {h.fact.change: h.state == "good" for h in facts if h.fact.change and h.state in ("good", "bad")}
    if patches:
        options["patches"] = patches
    return Engine(one["package"] if facts else one["engine"], version, options)


def running(one: dict[str, Any]) -> dict[str, Any] | None:
    """The distribution whose files an import runs; without one there, the only one that is listed."""
    taken = one.get("taken")
    for distribution in one["distributions"]:
        if taken and os.path.realpath(taken).startswith(os.path.realpath(distribution["site"]) + os.sep):
            return dict(distribution)
    editable = [d for d in one["distributions"] if d["editable"]]
    listed = editable or (one["distributions"] if len(one["distributions"]) == 1 else [])
    return dict(listed[0]) if listed else None


def install_of(case: Case) -> dict[str, Any] | None:
    """The facts of one install that a case carries, None if nobody looked."""
    found = case.engine.options.get(KEY)
    return found if isinstance(found, dict) else None
