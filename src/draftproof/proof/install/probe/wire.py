"""How the probe travels and how it answers: one script in, lines with a mark out.

Answers are lines that begin with a random mark chosen by whoever asks, so banners, shell profiles and noisy libraries
cannot be taken for them; the last one carries length and digest of the report, so half a report is none.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import zlib
from typing import Any, Callable, TextIO

PACKAGE = "draftproof_probe"
_LOADER = """\
import base64, importlib.abc, importlib.util, json, sys, zlib
PACKAGE, SOURCES, REQUEST = {package!r}, {sources!r}, {request!r}
class Sent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self):
        self.sources = json.loads(zlib.decompress(base64.b64decode(SOURCES)).decode("utf-8"))
    def find_spec(self, name, path=None, target=None):
        top, _, module = name.partition(".")
        if top != PACKAGE or (module or "__init__") not in self.sources:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=not module)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__.partition(".")[2] or "__init__"
        exec(compile(self.sources[name], "<probe " + name + ">", "exec"), module.__dict__)
sys.dont_write_bytecode = True
if sys.version_info < (3, 8):
    sys.exit("draftproof's probe needs Python 3.8 or newer, this is " + sys.version.split()[0])
sent = Sent()
sys.meta_path.insert(0, sent)
importlib.import_module(PACKAGE + ".wire").SENT.update(sources=sent.sources)
importlib.import_module(PACKAGE + "." + {module!r}).{function}(json.loads(base64.b64decode(REQUEST).decode("utf-8")))
"""
SENT: dict[str, Any] = {}  # in a sent probe: {"sources": its modules}, so that it can start children of its own


def bundle(sources: dict[str, str], request: Any, module: str = "main", function: str = "run") -> str:
    """One script: ``sources`` (module name → text), which calls ``module.function(request)``. ASCII throughout."""
    packed = zlib.compress(json.dumps(sources).encode("utf-8"), 9)
    return _LOADER.format(
        package=PACKAGE,
        sources=base64.b64encode(packed).decode("ascii"),
        request=base64.b64encode(json.dumps(request).encode("utf-8")).decode("ascii"),
        module=module,
        function=function,
    )


class Speaker:
    """The answering side. A line break comes first: a banner may not have ended its line."""

    def __init__(self, mark: str, stream: TextIO | None = None) -> None:
        self.mark = mark
        self.stream = stream or sys.stdout

    def progress(self, **values: Any) -> None:
        self._line("progress", json.dumps(values))

    def report(self, value: Any) -> None:
        text = json.dumps(value)
        digest = hashlib.sha256(text.encode("ascii")).hexdigest()
        self._line("report", f"{len(text)} {digest} {text}")

    def _line(self, kind: str, text: str) -> None:
        self.stream.write(f"\n{self.mark} {kind} {text}\n")
        self.stream.flush()


class Listener:
    """The asking side: fed with lines, keeps the report if it came whole. ``noise``: the last other lines."""

    def __init__(self, mark: str, on_progress: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.mark = mark
        self.on_progress = on_progress
        self.value: dict[str, Any] | None = None
        self.begun = self.broken = False
        self.noise: list[str] = []

    def line(self, line: str) -> None:
        text = line.rstrip("\r\n")
        if not text.startswith(self.mark + " "):
            if text.strip():
                self.noise = [*self.noise[-19:], text[:500]]
            return
        self.begun = True
        kind, _, rest = text[len(self.mark) + 1 :].partition(" ")
        if kind == "progress" and self.on_progress is not None:
            self.on_progress(_object(rest))
        elif kind == "report":
            self._report(rest)

    def _report(self, rest: str) -> None:
        length, _, rest = rest.partition(" ")
        digest, _, text = rest.partition(" ")
        whole = length.isdigit() and len(text) == int(length)
        if whole and hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() == digest:
            self.value = json.loads(text)
        else:
            self.broken = True


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
