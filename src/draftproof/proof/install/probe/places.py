"""Provenance: what is installed where, by whom, how often, which copy an import takes, and what was left behind."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import platform
import re
import sys
import sysconfig
import tempfile
from typing import Any

from . import elf

ENGINES = ("vllm", "sglang")
_INFO = re.compile(r"^(?P<name>[^-]+)-(?P<version>.+)\.(?:dist|egg)-info$")
_TEMPORARY = ("pip-install-", "pip-unpack-", "pip-target-", "pip-wheel-", "pip-req-build-", "pip-build-", "pip-modern-")


def normal(name: str) -> str:
    """A project's name as indexes compare it (PEP 503), with underscores as in file names."""
    return re.sub(r"[-_.]+", "_", name).lower()


def interpreter() -> dict[str, Any]:
    return {
        "version": platform.python_version(),
        "executable": sys.executable,
        "tag": sys.implementation.cache_tag,
        "suffixes": importlib.machinery.EXTENSION_SUFFIXES,
        "machine": elf.machine_name(platform.machine()),
        "system": platform.system(),
        "site": sysconfig.get_paths().get("purelib"),
    }


def search_path(prefix: str | None) -> list[str]:
    """Folders that an import looks through, in order; with a prefix, that folder alone."""
    if prefix is not None:
        return [os.path.abspath(prefix)]
    return list(dict.fromkeys(os.path.abspath(p or os.curdir) for p in sys.path if not p.endswith(".zip")))


def distributions(site: str) -> list[dict[str, Any]]:
    """Every distribution that says so in a folder: name, version, where, packages; unreadable folders have none."""
    found = []
    for entry in _entries(site):
        match = _INFO.match(entry)
        if match and not entry.startswith("~"):
            found.append({"name": match["name"], "version": match["version"], "info": os.path.join(site, entry)})
    return found


def describe(distribution: dict[str, Any]) -> dict[str, Any]:
    """One distribution with installer, origin, tags, packages, and whether it has a RECORD."""
    info = distribution["info"]
    direct = _json(os.path.join(info, "direct_url.json"))
    wheel = _text(os.path.join(info, "WHEEL"))
    record = _text(os.path.join(info, "RECORD"))
    editable = bool((direct.get("dir_info") or {}).get("editable"))
    return {
        **distribution,
        "installer": _text(os.path.join(info, "INSTALLER")).strip() or None,
        "direct_url": direct or None,
        "editable": editable,
        "commit": (direct.get("vcs_info") or {}).get("commit_id") or (_commit(direct) if editable else None),
        "tags": re.findall(r"^Tag: (\S+)", wheel, re.M),
        "record": bool(record.strip()),
        "metadata": os.path.exists(os.path.join(info, "METADATA")) or info.endswith(".egg-info"),
        "unlisted": unlisted_commands(_text(os.path.join(info, "entry_points.txt")), record) if record else [],
        "packages": packages(record) or _text(os.path.join(info, "top_level.txt")).split(),
    }


def unlisted_commands(entry_points: str, record: str) -> list[str]:
    """Commands that the distribution declares and RECORD does not know: installers write them, and the final RECORD,
    at the very end; until then RECORD is the wheel's own."""
    section = re.search(r"^\[console_scripts\]\s*$(.*?)(?=^\[|\Z)", entry_points, re.M | re.S)
    names = re.findall(r"^\s*([^\s=#;]+)\s*=", section[1], re.M) if section else []
    listed = {line.partition(",")[0].strip('"').rpartition("/")[2].partition(".exe")[0] for line in record.splitlines()}
    return [name for name in names if name not in listed]


def packages(record: str) -> list[str]:
    """Names at the top of a RECORD that an import could use."""
    tops = {}
    for line in record.splitlines():
        path = line.partition(",")[0].strip('"')
        top, _, rest = path.partition("/")
        if rest and top != ".." and not top.endswith((".dist-info", ".data", ".libs")) and top not in ("bin", "share"):
            tops[top] = True
        elif not rest and top.endswith((".py", ".so")) and not top.startswith("__editable__"):
            tops[top.partition(".")[0]] = True
    return [t for t in tops if t.isidentifier() and t != "__pycache__"]


