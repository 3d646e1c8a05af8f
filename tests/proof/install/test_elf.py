"""The ELF reader against readelf's idea of the same files, and against files cut off anywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from draftproof.proof.install.probe import elf, libraries

SITE = Path(sysconfig.get_paths()["platlib"])
FILES = sorted([*SITE.glob("*/*.so"), *SITE.glob("*.libs/*.so*")])[:12]


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs readelf (binutils)")
@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_it_reads_what_readelf_reads(file: Path) -> None:
    said = subprocess.run(["readelf", "-dW", str(file)], capture_output=True, text=True, check=True).stdout
    found = elf.read(str(file))
    assert found["needed"] == re.findall(r"\(NEEDED\).*\[(.*)\]", said)
    assert [found["soname"]] == (re.findall(r"\(SONAME\).*\[(.*)\]", said) or [None])
    paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", said)
    assert found["search"] == [p for path in paths[:1] for p in path.split(":") if p]


@pytest.mark.parametrize("file", FILES[:3], ids=lambda f: f.name)
def test_a_file_cut_off_anywhere_is_broken(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()  # tools may leave a few bytes of padding at its end, which are no loss
    cut = tmp_path / "cut.so"
    for length in [0, 3, 4, 15, 63, 64, 100, *range(200, len(data) - 64, max(1, len(data) // 50)), len(data) - 9]:
        cut.write_bytes(data[:length])
        with pytest.raises(elf.Broken):
            elf.read(str(cut))


def test_damaged_headers_never_raise_anything_else(tmp_path: Path) -> None:
    data = bytearray(FILES[0].read_bytes())
    for at in range(4, 64):
        damaged = bytearray(data)
        damaged[at] = 255 - damaged[at]
        file = tmp_path / "damaged.so"
        file.write_bytes(damaged)
        try:
            elf.read(str(file))
        except elf.Broken:
            continue


def test_the_linker_finds_what_it_finds() -> None:
    found = libraries.Libraries([])
    assert found.find("libc.so.6", "/", []) and not found.find("libnothing.so.9", "/", [])
