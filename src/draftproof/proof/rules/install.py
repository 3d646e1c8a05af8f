"""INSTALL: was an engine reached and found, is it the release it claims to be, does an import take it, does it load."""

from __future__ import annotations

from typing import Any

from packaging.version import InvalidVersion, Version

from draftproof.proof.case import Case
from draftproof.proof.findings import Evidence, Finding
from draftproof.proof.install.cases import install_of, running
from draftproof.proof.rules.registry import Said, rule

_NOT_PLAIN = ("fork", "custom image", "image", "overlay", "branch", "nightly")
# How the dynamic linker complains of a file that is not what it should be.
_OWN_FAULTS = ("undefined symbol", "file too short", "invalid ELF", "ELF load command", "wrong ELF class", "truncated")
_REACHED = {
    "unreachable": "cannot be reached",
    "no_python": "is or has no such Python",
    "timeout": "gave no answer in time",
    "dropped": "answered only half-way",
}


@rule(
    "INSTALL_UNREACHABLE",
    "INSTALL",
    "error",
    meaning="A host that was asked gave no whole answer; nothing is known about its install.",
    derived="ssh fails, the Python named is not there, the connection drops, or the time limit passes",
    remedy="Name the interpreter (--python PATH, --ssh HOST:PYTHON), mend the connection (ssh HOST true), or raise "
    "--timeout.",
    probe="Run ssh HOST PYTHON --version by hand.",
)
def unreachable(case: Case, earlier: frozenset[str]) -> Said:
    install = install_of(case)
    if install and install.get("failure"):
        told, host = str(install["says"]), str(install["host"])
        said = told.removeprefix(f"{host}: ")  # a local interpreter's error begins with its own name
        says = f"{host} {_REACHED.get(install['failure'], 'did not answer')}: {said}"
        yield Finding("INSTALL_UNREACHABLE", "error", 0.95, says, (Evidence(told, host),))


@rule(
    "INSTALL_UNFINISHED",
    "INSTALL",
    "warning",
    meaning="A level did not get to its end, so its silence proves nothing.",
    derived="hashing, import or behaviour stopped by --timeout; the probe ran out of time",
    remedy="Raise --timeout, or limit --level.",
    probe="Repeat with --timeout 600.",
)
def unfinished(case: Case, earlier: frozenset[str]) -> Said:
    install = install_of(case) or {}
    reasons = [str(install["unfinished"])] if install.get("unfinished") else []
    for one in install.get("integrity") or []:
        if not one["files"]["finished"]:
            left = one["files"]["listed"] - one["files"]["verified"]
            reasons.append(f"integrity: {left} of {one['files']['listed']} files were not read")
    for level in ("importability", "behaviour"):
        got = install.get(level) or {}
        if got.get("unfinished"):
            reasons.append(f"{level}: {got['failed']}")
    if reasons:
        yield Finding("INSTALL_UNFINISHED", "warning", 0.95, "; ".join(reasons), _at(install, "probe", *reasons))


@rule(
    "INSTALL_ENGINE_MISSING",
    "INSTALL",
    "error",
    meaning="No such engine is installed where it was looked for.",
    derived="no distribution and no package of that name on the interpreter's path, or in --prefix",
    remedy="Install it there, or name the interpreter (--python) or folder (--prefix) that serves.",
    probe="PYTHON -c 'import sys; print(sys.path)'",
)
def missing(case: Case, earlier: frozenset[str]) -> Said:
    install = install_of(case)
    if install is None or install.get("failure") or install.get("unfinished"):
        return
    if install.get("prefix_exists") is False:
        says = f"the folder {install['prefix']} does not exist"
    elif not install.get("engine"):
        says = f"neither vllm nor sglang is installed for {_python(install)}"
    elif not install["distributions"] and not install["taken"]:
        says = f"{install['engine']} is not installed for {_python(install)}"
    else:
        return
    yield Finding("INSTALL_ENGINE_MISSING", "error", 0.95, says, _at(install, "path", says))


@rule(
    "INSTALL_SHADOWED",
    "INSTALL",
    "warning → error if the copy that runs is not the one that package lists show",
    meaning="More than one copy is on the path; an import takes the first, tools look at another.",
    derived="several folders of the path hold the package or its distribution; or the file that an import runs lies "
    "in none of the distribution's folders",
    remedy="Remove the copy that is not meant (pip uninstall until pip says it is gone, then delete what is left).",
    probe="PYTHON -c 'import PACKAGE; print(PACKAGE.__file__)'",
)
def shadowed(case: Case, earlier: frozenset[str]) -> Said:
    install = install_of(case) or {}
    copies, listed = install.get("copies") or [], install.get("distributions") or []
    sites = {d["site"] for d in listed}
    if not install.get("taken") or len(copies) + len(listed) < 2:
        return
    editable = any(d["editable"] for d in listed)
    if len(copies) < 2 and len(listed) < 2 and (editable or any(c["site"] in sites for c in copies)):
        return
    owner = running(install)
    first = listed[0] if listed else None  # what importlib.metadata and pip show
    wrong = first is not None and (owner is None or owner["info"] != first["info"])
    if len(copies) == 1 and len(listed) == 1 and not wrong:
        return
    says = f"import {install['package']} takes {install['taken']}"
    others = [c["origin"] for c in copies if c["origin"] != install["taken"]]
    if others:
        says += f"; there is also {', '.join(others[:3])}"
    if len(listed) > 1:
        says += f"; {len(listed)} distributions: {', '.join(d['name'] + ' ' + d['version'] for d in listed)}"
    if wrong and first is not None:
        says += f"; package lists show {first['name']} {first['version']} in {first['site']}"
    evidence = [Evidence(f"copy {i + 1} on the path", c["origin"]) for i, c in enumerate(copies)]
    evidence += [Evidence(f"distribution {d['name']} {d['version']}", d["info"]) for d in listed]
    yield Finding("INSTALL_SHADOWED", "error" if wrong else "warning", 0.95, says, tuple(evidence))


