"""The shape of the sources: sizes, who imports whom, what imports without torch."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import draftproof

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "draftproof"
SOURCES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "scripts").glob("*.py")])
MAX_FILE = 350  # aimed at: 300
MAX_FUNCTION = 60  # aimed at: 40
FRONT_ENDS = {"cli", "server", "bench", "proof"}
TORCH_FREE = ["draftproof", "draftproof.drafters.spec", "draftproof.drafters.formats", "draftproof.cli"]
TORCH_FREE += [
    f"draftproof.proof{part}" for part in ("", ".rules", ".install", ".engines", ".files", ".launch", ".report")
]
HEAVY = ("torch", "transformers", "scipy", "matplotlib")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_files_and_functions_are_small(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_FILE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            assert length <= MAX_FUNCTION, f"{node.name} has {length} lines"


@pytest.mark.parametrize("part", ["engine", "drafters", "targets", "native"])
def test_the_core_knows_no_front_end(part):
    for path in (PACKAGE / part).rglob("*.py"):
        for module in imported(path):
            top = module.removeprefix("draftproof.").split(".")[0]
            assert not (module.startswith("draftproof.") and top in FRONT_ENDS), f"{name_of(path)}: {module}"


def imported(path: Path) -> list[str]:
    """Absolute names of everything a file imports, also inside functions."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


@pytest.mark.parametrize("module", TORCH_FREE)
def test_imports_without_heavy_libraries(module):
    """In a fresh interpreter, the package's own modules included."""
    program = (
        "import importlib, pkgutil, sys\n"
        f"package = importlib.import_module({module!r})\n"
        f"deep = {module!r} != 'draftproof' and hasattr(package, '__path__')\n"
        "for found in pkgutil.iter_modules(package.__path__) if deep else ():\n"
        "    if found.name != '__main__':\n"
        f"        importlib.import_module({module!r} + '.' + found.name)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["version"] == draftproof.__version__
