"""Load the compiled kernels once and hand them torch's thread pool."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from ctypes import c_char_p, c_float, c_int, c_size_t, c_void_p
from pathlib import Path

import torch

from draftproof.native.build import BuildError, build_library

_lock = threading.Lock()
_library: ctypes.CDLL | None = None
_reason: str | None = None
_wanted_threads: int | None = None


class PlanFault(ctypes.Structure):
    """What check_plan found: a code and the index of the first offender."""

    _fields_ = (("code", ctypes.c_int32), ("where", ctypes.c_int32))


def _declare(lib: ctypes.CDLL) -> None:
    """Argument and result types of the C interface."""
    p, i = c_void_p, c_int
    signatures = {
        "dp_runtime": (None, [p, p, p]),
        "dp_set_threads": (None, [i]),
        "dp_selftest": (i, []),
        "dp_target": (c_char_p, []),
        "dp_linear_new": (p, [p, i, i, i, p]),
        "dp_linear_free": (None, [p]),
        "dp_linear_run": (i, [p, p, i, i, p]),
        "dp_decoder_new": (p, [p]),
        "dp_decoder_layer": (i, [p, p]),
        "dp_decoder_free": (None, [p]),
        "dp_check_plan": (PlanFault, [p, i, i]),
        "dp_check_map": (PlanFault, [p, p, i, i, i, i]),
        "dp_decoder_forward": (i, [p, p, p, p, p, p, i, p, p]),
        "dp_decoder_append": (i, [p, p, p, p, p]),
        "dp_attention": (i, [p, p, p, p, p, p, p]),
        "dp_row_stats": (None, [p, i, i, i, p, p, p]),
        "dp_rms_norm": (None, [p, p, p, i, i, c_float]),
        "dp_advise": (None, [p, c_size_t]),
        "dp_read": (c_float, [p, c_size_t]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype = result
        function.argtypes = arguments


def _openmp_entry_points() -> tuple[int, int, int] | None:
    """Addresses in the OpenMP runtime that torch has loaded, or None.

    Sharing torch's pool matters: its idle threads spin for a while after each
    torch operation and would compete with the threads of a second pool.
    """
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count("/")}
    names = ("libgomp", "libomp", "libiomp")
    # torch's own copy first, should several runtimes be loaded.
    candidates = [path for path in paths if os.path.basename(path).startswith(names)]
    for path in sorted(candidates, key=lambda path: ("/torch/" not in path, path)):
        try:
            lib = ctypes.CDLL(path)
            functions = (lib.GOMP_parallel, lib.omp_get_thread_num, lib.omp_get_num_threads)
        except (OSError, AttributeError):
            continue
        first, second, third = (ctypes.cast(function, c_void_p).value for function in functions)
        if first and second and third:
            return first, second, third
    return None


def _load() -> ctypes.CDLL:
    if os.environ.get("DRAFTPROOF_NATIVE", "1") == "0":
        raise BuildError("turned off by DRAFTPROOF_NATIVE=0")
    if sys.byteorder != "little":
        raise BuildError("native kernels need a little-endian CPU")
    lib = ctypes.CDLL(str(build_library()))
    _declare(lib)
    entry_points = _openmp_entry_points()
    if entry_points:
        lib.dp_runtime(*entry_points)
    lib.dp_set_threads(_wanted_threads or torch.get_num_threads())
    failed = lib.dp_selftest()
    if failed:
        raise BuildError(f"self-test {failed} of the native kernels failed")
    return lib


def _try_load() -> ctypes.CDLL | None:
    global _library, _reason
    with _lock:
        if _library is None and _reason is None:
            try:
                _library = _load()
            except (BuildError, OSError, AttributeError) as error:
                _reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return _library


def library() -> ctypes.CDLL:
    """The loaded kernels; raises RuntimeError with the reason if there are none."""
    lib = _library or _try_load()
    if lib is None:
        raise RuntimeError(f"native kernels are not available: {_reason}")
    return lib


def available() -> bool:
    """Whether the kernels work here; compiles them on the first call (seconds)."""
    return _try_load() is not None


def reason() -> str:
    """One line that says why `available()` is False; empty when it is True."""
    _try_load()
    return _reason or ""


def target() -> str:
    """Instruction set of the kernels: avx512_bf16, avx512, avx2 or generic."""
    return bytes(library().dp_target()).decode()


def check_memory(status: int) -> None:
    """Raise MemoryError if a kernel could not get its working memory."""
    if status:
        raise MemoryError("no memory for the working buffers of a native pass")


def set_threads(n: int) -> None:
    """Number of threads of later passes; by default torch's number at load time.

    Results do not depend on it.  Raises ValueError if n < 1.
    """
    global _wanted_threads
    if n < 1:
        raise ValueError(f"threads: expected at least 1, got {n}")
    _wanted_threads = n
    if _library is not None:
        _library.dp_set_threads(n)
