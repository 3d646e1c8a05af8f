"""The last line: the answer to the operator's question, in one sentence made of what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from draftproof.proof.case import Case
from draftproof.proof.findings import Finding
from draftproof.proof.install.cases import install_of
from draftproof.proof.install.facts import known
from draftproof.proof.install.probe.extensions import DRIVERS
from draftproof.proof.install.rows import together

COULD_NOT_TELL = ("INSTALL_UNREACHABLE", "INSTALL_UNFINISHED")
_WHOLE = (
    "INSTALL_INCOMPLETE",
    "INSTALL_UNRECORDED",
    "INSTALL_MODIFIED",
    "INSTALL_EXTENSION_BROKEN",
    "INSTALL_EXTENSION_FOREIGN",
    "INSTALL_LIBRARY_MISSING",
    "INSTALL_BYTECODE_WRONG",
)
_ALSO = ("INSTALL_EXTRA_FILES", "INSTALL_SHADOWED", "INSTALL_LEFTOVERS")


def closing(case: Case, findings: Sequence[Finding]) -> str:
    install = install_of(case) or {}
    by_code = {f.code: f for f in reversed(findings) if f.severity != "info"}
    for code in ("INSTALL_UNREACHABLE", "INSTALL_ENGINE_MISSING"):
        if code in by_code:
            return by_code[code].says
    parts = [f"{name(case)} {_integrity(install, by_code)}", *_import(install, by_code), *_facts(install)]
    parts += _drafter(install)
    return "; ".join(parts)


def name(case: Case) -> str:
    commit = case.engine.options.get("commit")
    text = f"{case.engine.name} {case.engine.version or 'of unknown version'}"
    return f"{text} at commit {str(commit)[:7]}" if commit else text


def exit_code(findings: Sequence[Finding]) -> int:
    """0 nothing found, 1 faults found, 3 could not tell."""
    counted = {f.code for f in findings if f.counts and f.severity != "info"}
    if counted - set(COULD_NOT_TELL):
        return 1
    return 3 if counted else 0


def _integrity(install: Mapping[str, Any], by_code: Mapping[str, Finding]) -> str:
    wrong = [by_code[code].says for code in _WHOLE if code in by_code]
    also = [by_code[code].says for code in _ALSO if code in by_code]
    if wrong:
        return f"is not whole: {'; '.join([*wrong, *also])}"
    editable = next((d for d in install["distributions"] if d["editable"]), None)
    if editable is not None:
        return f"is a checkout ({(editable['direct_url'] or {}).get('url')}), which no RECORD can verify"
    verified = sum(one["files"]["verified"] for one in install.get("integrity") or [])
    if "INSTALL_UNFINISHED" in by_code:
        return f"could not be told: {by_code['INSTALL_UNFINISHED'].says}"
    if "integrity" not in install:
        return "was not verified (level integrity was not asked for)"
    loaded = extensions(install)
    text = f"is complete ({verified:,} files verified{loaded and ', ' + loaded})"
    return f"{text}, but {'; '.join(also)}" if also else text


def extensions(install: Mapping[str, Any]) -> str:
    """How many compiled files are whole, or load where that was tried; "" if there are none."""
    count = sum((one.get("extensions") or {}).get("count", 0) for one in install.get("integrity") or [])
    tried = (install.get("importability") or {}).get("extensions") or {}
    load = sum(not error for error in tried.values())
    if load:
        return f"{load} extension{'s' * (load != 1)} load{'s' * (load == 1)}"
    return f"{count} compiled file{'s' * (count != 1)} whole" if count else ""


def _import(install: Mapping[str, Any], by_code: Mapping[str, Finding]) -> list[str]:
    got = install.get("importability") or {}
    if "INSTALL_NOT_IMPORTABLE" in by_code:
        return [by_code["INSTALL_NOT_IMPORTABLE"].says]
    if got.get("driver_missing"):
        return ["its import cannot be tried here (no graphics driver)"]
    if got.get("package") and install.get("prefix"):
        return ["its import was not tried (dependencies live elsewhere)"]
    tried = got.get("extensions") or {}
    without = [name for name, error in tried.items() if any(driver in str(error) for driver in DRIVERS)]
    if without:
        return [f"{len(without)} of {len(tried)} extensions cannot be loaded here (no graphics driver)"]
    return []


def _facts(install: Mapping[str, Any]) -> list[str]:
    facts = install.get("facts") or {}
    if not facts:
        return []
    if facts["dflash"]["state"] != "good":
        return [f"DFlash: {facts['dflash']['says']}"]
    said = []
    for fact in known(str(install["package"])).values():
        one = facts.get(fact.id)
        if one and fact.headline and (one["state"] == "bad" or not fact.headline_if_bad):
            said.append(f"{fact.headline} {one['says']}")
    return [f"DFlash: {', '.join(said)}"]


def _drafter(install: Mapping[str, Any]) -> list[str]:
    chain = (install.get("behaviour") or {}).get("chain")
    if chain is None:
        return []
    if chain.get("failed"):
        return [f"this drafter could not be sent through: {chain['failed']}"]
    differ = [row["field"] for row in together(chain["rows"]) if not row["same"]]
    if not differ:
        return [f"this drafter's config arrives as the file means it ({len(chain['rows'])} fields)"]
    return [f"this drafter is misread: {', '.join(differ[:6])}{', …' * (len(differ) > 6)}"]
