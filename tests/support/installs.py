"""Copies of really installed packages in environments of their own, to be injured and examined."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from draftproof.proof.case import Case
from draftproof.proof.findings import Finding
from draftproof.proof.install.cases import cases
from draftproof.proof.install.hosts import LEVELS, Answer, Host, Wish, ask
from draftproof.proof.rules import judge


def environment(folder: Path) -> tuple[Path, Path]:
    """(interpreter, site folder) of a fresh environment without pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python", next((folder / "lib").iterdir()) / "site-packages"


def copy_distribution(name: str, site: Path) -> Path:
    """The installed files of a distribution, under another site folder; its dist-info folder there."""
    found = metadata.distribution(name)
    info = None
    for file in found.files or []:
        source, target = Path(str(found.locate_file(file))), site / file
        if ".." in file.parts or not source.is_file():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        if file.name == "RECORD":
            info = target.parent
    assert info is not None
    rewrite_record(info, keep_only_existing=True)
    return info


def rewrite_record(info: Path, *, keep_only_existing: bool = False) -> None:
    """RECORD as an installer would have written it for the files as they are now."""
    site, rows = info.parent, list(csv.reader(io.StringIO((info / "RECORD").read_text())))
    kept = []
    for path, *_ in rows:
        file = site / path
        if keep_only_existing and not file.is_file() and not path.startswith("../"):  # commands keep their line
            continue
        if file.is_file() and file.name != "RECORD":
            digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).decode().rstrip("=")
            kept.append([path, f"sha256={digest}", str(file.stat().st_size)])
        else:
            kept.append([path, "", ""])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(kept)
    (info / "RECORD").write_text(text.getvalue())


def look(
    engine: str | None,
    python: Path | str | None = None,
    prefix: Path | str | None = None,
    levels: tuple[str, ...] = LEVELS,
    seconds: float = 60.0,
    drafter: dict[str, Any] | None = None,
) -> tuple[Case, tuple[Finding, ...]]:
    """What the doctor says of one install."""
    wish = Wish(engine, levels, seconds, drafter)
    answer = ask([Host(None, str(python) if python else None, str(prefix) if prefix else None)], wish)[0]
    return first(answer, wish)


def first(answer: Answer, wish: Wish) -> tuple[Case, tuple[Finding, ...]]:
    case = cases(answer, wish)[0]
    return case, judge(case, areas=["INSTALL"]).findings


def codes(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.code for finding in findings}
