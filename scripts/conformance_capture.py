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

from draftproof.bench.acceptance import AcceptanceCounts
from draftproof.bench.provenance import provenance
from draftproof.bench.results import write_result
from draftproof.engine.engine import Engine
from draftproof.engine.types import RoundStats, SamplingParams
from draftproof.errors import DraftproofError, UsageError
from draftproof.proof.capture.manifest import find
from draftproof.proof.capture.reading import read_capture
from draftproof.proof.capture.replay.chain import Replay, replay

SCHEMA = "draftproof.capture-conformance/1"
BLOCK = 16  # more tokens than any drafter here proposes at once
MENDED, AS_RELEASED, FLIPPED = "k-norm-mended", "context-k-norm-first", "causality-flipped-full"
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
    released = Case("as-released", (), (AS_RELEASED,), 48 if slice_only else 16, 4 if slice_only else 40)
    if slice_only:
        return [released, Case("taps-one-early", (MENDED, "taps-one-early"), ("taps-one-early",), 16, 2)]
    found = [released, Case("healthy", (MENDED,), (), 48, 40)]
    found += [Case(name, (MENDED, name), (name,), *_size(name)) for name in LIVE]
    if capture_vllm.old_runner() is not None:
        found.append(Case("old-release", (MENDED, "old-release"), OLD, *_size("old-release")))
    return found


def _size(name: str) -> tuple[int, int]:
    """Tokens of an answer, and prompts: many where counters alone are judged, too (see story.py)."""
    if name in OLD or name == "old-release":
        return 16, 40
    return 24, 4 if name == "window-off-by-one" else 2


def cases_full() -> list[Case]:
    """On the same weights with every layer full and looking both ways."""
    return [Case("healthy-full", (MENDED,), (), 224), Case("causality-flipped-full", (MENDED, FLIPPED), (FLIPPED,), 24)]


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


def beside_reference(case: Case, folder: Path, drafter: str, target: str, ids: list[list[int]]) -> dict[str, Any]:
    """vLLM's acceptance and text on these prompts, and those of our own engine."""
    engine = Engine(target, drafter, dtype="float32", length_policy="fixed", max_num_seqs=4)
    # Our engine drafts no more than may still be said, vLLM drafts as ever: ask for more, and count to the same end.
    asked = SamplingParams(max_tokens=case.max_tokens + BLOCK, ignore_eos=True)
    outputs = engine.generate(ids[: case.prompts], asked)
    rounds = [(i, one) for i, output in enumerate(outputs) for one in _until(output.rounds, case.max_tokens)]
    mine = AcceptanceCounts.from_rounds([one for _, one in rounds], [i for i, _ in rounds])
    theirs = capture_vllm.counts(read_capture(find(folder / case.name)))
    answered = json.loads((folder / "answers.json").read_text())["cases"]
    texts = next(one["token_ids"] for one in answered if one["name"] == case.name)
    same = sum(text == list(o.token_ids[: case.max_tokens]) for text, o in zip(texts, outputs, strict=True))
    return {
        "prompts": case.prompts,
        "same_text": same,
        "vllm": {"rounds": theirs.rounds, "tau": theirs.tau, "tau_ci95": theirs.tau_ci95()},
        "reference": {"rounds": mine.rounds, "tau": mine.tau, "tau_ci95": mine.tau_ci95()},
    }


def _until(rounds: list[RoundStats], tokens: int) -> list[RoundStats]:
    """Rounds that begin before so many tokens are out; the first token comes from the prompt's own pass."""
    kept, said = [], 1
    for one in rounds:
        if said >= tokens:
            break
        kept.append(one)
        said += one.accepted + 1
    return kept


def captured(given: argparse.Namespace, wanted: list[Case], drafter: Path, more: list[Case]) -> None:
    """Run vLLM once with this drafter; its answers go beside the captures, after those of earlier runs."""
    model = capture_vllm.folder_for_others(given.target)
    ids = capture_vllm.prompts(model, max(case.prompts for case in wanted))
    answers = capture_vllm.run(given.target, drafter, [*wanted, *more], given.keep, ids, capture_vllm.old_runner())
    file = given.keep / "answers.json"
    earlier = json.loads(file.read_text())["cases"] if file.is_file() else []
    new = {one["name"] for one in answers["cases"]}
    answers["cases"] = [one for one in earlier if one["name"] not in new] + answers["cases"]
    file.write_text(json.dumps(answers))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="bundled:smollm2")
    parser.add_argument("--drafter", type=Path, required=True, help="uniform, all layers sliding")
    parser.add_argument("--captures", type=Path, help="replay these instead of running vLLM")
    parser.add_argument("--keep", type=Path, default=Path("captures/conformance"))
    parser.add_argument("--out", type=Path, default=Path("results/capture.json"))
    parser.add_argument("--slice", action="store_true", help="two short cases")
    return parser.parse_args()


def replayed(folder: Path, wanted: list[Case], drafter: Path, target: str) -> list[dict[str, Any]]:
    rows = []
    for case in wanted:
        if (folder / case.name).is_dir():
            rows.append(judged(case, folder, str(drafter), target))
            print(f"{case.name}: {rows[-1]['said'] or rows[-1]['verdict']} ({rows[-1]['certainty']})", file=sys.stderr)
    return rows


def main() -> int:
    given = arguments()
    folder = given.captures or given.keep
    sliding, full = cases(given.slice), [] if given.slice else cases_full()
    wide = capture_vllm.variant(given.drafter, folder / "drafter-full", sliding=False, causal=False)
    if given.captures is None:
        captured(given, sliding, given.drafter, [] if given.slice else timed())
        if full:
            captured(given, full, wide, [])
    rows = replayed(folder, sliding, given.drafter, given.target) + replayed(folder, full, wide, given.target)
    if not rows:
        raise UsageError(f"{folder}: none of the cases {', '.join(capture_vllm.names(sliding))} is in it")
    document = {"schema_version": SCHEMA, "engine": rows[0]["engine"], "drafter": given.drafter.name}
    rows = [{key: value for key, value in r.items() if key != "engine"} for r in rows]
    document |= {"cases": rows, "right": sum(r["right"] for r in rows), "overhead": overhead(folder)}
    healthy = next((case for case in sliding if case.name == "healthy"), None)
    if healthy is not None and (folder / "healthy").is_dir():
        ids = capture_vllm.prompts(capture_vllm.folder_for_others(given.target), healthy.prompts)
        document["acceptance"] = beside_reference(healthy, folder, str(given.drafter), given.target, ids)
    write_result(given.out, document | {"provenance": provenance() | {"command": "make conformance-capture"}})
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