@rule(
    "INSTALL_NOT_IMPORTABLE",
    "INSTALL",
    "error → warning if only optional extensions fail",
    meaning="The package or one of its compiled extensions cannot be imported where it is installed.",
    derived="import in a process of its own, with a time limit; a missing graphics driver alone is no fault of it",
    remedy="The error's own: a missing dependency, another torch build, a broken extension.",
    probe="PYTHON -c 'import PACKAGE'",
)
def not_importable(case: Case, earlier: frozenset[str]) -> Said:
    install = install_of(case) or {}
    got = install.get("importability") or {}
    if not got or got.get("unfinished") or not install.get("taken"):
        return
    error = got.get("failed") or got.get("package")
    if error and not got.get("driver_missing") and not _dependency_of_folder(install, str(error)):
        says = f"import {install['package']}: {error}"
        yield Finding("INSTALL_NOT_IMPORTABLE", "error", 0.95, says, _at(install, "import", says))
        return
    # Importing an extension by itself fails for many reasons of its package's own; only the loader's words count.
    tried = {} if error else got.get("extensions") or {}
    broken = [f"{n}: {e}" for n, e in sorted(tried.items()) if any(word in e for word in _OWN_FAULTS)]
    if broken:
        more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
        says = f"extension {'; '.join(broken[:3])}{more}"
        yield Finding("INSTALL_NOT_IMPORTABLE", "warning", 0.9, says, _at(install, "import", *broken[:5]))


@rule(
    "INSTALL_OPERATORS_MISSING",
    "INSTALL",
    "error",
    meaning="The package imports, but its extensions register none of the operators that its sources call.",
    derived="torch.ops.<namespace> after the import, against the names in _custom_ops.py",
    remedy="Reinstall; the wheel was built for another torch or another platform.",
    probe="PYTHON -c 'import torch, vllm._C; print(dir(torch.ops._C))'",
)
def operators(case: Case, earlier: frozenset[str]) -> Said:
    install = install_of(case) or {}
    got = install.get("importability") or {}
    loaded = {name.rpartition(".")[2] for name, error in (got.get("extensions") or {}).items() if not error}
    for namespace, found in (got.get("operators") or {}).items():
        if namespace in loaded and found["wanted"] and found["missing"] == found["wanted"]:
            says = f"torch.ops.{namespace} has none of the {found['wanted']} operators that {install['package']} calls"
            yield Finding("INSTALL_OPERATORS_MISSING", "error", 0.9, says, _at(install, "import", says))


@rule(
    "ENGINE_VERSION_UNKNOWN",
    "INSTALL",
    "info",
    meaning="The build is not a plain release, so the version matrix gives only hints.",
    derived="version null or a dev string; or options.build names a fork, image, overlay, branch or nightly",
    remedy="State commit and patches, or probe the installed source (draftproof doctor).",
    probe="Call the shipped functions with a known input (tap ids [1,9,17]; a mixed layer_types config).",
    sources=("AEON#6", "club-3090"),
)
def version_unknown(case: Case, earlier: frozenset[str]) -> Said:
    engine, install = case.engine, install_of(case)
    if engine.name is None or (install is not None and (install.get("failure") or not install.get("distributions"))):
        return
    build = str(engine.options.get("build") or "")
    reason = f"build is {build!r}" if build and any(word in build.lower() for word in _NOT_PLAIN) else ""
    if not reason and engine.version is None:
        reason = "no version is given"
    elif not reason and not _plain(str(engine.version)):
        reason = f"version {engine.version!r} is no release"
    if reason:
        yield Finding("ENGINE_VERSION_UNKNOWN", "info", 0.9, reason, (case.evidence("engine.version", reason),))


def _plain(version: str) -> bool:
    text = version.removeprefix("b").removeprefix("v")
    try:
        parsed = Version(text)
    except InvalidVersion:
        return False
    return not parsed.is_devrelease and not (parsed.local and not parsed.local.startswith(("cu", "cpu", "rocm", "xpu")))


def _python(install: dict[str, Any]) -> str:
    return str(install.get("prefix") or (install.get("python") or {}).get("executable") or install["host"])


def _at(install: dict[str, Any], where: str, *says: str) -> tuple[Evidence, ...]:
    return tuple(Evidence(text, f"{install.get('host', 'here')}: {where}") for text in says)


def _dependency_of_folder(install: dict[str, Any], error: str) -> bool:
    """In a plain folder the dependencies live elsewhere; their absence is no fault of the folder."""
    named = error.partition("No module named ")[2].strip("'\"").partition(".")[0]
    elsewhere = bool(named) and named != str(install["package"])
    return bool(install.get("prefix")) and (elsewhere or "cannot open shared object" in error)
