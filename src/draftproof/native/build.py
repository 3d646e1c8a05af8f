"""Compile the kernels into a shared library in a cache folder.

The library is keyed by sources, compiler, flags and CPU, written under a
temporary name and moved into place, so concurrent processes cannot see half a
file and a cache shared between machines never serves a foreign binary.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from draftproof.runtime import cache_dir

SOURCE_DIR = Path(__file__).parent
COMPILE_SECONDS = 300
CHECK_SECONDS = 60
# Loads the library in a child process: an illegal instruction kills only that.
CHECK_PROGRAM = "import ctypes,sys; sys.exit(ctypes.CDLL(sys.argv[1]).dp_selftest())"

log = logging.getLogger(__name__)


class BuildError(RuntimeError):
    """The kernels cannot be built here; the message is one line."""


def find_compilers() -> list[str]:
    """C++ compilers to try, best first: $CXX alone if set, else the usual names."""
    chosen = os.environ.get("CXX")
    names = [chosen] if chosen else ["g++", "c++", "clang++"]
    found = [path for name in names if (path := shutil.which(name))]
    if not found:
        raise BuildError(f"no C++ compiler found (looked for {', '.join(names)})")
    return found


def flag_sets() -> list[list[str]]:
    """Compiler flags to try in turn, from the whole CPU down to the baseline."""
    # Without contraction only the explicit fma calls fuse, so that differently
    # unrolled copies of a kernel round alike.
    common = [
        "-std=c++17",
        "-O3",
        "-ffp-contract=off",
        "-fno-strict-aliasing",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        "-pthread",
        "-w",
    ]
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        levels = [["-march=native"], ["-mavx2", "-mfma"], []]
    elif machine in ("aarch64", "arm64"):
        levels = [["-mcpu=native"], []]
    else:
        levels = [[]]
    return [common + level for level in levels]


def cpu_identity() -> str:
    """Text that changes whenever -march=native may mean something else."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part", "CPU implementer")
    seen: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in wanted:
            seen.setdefault(name.strip(), value.strip())
    return platform.machine() + repr(sorted(seen.items()))


def cache_key(compiler: str, flags: list[str]) -> str:
    """Hash of everything that determines the binary."""
    digest = hashlib.sha256()
    for path in sorted(SOURCE_DIR.iterdir()):
        if path.suffix in (".h", ".cpp"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    version = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, timeout=CHECK_SECONDS, check=False
    )
    digest.update(repr((compiler, version.stdout, flags, cpu_identity())).encode())
    return digest.hexdigest()[:20]


def cache_roots() -> Iterator[Path]:
    """Folders to keep the library in, best first; the last is temporary."""
    yield cache_dir()
    yield Path(tempfile.gettempdir()) / f"draftproof-{os.getuid()}"


def writable_folder(key: str) -> Path:
    """The first cache folder that can be created and written by us alone."""
    problem = ""
    for root in cache_roots():
        folder = root / "native" / key
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A library in a folder that someone else can write, or swap for
            # another, would be a way to run their code.
            for place in (folder, folder.parent, root):
                state = place.stat()
                if state.st_uid != os.getuid() or state.st_mode & 0o002:
                    raise PermissionError(f"{place} can be written by another user")
            with tempfile.NamedTemporaryFile(dir=folder):
                return folder
        except (OSError, RuntimeError) as error:
            problem = str(error)
    raise BuildError(f"no writable cache folder: {problem}")


def run_compiler(compiler: str, flags: list[str], output: Path) -> None:
    """Compile api.cpp to `output`, or raise BuildError with the first error."""
    command = [compiler, *flags, str(SOURCE_DIR / "api.cpp"), "-o", str(output)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{compiler}: {error}") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line]
        first = (errors or lines or [f"exit status {done.returncode}"])[0]
        raise BuildError(f"{compiler}: {first.strip()}")


def check_library(path: Path) -> None:
    """Run the self-test in a child process, or raise BuildError."""
    try:
        done = subprocess.run(
            [sys.executable, "-S", "-c", CHECK_PROGRAM, str(path)],
            capture_output=True,
            timeout=CHECK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"self-test: {error}") from error
    if done.returncode != 0:
        raise BuildError(f"self-test of the compiled kernels ended with status {done.returncode}")


def build_one(compiler: str, flags: list[str]) -> Path:
    """The library for one compiler and set of flags, from the cache if there."""
    folder = writable_folder(cache_key(compiler, flags))
    library = folder / "kernels.so"
    if library.exists():
        return library
    handle, name = tempfile.mkstemp(dir=folder, suffix=".so")
    os.close(handle)
    draft = Path(name)
    try:
        log.info("compiling native kernels with %s (once, about ten seconds)", compiler)
        run_compiler(compiler, flags, draft)
        check_library(draft)
        os.replace(draft, library)
    finally:
        draft.unlink(missing_ok=True)
    return library


def build_library() -> Path:
    """Path of a library that passed its self-test on this machine.

    Raises BuildError with the first problem met when no combination works.
    """
    if sys.platform != "linux":
        raise BuildError(f"native kernels are built on Linux only, not on {sys.platform}")
    problems: list[str] = []
    for compiler in find_compilers():
        for flags in flag_sets():
            try:
                return build_one(compiler, flags)
            except (BuildError, OSError, subprocess.SubprocessError) as error:
                problems.append(str(error))
    raise BuildError(problems[0])
