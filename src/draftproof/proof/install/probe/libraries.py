"""Where the dynamic linker would find a library: the file's own search path, LD_LIBRARY_PATH, the cache, defaults.

The cache's layout after glibc's ``dl-cache.h`` (``glibc-ld.so.cache1.1``); see also ld.so(8).
"""

from __future__ import annotations

import glob
import os
import struct

_MAGIC = b"glibc-ld.so.cache1.1"
_DEFAULTS = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/lib/*-linux-gnu*", "/usr/lib/*-linux-gnu*", "/usr/local/lib")


class Libraries:
    """Answers whether a library can be found. ``roots``: site folders, where packages bring libraries that an earlier
    import loads (torch's, NVIDIA's); a library found only there counts as found."""

    def __init__(self, roots: list[str]) -> None:
        self.roots = roots
        self.cached = cached_names()
        self.folders = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
        self.folders += [folder for pattern in _DEFAULTS for folder in sorted(glob.glob(pattern))]
        self._brought: set[str] | None = None

    def find(self, name: str, origin: str, search: list[str]) -> bool:
        """``origin``: folder of the file that needs it; ``search``: its RUNPATH or RPATH."""
        if "/" in name:
            return os.path.exists(name)
        own = [p.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for p in search]
        if name in self.cached or any(os.path.exists(os.path.join(f, name)) for f in [*own, *self.folders]):
            return True
        return name in self.brought

    @property
    def brought(self) -> set[str]:
        if self._brought is None:
            self._brought = set()
            for root in self.roots:
                for _, folders, files in os.walk(root):
                    folders[:] = [f for f in folders if f != "__pycache__"]
                    self._brought.update(f for f in files if ".so" in f)
        return self._brought


def cached_names(path: str = "/etc/ld.so.cache") -> set[str]:
    """Names in the linker's cache; empty where there is none (musl, macOS)."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return set()
    start = data.find(_MAGIC)
    if start < 0 or len(data) < start + 48:
        return set()
    (count,) = struct.unpack_from("<I", data, start + 20)
    names = set()
    for index in range(count):
        at = start + 48 + 24 * index
        if at + 24 > len(data):
            break
        (key,) = struct.unpack_from("<I", data, at + 4)
        names.add(data[start + key : data.find(b"\0", start + key)].decode("utf-8", "replace"))
    return names
