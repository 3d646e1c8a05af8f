"""Install released engines from PyPI into a cache, one at a time, to judge ``draftproof doctor`` by.

    python scripts/fetch_installs.py vllm==0.20.1 sglang==0.5.11 …   (none: all releases of the matrix)

Each is really installed (``pip install --no-deps --target``). Afterwards only what the judgement reads is kept:
Python sources and metadata, about 40 MB in place of 1 GB; ``--whole`` keeps everything. The cache lies outside the
repository: ``$DRAFTPROOF_INSTALLS``, by default ``~/.cache/draftproof/installs``.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VLLM = ("0.19.1", "0.20.1", "0.21.0", "0.22.0", "0.24.0", "0.25.0", "0.26.0", "0.28.0", "0.30.0", "0.33.0")
SGLANG = ("0.5.10.post1", "0.5.11", "0.5.13", "0.5.14", "0.5.17", "0.5.18", "0.5.19", "0.5.23")
MATRIX = tuple(f"vllm=={v}" for v in VLLM) + tuple(f"sglang=={v}" for v in SGLANG)
PYTHON = ".".join(platform.python_version_tuple()[:2])  # the interpreter that the tests run with
PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(17, 40)),
    "manylinux1_x86_64",
    "manylinux2014_x86_64",
)
KEEP = (".py", ".json", ".toml", ".txt")  # beside *.dist-info; sources, and the data that sources read


def cache_folder() -> Path:
    return Path(os.environ.get("DRAFTPROOF_INSTALLS") or "~/.cache/draftproof/installs").expanduser()


def installed(requirement: str, *, whole: bool = False) -> Path | None:
    """The folder of an install in the cache, None if there is none."""
    folder = cache_folder() / (requirement.replace("==", "-") + ("-whole" if whole else ""))
    return folder if (folder / ".complete").exists() else None


def fetch(requirement: str, *, whole: bool = False) -> Path:
    """The install's folder, made if need be. Raises CalledProcessError when pip fails."""
    found = installed(requirement, whole=whole)
    if found is not None:
        return found
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / (requirement.replace("==", "-") + ("-whole" if whole else ""))
    with tempfile.TemporaryDirectory(dir=cache, prefix=".part-") as part:
        target = Path(part) / "target"
        subprocess.run(pip_words(requirement, target), check=True, env={**os.environ, "TMPDIR": part})
        if not whole:
            _prune(target)
        (target / ".complete").touch()
        shutil.rmtree(folder, ignore_errors=True)
        target.rename(folder)
    return folder


def pip_words(requirement: str, target: Path, command: str = "install") -> list[str]:
    """pip's command line for the wheel that a host would get, whatever runs here."""
    words = [sys.executable, "-m", "pip", "--disable-pip-version-check", command, "--quiet", "--no-deps"]
    words += ["--no-cache-dir", "--only-binary", ":all:", "--implementation", "cp", "--python-version", PYTHON]
    words += ["--no-compile", "--target", str(target)] if command == "install" else ["--dest", str(target)]
    for name in PLATFORMS:
        words += ["--platform", name]
    return [*words, requirement]


def _prune(target: Path) -> None:
    for path in sorted(target.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.suffix not in KEEP and not path.parent.name.endswith((".dist-info", "bin")):
            path.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("requirement", nargs="*", default=list(MATRIX), help="such as vllm==0.20.1")
    parser.add_argument("--whole", action="store_true", help="keep compiled extensions too")
    arguments = parser.parse_args()
    for requirement in arguments.requirement:
        print(fetch(requirement, whole=arguments.whole), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
