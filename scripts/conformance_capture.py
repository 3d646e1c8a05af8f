"""``make conformance-capture``: every fault inside a real vLLM must be named by ``replay``, the healthy run be clean.

Writes results/capture.json. ``--captures DIR`` replays what an earlier run left in DIR (one folder per case) and
runs no vLLM; its speeds are then those of that run, from its ``answers.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import capture_vllm
from capture_vllm import Case

from draftproof.bench.provenance import provenance
from draftproof.bench.results import write_result
from draftproof.errors import DraftproofError, UsageError
from draftproof.proof.capture.manifest import find
from draftproof.proof.capture.reading import read_capture
from draftproof.proof.capture.replay.chain import Replay, replay

SCHEMA = "draftproof.capture-conformance/1"
ENOUGH = 2000  # drafted tokens of the healthy run
MENDED, AS_RELEASED = "k-norm-mended", "context-k-norm-first"
LIVE = (
    "taps-one-early",
    "taps-one-late",
    "taps-reordered",
    "last-tap-post-norm",
    "window-ignored",
    "window-off-by-one",
    "causality-flipped-sliding",
    "anchor-masked",
    "positions-shifted",
    "mask-token-wrong",
    "mask-row-zero",
    "rope-base-wrong",
    "hidden-norm-skipped",
    "context-normed-twice",
    "head-random",
    "head-overwritten",
    "vocabulary-unmapped",
    "embedding-scaled",
)
OLD = ("taps-one-early", "window-ignored", "causality-flipped-sliding")


def cases(slice_only: bool) -> list[Case]:
    """On a uniform sliding drafter. The release has a fault of its own on a CPU, which is mended in all but one."""
    released = Case("as-released", (), (AS_RELEASED,), 48)
    if slice_only:
        return [released, Case("taps-one-early", (MENDED, "taps-one-early"), ("taps-one-early",), 16, 2)]
    found = [released, Case("healthy", (MENDED,), (), 224)]
    found += [Case(name, (MENDED, name), (name,), 24, 4 if name == "window-off-by-one" else 2) for name in LIVE]
    if capture_vllm.old_runner() is not None:
        found.append(Case("old-release", (MENDED, "old-release"), OLD, 24, 2))
    return found


def timed() -> list[Case]:
    """The same answers without and with a capture, twice."""
    return [Case(f"{kind}-{i}", (MENDED,), (), 40, 2, kind == "on") for i in (1, 2) for kind in ("off", "on")]


def overhead(folder: Path) -> dict[str, Any] | None:
    """Processor seconds of all threads with a capture, relative to those without: the machine may be busy."""
    file = folder / "answers.json"
    answered = json.loads(file.read_text())["cases"] if file.is_file() else []
    spent = {one["name"]: one["cpu_seconds"] for one in answered if one["name"].startswith(("on-", "off-"))}
    on, off = (sum(value for name, value in spent.items() if name.startswith(kind)) for kind in ("on-", "off-"))
    return {"cpu_seconds": spent, "relative": on / off - 1} if on and off else None


def row(case: Case, result: Replay, path: Path) -> dict[str, Any]:
    """What was said of one case, and whether that is right and the only thing said."""
    capture = read_capture(path)
    counted = capture_vllm.counts(capture)
    said = result.proven
    taps = next(stage for stage in result.stages if stage.name == "taps")
    return {
        "case": case.name,
        "expected": list(case.expected),
        "said": list(said.faults),
        "verdict": said.kind,
        "certainty": said.certainty,
        "rivals": [list(names) for names in said.rivals],
        "right": set(said.faults) == set(case.expected) and not said.rivals,
        "first_wrong": result.first.name if result.first is not None else None,
        "drafted_tokens": result.drafted,
        "agreement": result.search.healthy.to_dict() if result.search is not None else None,
        "taps_error": taps.figures.get("worst_error"),
        "witness": result.extra["witness"],
        "tau": counted.tau,
        "says": said.says,
    }


def judged(case: Case, folder: Path, drafter: str, target: str) -> dict[str, Any]:
    """The row of a case, kept beside its capture: an interrupted run goes on where it was."""
    path = find(folder / case.name)
    kept = path.parent / "row.json"
    if not kept.is_file():
        result = replay(path, drafter, target)
        kept.write_text(json.dumps(row(case, result, path) | {"engine": result.manifest.engine}))
    return dict(json.loads(kept.read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="bundled:smollm2")
    parser.add_argument("--drafter", type=Path, required=True, help="uniform, all layers sliding")
    parser.add_argument("--captures", type=Path, help="replay these instead of running vLLM")
    parser.add_argument("--keep", type=Path, default=Path("captures/conformance"))
    parser.add_argument("--out", type=Path, default=Path("results/capture.json"))
    parser.add_argument("--slice", action="store_true", help="two short cases")
    given = parser.parse_args()
    wanted, folder = cases(given.slice), given.captures or given.keep
    if given.captures is None:
        model = capture_vllm.folder_for_others(given.target)
        ids = capture_vllm.prompts(model, max(case.prompts for case in wanted))
        every = wanted if given.slice else [*wanted, *timed()]
        answers = capture_vllm.run(given.target, given.drafter, every, folder, ids, capture_vllm.old_runner())
        (folder / "answers.json").write_text(json.dumps(answers))
    rows = []
    for case in wanted:
        if not (folder / case.name).is_dir():
            continue
        rows.append(judged(case, folder, str(given.drafter), given.target))
        print(f"{case.name}: {rows[-1]['said'] or rows[-1]['verdict']} ({rows[-1]['certainty']})", file=sys.stderr)
    if not rows:
        raise UsageError(f"{folder}: none of the cases {', '.join(capture_vllm.names(wanted))} is in it")
    engine = rows[0]["engine"]
    rows = [{key: value for key, value in r.items() if key != "engine"} for r in rows]
    document = {"schema_version": SCHEMA, "engine": engine, "cases": rows, "right": sum(r["right"] for r in rows)}
    write_result(given.out, document | {"overhead": overhead(folder), "provenance": provenance()})
    wrong = [r["case"] for r in rows if not r["right"]]
    print(
        f"{len(rows) - len(wrong)} of {len(rows)} cases named rightly"
        + (f"; wrong: {', '.join(wrong)}" if wrong else "")
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DraftproofError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
