"""Injuries to a really installed package: each is found and named; the intact copy gives no finding."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from support.installs import codes, copy_distribution, environment, look, rewrite_record

PACKAGE = "regex"  # Python files and one extension, nothing that it depends on


class Install:
    """A copy of the package in an environment of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python, self.site = environment(folder / "venv")
        self.info = copy_distribution(PACKAGE, self.site)
        self.package = self.site / PACKAGE
        self.module = self.package / "_main.py" if (self.package / "_main.py").exists() else self.package / "regex.py"
        self.extension = next(self.package.glob("*.so"))

    def recorded(self) -> None:
        rewrite_record(self.info)


@pytest.fixture
def install(tmp_path: Path) -> Install:
    return Install(tmp_path)


def test_the_intact_copy_gives_no_finding(install: Install) -> None:
    case, findings = look(PACKAGE, install.python)
    assert findings == ()
    (integrity,) = case.engine.options["install"]["integrity"]
    assert integrity["files"]["verified"] == integrity["files"]["listed"] > 5
    assert case.engine.options["install"]["importability"]["extensions"] == {f"{PACKAGE}._{PACKAGE}": ""}


def _edited(i: Install) -> None:
    i.module.write_text(i.module.read_text() + "\n# a patch\n")


def _flipped(i: Install) -> None:
    data = bytearray(i.module.read_bytes())
    data[100] ^= 1
    i.module.write_bytes(data)


def _cut_build(i: Install) -> None:
    """What a linker that ran out of disk leaves: recorded as it is, but not whole."""
    os.truncate(i.extension, i.extension.stat().st_size - 100)
    i.recorded()


def _other_machine(i: Install) -> None:
    data = bytearray(i.extension.read_bytes())
    data[18:20] = struct.pack("<H", 183)
    i.extension.write_bytes(data)
    i.recorded()


def _other_python(i: Install) -> None:
    renamed = i.extension.with_name(f"_{PACKAGE}.cpython-38-x86_64-linux-gnu.so")
    i.extension.rename(renamed)
    record = i.info / "RECORD"
    record.write_text(record.read_text().replace(i.extension.name, renamed.name))


def _library_gone(i: Install) -> None:
    i.extension.write_bytes(i.extension.read_bytes().replace(b"libc.so.6\0", b"libq.so.6\0"))
    i.recorded()


def _shadowing(i: Install) -> None:
    other = i.folder / "other"
    shutil.copytree(i.package, other / PACKAGE)
    (i.site / "first.pth").write_text(f"import sys; sys.path.insert(1, {str(other)!r})\n")


def _second_copy(i: Install) -> None:
    other = i.folder / "other"
    shutil.copytree(i.package, other / PACKAGE)
    (i.site / "later.pth").write_text(f"{other}\n")


def _two_versions(i: Install) -> None:
    shutil.copytree(i.info, i.site / f"{PACKAGE}-2019.1.1.dist-info")


