"""INSTALL: what of an install is missing, changed, extra, broken, left over from an interrupted one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from draftproof.proof.case import Case
from draftproof.proof.findings import Evidence, Finding, Severity
from draftproof.proof.install.cases import install_of
from draftproof.proof.rules.registry import Said, rule

_REINSTALL = "pip install --force-reinstall --no-deps NAME==VERSION, and let it finish."
_SHOWN = 5


@rule(
    "INSTALL_INCOMPLETE",
    "INSTALL",
    "error",
    meaning="Files that the distribution installed are not there: an interrupted install, or a hand that deleted.",
    derived="paths of RECORD that do not exist",
    remedy=_REINSTALL,
    probe="pip show -f NAME; compare with the folder.",
)
def incomplete(case: Case, earlier: frozenset[str]) -> Said:
    for install, one in _verified(case):
        yield from _files("INSTALL_INCOMPLETE", "error", install, one, "missing", "of RECORD's files missing")


@rule(
    "INSTALL_UNRECORDED",
    "INSTALL",
    "error",
    meaning="A package without distribution, or a distribution without RECORD, METADATA or the commands it declares: "
    "installers write these last, so the install was most likely interrupted.",
    derived="dist-info folder without RECORD, METADATA or INSTALLER; console scripts that RECORD does not list; a "
    "package that an import takes and no distribution owns (an editable install is none of these)",
    remedy=_REINSTALL,
    probe="pip check; ls SITE/NAME-*.dist-info",
)
def unrecorded(case: Case, earlier: frozenset[str]) -> Said:
    install = install_of(case) or {}
    listed = install.get("distributions") or []
    for one in listed:
        lost = [name for name, there in (("RECORD", one["record"]), ("METADATA", one["metadata"])) if not there]
        if lost:
            says = f"{one['name']} {one['version']} has no {' and no '.join(lost)}"
            yield Finding("INSTALL_UNRECORDED", "error", 0.95, says, (Evidence(says, one["info"]),))
        elif one["unlisted"] and not one["editable"]:
            says = f"{one['name']} {one['version']}: RECORD knows no command {_list(one['unlisted'])}; "
            says += "an installer lists commands last, so it did not get to its end"
            yield Finding("INSTALL_UNRECORDED", "error", 0.9, says, (Evidence(says, one["info"]),))
        elif one["installer"] is None and one["tags"]:
            says = f"{one['name']} {one['version']} has no INSTALLER: unpacked by hand, or its installer was stopped"
            yield Finding("INSTALL_UNRECORDED", "warning", 0.9, says, (Evidence(says, one["info"]),))
    if install.get("taken") and not listed:
        says = f"{install['package']} is there, but no distribution owns it"
        yield Finding("INSTALL_UNRECORDED", "error", 0.9, says, (Evidence(says, install["taken"]),))


@rule(
    "INSTALL_MODIFIED",
    "INSTALL",
    "error",
    meaning="Files differ from what was installed: edited, emptied, cut off, or not readable.",
    derived="size and sha256 of every file against RECORD",
    remedy="If the change is meant (a patch), judge by levels 4 and 5; else " + _REINSTALL,
    probe="Compare the file with the wheel's.",
)
def modified(case: Case, earlier: frozenset[str]) -> Said:
    for install, one in _verified(case):
        yield from _files("INSTALL_MODIFIED", "error", install, one, "emptied", "empty")
        yield from _files("INSTALL_MODIFIED", "error", install, one, "modified", "changed")
        yield from _files("INSTALL_MODIFIED", "error", install, one, "unreadable", "unreadable")


@rule(
    "INSTALL_EXTRA_FILES",
    "INSTALL",
    "warning",
    meaning="Files that could be imported lie in the package and belong to no distribution: remains of another "
    "version, copies by hand, overlays.",
    derived=".py, .so, .pyd, .pth and bytecode without source in the package's folders, in nobody's RECORD",
    remedy="Delete them, or reinstall into a clean environment.",
    probe="git diff --no-index against an unpacked wheel.",
)
def extra(case: Case, earlier: frozenset[str]) -> Said:
    for install, one in _verified(case):
        extras = one.get("extras") or {"count": 0}
        if extras["count"]:
            names = extras["executed"]
            says = f"{extras['count']} file{_s(extras['count'])} that RECORD does not know: {_list(names)}"
            yield Finding("INSTALL_EXTRA_FILES", "warning", 0.9, says, _evidence(install, names, "in no RECORD"))


@rule(
    "INSTALL_LEFTOVERS",
    "INSTALL",
    "warning",
    meaning="Remains of an interrupted install or uninstall.",
    derived="~name folders beside the package (pip moves the old version there first), build folders of the engine "
    "among temporary files while no pip is running",
    remedy="Delete them when no install is running, then reinstall the engine.",
    probe="ls -d SITE/~*",
)
def leftovers(case: Case, earlier: frozenset[str]) -> Said:
    install = install_of(case) or {}
    found = [one for one in install.get("leftovers") or [] if one["kind"] != "running"]
    if found:
        says = f"left over: {_list([one['path'] for one in found])}"
        evidence = tuple(Evidence(f"{one['kind']} by an installer", one["path"]) for one in found)
        severity: Severity = "warning" if any(one["kind"] == "renamed" for one in found) else "info"
        yield Finding("INSTALL_LEFTOVERS", severity, 0.9, says, evidence)


@rule(
    "INSTALL_EXTENSION_BROKEN",
    "INSTALL",
    "error",
    meaning="A compiled extension is not a whole ELF file.",
    derived="ELF header, program and section headers must lie inside the file",
    remedy=_REINSTALL,
    probe="readelf -S FILE",
)
def broken(case: Case, earlier: frozenset[str]) -> Said:
    yield from _extensions(case, "INSTALL_EXTENSION_BROKEN", "broken", "error")


@rule(
    "INSTALL_EXTENSION_FOREIGN",
    "INSTALL",
    "error → info if the wheel brings the extension for another Python only and does without it",
    meaning="A compiled extension was made for another machine or another Python.",
    derived="e_machine of the ELF header against the machine; the ABI tag of its name against the interpreter's, where "
    "no sibling for this interpreter lies beside it; the distribution's own wheel tag decides whether it is an error",
    remedy="Install the wheel for this machine and this Python.",
    probe="file FILE; PYTHON -c 'import sysconfig; print(sysconfig.get_config_var(\"EXT_SUFFIX\"))'",
)
def foreign(case: Case, earlier: frozenset[str]) -> Said:
    yield from _extensions(case, "INSTALL_EXTENSION_FOREIGN", "machine", "error")
    for install, one in _verified(case):
        tags: list[str] = next((d["tags"] for d in install["distributions"] if d["info"] == one["info"]), [])
        untouched = {e["path"] for kind in ("modified", "missing") for e in one["files"][kind]}
        for entry in (one.get("extensions") or {}).get("abi") or []:
            optional = entry["path"] not in untouched and any(_any_python(tag) for tag in tags)
            severity: Severity = "info" if optional else "error"
            yield _about("INSTALL_EXTENSION_FOREIGN", severity, install, entry)


@rule(
    "INSTALL_LIBRARY_MISSING",
    "INSTALL",
    "error → info if the package imports all the same; none for a plain folder, whose dependencies live elsewhere",
    meaning="A shared library that a compiled extension needs is nowhere to be found.",
    derived="DT_NEEDED against RUNPATH, LD_LIBRARY_PATH, the linker's cache, the default folders and the libraries "
    "that packages on the path bring; a graphics driver counts as the machine's, not the install's",
    remedy="Install the package that brings it (torch and nvidia-* for CUDA builds).",
    probe="ldd FILE",
)
def library(case: Case, earlier: frozenset[str]) -> Said:
    for install, one in _verified(case):
        needs: dict[str, list[str]] = {}
        for entry in (one.get("extensions") or {}).get("needs") or []:
            if not entry["driver"]:
                needs.setdefault(entry["library"], []).append(entry["path"])
        imported = (install.get("importability") or {}).get("package") == ""
        own = {e["library"] for e in (one.get("extensions") or {}).get("needs") or [] if e["own"]}
        for name, files in sorted(needs.items()):
            if install.get("prefix") and name not in own:
                continue  # its dependencies live elsewhere
            severity: Severity = "info" if imported and name not in own else "error"
            says = f"{name}, which {_list(files)} need{'s' if len(files) == 1 else ''}, is nowhere to be found"
            yield Finding("INSTALL_LIBRARY_MISSING", severity, 0.9, says, _evidence(install, files, f"needs {name}"))


@rule(
    "INSTALL_BYTECODE_WRONG",
    "INSTALL",
    "error",
    meaning="The interpreter would run bytecode that does not belong to the source beside it: the code found is not "
    "the code that runs.",
    derived="unchecked hash-based .pyc of another source; same time and size but other code (compared for the files "
    "that levels 4 and 5 rest on)",
    remedy="Delete the package's __pycache__ folders.",
    probe="PYTHON -c 'import MODULE, dis; dis.dis(MODULE)'",
    sources=("PEP 552",),
)
def bytecode(case: Case, earlier: frozenset[str]) -> Said:
    for install, one in _verified(case):
        for entry in (one.get("bytecode") or {}).get("wrong") or []:
            yield _about("INSTALL_BYTECODE_WRONG", "error", install, entry)


def _verified(case: Case) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    install = install_of(case) or {}
    for one in install.get("integrity") or []:
        yield install, one


def _files(
    code: str, severity: Severity, install: dict[str, Any], one: dict[str, Any], kind: str, words: str
) -> Iterator[Finding]:
    found, count = one["files"][kind], one["files"]["counts"][kind]
    if count:
        names = [f"{e['path']} ({e['says']})" if kind != "missing" else e["path"] for e in found]
        says = f"{count} {words}: {_list(names)}"
        evidence = _evidence(install, [e["path"] for e in found], kind)
        yield Finding(code, severity, 0.98, says, evidence)


def _extensions(case: Case, code: str, kind: str, severity: Severity) -> Iterator[Finding]:
    for install, one in _verified(case):
        for entry in (one.get("extensions") or {}).get(kind) or []:
            yield _about(code, severity, install, entry)


def _about(code: str, severity: Severity, install: dict[str, Any], entry: dict[str, Any]) -> Finding:
    says = f"{entry['path']}: {entry['says']}"
    return Finding(code, severity, 0.95, says, (Evidence(entry["says"], f"{install['host']}: {entry['path']}"),))


def _any_python(tag: str) -> bool:
    """Does the wheel claim to fit more than one Python (abi3, none)?"""
    return tag.split("-")[1:2] in (["abi3"], ["none"])


def _evidence(install: dict[str, Any], files: list[str], what: str) -> tuple[Evidence, ...]:
    return tuple(Evidence(what, f"{install['host']}: {file}") for file in files[:_SHOWN])


def _list(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _s(count: int) -> str:
    return "" if count == 1 else "s"