def owners(engine: str, path: list[str]) -> list[dict[str, Any]]:
    """Distributions on the path that are the engine: by name, or because their RECORD holds its package."""
    found = []
    for site in path:
        every = distributions(site)
        named = [d for d in every if normal(d["name"]) == normal(engine)]
        if not named and os.path.isdir(os.path.join(site, engine)):
            named = [d for d in every if engine in packages(_text(os.path.join(d["info"], "RECORD")))]
        found += [{**describe(d), "site": site} for d in named]
    return found


def copies(package: str, path: list[str]) -> list[dict[str, Any]]:
    """Every place on the path that an import of the package could take, in order."""
    found: list[dict[str, Any]] = []
    for site in path:
        spec = importlib.machinery.PathFinder.find_spec(package, [site])
        if spec is None:
            continue
        folders = list(spec.submodule_search_locations or [])
        where = spec.origin or (folders[0] if folders else site)
        if all(os.path.realpath(c["origin"]) != os.path.realpath(where) for c in found):
            current = os.path.realpath(site) == os.path.realpath(os.curdir)
            found.append({"site": site, "origin": where, "plain": spec.origin is None, "here": current})
    return found


def taken(package: str, prefix: str | None, path: list[str]) -> str | None:
    """File that an import of the package would run (editable finders included); a folder if it has no __init__."""
    try:
        if prefix is not None:
            spec = importlib.machinery.PathFinder.find_spec(package, path)
        else:
            spec = importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or []), None)


def leftovers(names: list[str], path: list[str]) -> list[dict[str, str]]:
    """What interrupted installs leave: ``~name`` folders in site folders, build folders among temporary files."""
    found = []
    for site in path:
        for entry in _entries(site):
            if entry.startswith("~") and any(_renamed(entry, name) for name in names):
                found.append({"kind": "renamed", "path": os.path.join(site, entry)})
    temporary = tempfile.gettempdir()
    kind = "running" if _installing() else "build"
    for entry in _entries(temporary):
        if entry.startswith(_TEMPORARY):
            inside = os.path.join(temporary, entry)
            hits = [e for e in _entries(inside) if normal(e.partition("-")[0]).startswith(tuple(map(normal, names)))]
            found += [{"kind": kind, "path": os.path.join(inside, hit)} for hit in hits[:1]]
    return found


def _installing() -> bool:
    """Is an installer at work on this machine right now? Then its folders are no remains."""
    for process in _entries("/proc"):
        words = _text(f"/proc/{process}/cmdline").split("\0") if process.isdigit() else []
        names = {os.path.basename(word) for word in words[:4]}
        if names & {"pip", "pip3", "uv"} and names & {"install", "download", "wheel", "sync", "pip"}:
            return True
    return False


def _renamed(entry: str, name: str) -> bool:
    """pip moves ``vllm`` aside as ``~llm``, ``~-lm``, … before it deletes it (its AdjacentTempDirectory)."""
    base = entry.partition("-")[0] if entry.endswith("-info") else entry
    return any(re.fullmatch(r"~[-~.=%0-9]*" + re.escape(name[cut:]), base) for cut in range(1, max(2, len(name) - 1)))


def _commit(direct: dict[str, Any]) -> str | None:
    """The commit a local checkout is at, read from its files (no git is run on the host)."""
    url = str(direct.get("url", ""))
    if not url.startswith("file://"):
        return None
    folder = os.path.join(url[len("file://") :], ".git")
    head = _text(os.path.join(folder, "HEAD")).strip()
    if not head.startswith("ref: "):
        return head or None
    return _text(os.path.join(folder, *head[5:].split("/"))).strip() or None


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _json(path: str) -> dict[str, Any]:
    try:
        value = json.loads(_text(path) or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