def _foreign_bytecode(i: Install) -> None:
    other = i.folder / "other.py"
    other.write_text("raise SystemExit('not the code you see')\n")
    py_compile.compile(
        str(other),
        cfile=importlib.util.cache_from_source(str(i.package / "__init__.py")),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def _sourceless(i: Install) -> None:
    py_compile.compile(str(i.module), cfile=str(i.package / "extra.pyc"))


def _raises(i: Install) -> None:
    (i.package / "__init__.py").write_text("import a_dependency_that_is_not_there\n")
    i.recorded()


def _aborts(i: Install) -> None:
    (i.package / "__init__.py").write_text("import os\nos.abort()\n")
    i.recorded()


def _leaves(i: Install) -> None:
    (i.package / "__init__.py").write_text("import sys\nsys.exit(0)\n")
    i.recorded()


def _half_a_record(i: Install) -> None:
    record = i.info / "RECORD"
    lines = record.read_text().splitlines(keepends=True)
    keep = [line for line in lines if i.module.name not in line]
    record.write_text("".join(keep))


def _directory_for_file(i: Install) -> None:
    i.module.unlink()
    i.module.mkdir()


def _symlink_loop(i: Install) -> None:
    i.module.unlink()
    i.module.symlink_to(i.module.name)


def _moved_aside(i: Install) -> None:
    shutil.copytree(i.package, i.site / f"~{PACKAGE[1:]}")


def _metadata_aside(i: Install) -> None:
    shutil.copytree(i.info, i.site / f"~{i.info.name[1:]}")


def _gone_folder(i: Install) -> None:
    shutil.rmtree(i.package)


INJURIES: dict[str, tuple[Callable[[Install], object], str, str]] = {
    "a module deleted": (lambda i: i.module.unlink(), "INSTALL_INCOMPLETE", "{module}"),
    "an extension deleted": (lambda i: i.extension.unlink(), "INSTALL_INCOMPLETE", "{extension}"),
    "the package's folder deleted": (_gone_folder, "INSTALL_INCOMPLETE", "__init__.py"),
    "a link to nowhere": (
        lambda i: (i.module.unlink(), i.module.symlink_to("nowhere")),
        "INSTALL_INCOMPLETE",
        "{module}",
    ),
    "a link to itself": (_symlink_loop, "INSTALL_MODIFIED", "{module}"),
    "a folder in a module's place": (_directory_for_file, "INSTALL_MODIFIED", "{module}"),
    "an edited module": (_edited, "INSTALL_MODIFIED", "{module}"),
    "one bit flipped": (_flipped, "INSTALL_MODIFIED", "same size, other sha256"),
    "an emptied module": (lambda i: i.module.write_text(""), "INSTALL_MODIFIED", "1 empty"),
    "an emptied extension": (lambda i: i.extension.write_bytes(b""), "INSTALL_EXTENSION_BROKEN", "it is empty"),
    "half an extension": (
        lambda i: os.truncate(i.extension, i.extension.stat().st_size // 2),
        "INSTALL_EXTENSION_BROKEN",
        "truncated",
    ),
    "an extension cut off by its build": (_cut_build, "INSTALL_EXTENSION_BROKEN", "truncated"),
    "an extension that is a web page": (
        lambda i: i.extension.write_text("<html>404</html>"),
        "INSTALL_EXTENSION_BROKEN",
        "no ELF file",
    ),
    "an extension for another machine": (_other_machine, "INSTALL_EXTENSION_FOREIGN", "aarch64"),
    "an extension for another Python": (_other_python, "INSTALL_EXTENSION_FOREIGN", "cpython-38"),
    "a library that is nowhere": (_library_gone, "INSTALL_LIBRARY_MISSING", "libq.so.6"),
    "no RECORD": (lambda i: (i.info / "RECORD").unlink(), "INSTALL_UNRECORDED", "no RECORD"),
    "an empty RECORD": (lambda i: (i.info / "RECORD").write_text(""), "INSTALL_UNRECORDED", "no RECORD"),
    "no METADATA": (lambda i: (i.info / "METADATA").unlink(), "INSTALL_UNRECORDED", "no METADATA"),
    "no dist-info": (lambda i: shutil.rmtree(i.info), "INSTALL_UNRECORDED", "no distribution owns it"),
    "a RECORD with lines missing": (_half_a_record, "INSTALL_EXTRA_FILES", "{module}"),
    "a file too many": (lambda i: (i.package / "old.py").write_text("x = 1\n"), "INSTALL_EXTRA_FILES", "old.py"),
    "bytecode without source": (_sourceless, "INSTALL_EXTRA_FILES", "extra.pyc"),
    "bytecode of another source": (_foreign_bytecode, "INSTALL_BYTECODE_WRONG", "__init__.py"),
    "a second copy in front": (_shadowing, "INSTALL_SHADOWED", "other"),
    "a second copy behind": (_second_copy, "INSTALL_SHADOWED", "other"),
    "two versions at once": (_two_versions, "INSTALL_SHADOWED", "2019.1.1"),
    "an old version moved aside": (_moved_aside, "INSTALL_LEFTOVERS", "~egex"),
    "old metadata moved aside": (_metadata_aside, "INSTALL_LEFTOVERS", "~egex"),
    "a dependency missing": (_raises, "INSTALL_NOT_IMPORTABLE", "a_dependency_that_is_not_there"),
    "a crash at import": (_aborts, "INSTALL_NOT_IMPORTABLE", "SIGABRT"),
    "an exit at import": (_leaves, "INSTALL_NOT_IMPORTABLE", "SystemExit"),
}


@pytest.mark.parametrize("name", INJURIES)
def test_an_injury_is_found_and_named(name: str, install: Install) -> None:
    injure, code, said = INJURIES[name]
    injure(install)
    _, findings = look(PACKAGE, install.python)
    found = [finding for finding in findings if finding.code == code and finding.severity != "info"]
    wanted = said.format(module=install.module.name, extension=install.extension.name)
    assert found, f"{name}: {[(f.code, f.says) for f in findings]}"
    assert any(wanted in finding.says for finding in found), [finding.says for finding in found]


def test_an_import_that_hangs_is_not_taken_for_a_good_one(install: Install) -> None:
    (install.package / "__init__.py").write_text("import time\ntime.sleep(600)\n")
    install.recorded()
    _, findings = look(PACKAGE, install.python, seconds=6)
    assert codes(findings) == {"INSTALL_UNFINISHED"}


def test_nothing_installed_is_said(install: Install) -> None:
    _, findings = look(None, install.python, levels=("provenance",))
    assert codes(findings) == {"INSTALL_ENGINE_MISSING"}
    _, findings = look("vllm", prefix=install.folder / "nowhere")
    assert codes(findings) == {"INSTALL_ENGINE_MISSING"}
    assert "does not exist" in findings[0].says


def test_nothing_is_written_where_it_looks(install: Install) -> None:
    def everything() -> dict[str, float]:
        return {str(p): p.lstat().st_mtime for p in sorted(install.folder.rglob("*"))}

    before = everything()
    look(PACKAGE, install.python)
    assert everything() == before
