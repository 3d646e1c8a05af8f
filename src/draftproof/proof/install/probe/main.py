"""The probe: five levels, cheap ones first, within the time given; what did not get done is said, never left out."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, Callable

from . import bytecode, children, extensions, facts, importing, places, record, wire

LEVELS = ("provenance", "integrity", "importability", "source", "behaviour")
OPERATORS = {"vllm": "_custom_ops.py"}  # the file that names what the extensions register
SPARE = 2.0  # seconds kept for the answer's way back


def run(request: dict[str, Any]) -> None:
    """Answers on stdout. ``request``: mark, seconds, engine (None: those that are installed), prefix, python_known,
    levels, drafter (a config or None), here (report copies in the current folder)."""
    speaker = wire.Speaker(request["mark"])
    probe = Probe(request, speaker)
    watch = threading.Timer(request["seconds"], _give_up, (probe, speaker))
    watch.daemon = True
    watch.start()
    report = probe.report()
    watch.cancel()
    speaker.report(report)


def _give_up(probe: Probe, speaker: wire.Speaker) -> None:
    """Time is over although every level keeps to it (a hanging file system): say what is known, leave nothing."""
    children.stop_all()
    speaker.report({"python": probe.python, "engines": [], "unfinished": "time ran out"})
    os._exit(0)


class Probe:
    def __init__(self, request: dict[str, Any], speaker: wire.Speaker) -> None:
        self.request, self.speaker = request, speaker
        self.until = time.monotonic() + max(1.0, request["seconds"] - SPARE)
        self.prefix: str | None = os.path.abspath(request["prefix"]) if request["prefix"] else None
        self.path = places.search_path(self.prefix)
        self.python = places.interpreter()

    def left(self) -> float:
        return self.until - time.monotonic()

    def report(self) -> dict[str, Any]:
        engine = self.request["engine"]
        names = [engine] if engine else [name for name in places.ENGINES if self._there(name)]
        return {
            "python": self.python,
            "path": self.path,
            "prefix": self.prefix,
            "prefix_exists": self.prefix is None or os.path.isdir(self.prefix),
            "engines": [self._engine(name) for name in names],
        }

    def _there(self, name: str) -> bool:
        return bool(places.owners(name, self.path) or places.copies(name, self.path))

    def _engine(self, engine: str) -> dict[str, Any]:
        found = self._provenance(engine)
        self.speaker.progress(engine=engine, level="provenance")
        folder = _folder(found["taken"])
        steps: list[tuple[str, Callable[[dict[str, Any], str | None], Any]]] = [
            ("source", self._source),
            ("integrity", self._integrity),
            ("behaviour", self._behaviour),
            ("importability", self._importability),
        ]
        for level, step in steps:
            if level in self.request["levels"]:
                self.speaker.progress(engine=engine, level=level)
                began = time.monotonic()
                found[level] = step(found, folder)
                found["seconds"][level] = round(time.monotonic() - began, 3)
        return found

    def _provenance(self, engine: str) -> dict[str, Any]:
        began = time.monotonic()
        owners = places.owners(engine, self.path)
        package = _package(engine, owners)
        own = sorted({engine, package, *(d["name"] for d in owners)})
        return {
            "engine": engine,
            "package": package,
            "distributions": owners,
            "copies": places.copies(package, self.path),
            "taken": places.taken(package, self.prefix, self.path),
            "leftovers": places.leftovers(own, self.path),
            "seconds": {"provenance": round(time.monotonic() - began, 3)},
        }

    def _source(self, found: dict[str, Any], folder: str | None) -> dict[str, Any]:
        return facts.read(found["package"], folder) if folder else {}

    def _integrity(self, found: dict[str, Any], folder: str | None) -> list[dict[str, Any]]:
        return [self._verified(d, folder) for d in found["distributions"] if d["record"]]

    def _verified(self, distribution: dict[str, Any], folder: str | None) -> dict[str, Any]:
        info, site = distribution["info"], distribution["site"]

        def progress(done: int, files: int, size: int) -> None:
            self.speaker.progress(engine=distribution["name"], level="integrity", done=done, files=files, bytes=size)

        began = time.monotonic()
        result = record.verify(info, lambda: self.left() <= 0, progress)
        result["seconds"] = round(time.monotonic() - began, 3)
        if not result["finished"]:
            return {"info": info, "files": result}
        listed = [path for path, _, _ in record.entries(info)]
        others = [d["info"] for d in places.distributions(site) if d["info"] != info]
        suffixes = self.python["suffixes"] if self.request["python_known"] else None
        native = self.python["system"] == "Linux"
        return {
            "info": info,
            "files": result,
            "extras": record.extras(info, distribution["packages"], others),
            "extensions": extensions.check(site, listed, suffixes, self.python["machine"], self.path)
            if native
            else None,
            "bytecode": bytecode.check(
                [os.path.join(site, path) for path in listed if path.endswith(".py")], _read_facts(folder)
            ),
        }

    def _behaviour(self, found: dict[str, Any], folder: str | None) -> dict[str, Any]:
        if folder is None or found["package"] not in facts.CALLS:
            return {}
        request = {"package": found["package"], "folder": folder, "drafter": self.request["drafter"]}
        return children.call("facts", "run", request, min(self.left(), 120.0))

    def _importability(self, found: dict[str, Any], folder: str | None) -> dict[str, Any]:
        names = operators = None
        for distribution in found["distributions"]:
            if distribution["record"]:
                listed = [path for path, _, _ in record.entries(distribution["info"])]
                names = extensions.modules(listed, self.python["suffixes"])
        if folder is not None and found["package"] in OPERATORS:
            operators = importing.operators(os.path.join(folder, OPERATORS[found["package"]]))
        request = {"package": found["package"], "extensions": names or [], "operators": operators or {}}
        result = children.call("importing", "run", {**request, "prefix": self.prefix}, self.left())
        result["driver_missing"] = importing.driver_missing(str(result.get("package", "")))
        return result


def _package(engine: str, owners: list[dict[str, Any]]) -> str:
    """The import name: the distribution's package that is called like it, else its first, else the name itself."""
    wanted = places.normal(engine)
    for distribution in owners:
        named = [p for p in distribution["packages"] if places.normal(p) == wanted]
        public = [p for p in distribution["packages"] if not p.startswith("_")]
        if named or public:
            return str((named or public)[0])
    return wanted


def _folder(taken: str | None) -> str | None:
    if taken is None:
        return None
    return (
        os.path.dirname(taken)
        if os.path.basename(taken).startswith("__init__.")
        else taken
        if os.path.isdir(taken)
        else None
    )


def _read_facts(folder: str | None) -> list[str]:
    """Sources that the facts rest on: their bytecode is compared with them instruction by instruction."""
    if folder is None:
        return []
    from . import sglang_reads, vllm_reads

    reads = {"vllm": vllm_reads, "sglang": sglang_reads}.get(os.path.basename(folder))
    paths = (
        [v for k, v in vars(reads).items() if k.isupper() and isinstance(v, str) and v.endswith(".py")] if reads else []
    )
    return [os.path.join(folder, *path.split("/")) for path in paths]


if __name__ == "__main__":
    sys.exit("this is the sent part of draftproof doctor; run that")
