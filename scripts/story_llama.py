"""The llama.cpp chapter of the story: drafters in a real llama-server, as their files say and with causality unsaid.

Converts target and drafters to f32 GGUF with llama.cpp's own converter, answers the same prompts with the server and
with the reference engine, and asks ``check`` and ``diagnose``. Rows have the keys of ``story.py``'s; its curve and τ
come from the server's own /metrics. Both engines are greedy in float32, so rounds can be compared request by request.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

import capture_vllm
from llama_server import Answers, GreedyServer, converted, counters, served

from draftproof.bench.acceptance import AcceptanceCounts
from draftproof.bench.provenance import provenance
from draftproof.bench.results import write_result
from draftproof.bench.workloads import load_workload
from draftproof.drafters.dflash import DFlashDrafter
from draftproof.drafters.formats import read_spec
from draftproof.drafters.loading import load_weights
from draftproof.engine.engine import Engine
from draftproof.engine.types import RequestOutput, SamplingParams
from draftproof.errors import DraftproofError
from draftproof.proof.diagnosis import report
from draftproof.proof.fingerprints import read_fingerprints
from draftproof.proof.gathering import Sources, gather
from draftproof.proof.lab.recording import record
from draftproof.proof.lab.replay import ReplayTarget
from draftproof.targets.loading import folder_for_others

SCHEMA = "draftproof.story-llama/1"
MISMATCH = "ENGINE_CAUSALITY_MISMATCH"


@dataclass(frozen=True)
class Variant:
    """``says``: what the drafter's file says of causality: as it is, nothing, or False for every layer."""

    name: str
    known: tuple[str, ...]
    says: str

    @property
    def suffix(self) -> str:
        return "-" + self.says.replace(" ", "-")


FAITHFUL = Variant("as the file says", (), "as it is")
UNSAID = Variant("its causality unsaid", ("causality-flipped-sliding",), "nothing")
AS_RUN = Variant("is_causal false", (), "false")  # what llama.cpp makes of UNSAID, in words that the reference reads


def contexts(model: str, workload: str, count: int) -> list[list[int]]:
    """Token ids of prompts longer than the drafter's window: texts of a workload in orders that do not repeat."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    texts = [prompt.messages[-1]["content"] for prompt in load_workload(workload).prompts]
    found: list[list[int]] = []
    ids: list[int] = []
    for seed in takewhile(lambda _: len(found) < count, range(50 * count)):
        order = random.Random(seed).sample(texts, len(texts))
        for k in range(1, len(order) + 1):
            turns = [{"role": "user", "content": " ".join(order[:k])}]
            ids = list(tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)["input_ids"])
            if len(ids) >= capture_vllm.LONG:
                break
        if ids not in found:
            found.append(ids)
    return found


def written(drafter: Path, variant: Variant, folder: Path) -> Path:
    """The drafter with what ``variant`` says of causality; the weights are the same file."""
    config = json.loads((drafter / "config.json").read_text())
    if variant.says != "as it is":
        config.pop("is_causal", None)
        config["dflash_config"] = {key: value for key, value in config["dflash_config"].items() if key != "causal"}
    config |= {"is_causal": False} if variant.says == "false" else {}
    place = folder / f"{drafter.name}{variant.suffix}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text(json.dumps(config, indent=1))
    weights = place / "model.safetensors"
    if not weights.exists():
        weights.symlink_to((drafter / "model.safetensors").resolve())
    return place


def as_llama_cuts(output: RequestOutput, max_tokens: int) -> list[tuple[int, int]]:
    """(drafted, accepted) of every round as llama.cpp would count it: its last drafts leave room for the bonus."""
    left, rounds = max_tokens - 1, []
    for one in output.rounds:
        depth = min(one.depth, left - 1)
        if depth > 0:
            rounds.append((depth, min(one.accepted, depth)))
        left -= one.produced
    return rounds


@dataclass(frozen=True)
class Reference:
    tokens: list[list[int]]
    rounds: list[list[tuple[int, int]]]

    @property
    def counts(self) -> AcceptanceCounts:
        groups = [i for i, rounds in enumerate(self.rounds) for _ in rounds]
        return AcceptanceCounts.from_rounds([one for rounds in self.rounds for one in rounds], groups)


class Laboratory:
    """The target in float32, recorded once; drafters then draft against the record in the engine's own loop."""

    def __init__(self, given: argparse.Namespace, ids: Sequence[Sequence[int]]) -> None:
        engine = Engine(given.target, dtype="float32", device="cpu", threads=given.threads, kv_cache_gb=0.5)
        self.engine, self.max_tokens = engine, given.max_tokens
        specs = [read_spec(drafter) for drafter in given.drafter]
        layers = sorted({layer for spec in specs for layer in spec.tap_layers})
        most = given.max_tokens + given.drafts + 2
        self.recordings = record(engine, ids, layers, [SamplingParams(max_tokens=most, ignore_eos=True)] * len(ids))

    def reference(self, drafter: Path) -> Reference:
        target = ReplayTarget(self.engine.target)
        made = DFlashDrafter(*load_weights(str(drafter), self.engine.target, []), target)
        engine = self.engine.around(target, made, length_policy="fixed", enable_prefix_caching=False)
        target.load(self.recordings)
        outputs = engine.generate([list(r.prompt) for r in self.recordings], SamplingParams(max_tokens=self.max_tokens))
        return Reference([list(o.token_ids) for o in outputs], [as_llama_cuts(o, self.max_tokens) for o in outputs])


def alike(answers: Answers, told: Reference) -> dict[str, int]:
    """Requests with the reference's text, and with its text and its counts of drafted and accepted tokens."""
    texts = [a == b for a, b in zip(answers.tokens, told.tokens, strict=True)]
    sums = [tuple(sum(one[i] for one in rounds) for i in (0, 1)) for rounds in told.rounds]
    same = [t and tuple(got) == want for t, got, want in zip(texts, answers.counted, sums, strict=True)]
    return {"requests": len(texts), "text": sum(texts), "counts": sum(same)}


def diagnosed(kind: str, text: str, drafter: Path, given: argparse.Namespace) -> dict[str, Any]:
    """What ``diagnose`` says: the server's counters (``metrics``) or its ``log`` as they are, the files, the build."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / kind
        file.write_text(text)
        engine, seen = f"llama.cpp=={given.build}", {kind: [str(file)]}
        case, notes = gather(Sources(drafter=str(drafter), engine=engine, **seen))  # type: ignore[arg-type]
    prints = read_fingerprints(given.fingerprints) if given.fingerprints else None
    found = report(case, notes, (), prints, given.condition if prints else None)
    verdict = found.verdict
    said: dict[str, Any] = {"verdict": verdict.kind, "codes": sorted(verdict.codes), "next_probe": verdict.next_probe}
    said["figures"] = {name: figure.value for name, figure in found.figures.items()}
    if prints is not None:
        said["resembles"] = [{"name": m.name, "probability": m.probability} for m in found.resembles[:3]]
    return said


def checked(drafter: Path, build: str) -> dict[str, Any]:
    """What ``check`` says before anything runs."""
    command = [sys.executable, "-m", "draftproof.cli", "check", str(drafter), "--engine", f"llama.cpp=={build}"]
    done = subprocess.run([*command, "--json", "--quiet"], capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    (row,) = document["matrix"]
    cells = {cell["respect"]: cell["says"] for cell in row["cells"] if cell["sure"]}
    codes = sorted(finding["code"] for finding in document["findings"])
    return {"exit_code": done.returncode, "state": row["state"], "codes": codes, "says": cells}


def told(drafter: Path, variant: Variant, work: Work) -> dict[str, Any]:
    """One row: converted, served, compared, judged."""
    given, place = work.given, written(drafter, variant, work.folder)
    row: dict[str, Any] = {
        "engine": f"llama.cpp {given.build} on a CPU, {variant.name}",
        "drafter": drafter.name,
        "known": list(variant.known),
        "check": checked(place, given.build),
        "replay": None,
    }
    gguf = converted(work.converter, place, work.folder / f"{place.name}.gguf", work.model)
    row |= {"error": gguf.error, "converted": gguf.how}
    if gguf.file is None:
        return row | {"tau": None, "curve": [], "rounds": 0, "diagnose": None, "right": False}
    return judged(row | compared(work.served(gguf.file, work.ids), place, work), variant)


def compared(answers: Answers, place: Path, work: Work) -> dict[str, Any]:
    """The server's figures beside the reference's on the same file, and on the file that says what llama.cpp ran."""
    counted, plain, should = counters(answers.metrics), work.plain.tokens, work.laboratory.reference(place)
    found = {
        "tau": 1 + counted["accepted"] / counted["rounds"],
        "curve": [count / counted["rounds"] for count in counted["accepted_at_least"]],
        **counted,
        "reference_tau": should.counts.tau,
        "reference_tau_ci95": should.counts.tau_ci95(),
        "like_reference": alike(answers, should),
        "text_equal": sum(a == b for a, b in zip(answers.tokens, plain, strict=False)) / len(plain),
        "text_compared": len(plain),
        "diagnose": diagnosed("metrics", answers.metrics, place, work.given),
        "diagnose_log": diagnosed("log", answers.log, place, work.given),
    }
    if place.name.endswith(UNSAID.suffix):
        run_as = work.laboratory.reference(written(place, AS_RUN, work.folder))
        found |= {"as_run_tau": run_as.counts.tau, "like_as_run": alike(answers, run_as)}
    return found


def judged(row: dict[str, Any], variant: Variant) -> dict[str, Any]:
    """``right``: a healthy server is called neither faulty nor flipped and is healthy; the other is foretold."""
    foretold = MISMATCH in row["check"]["codes"]
    interval, tau = row["reference_tau_ci95"], row["tau"]
    inside = interval is not None and interval[0] <= tau <= interval[1]
    fair = row["diagnose"]["verdict"] != "faulty" and not foretold
    right = foretold if variant.known else inside and fair and row["text_equal"] == 1.0
    return row | {"inside": inside, "right": right}


@dataclass(frozen=True)
class Work:
    """What all rows share. ``plain``: answers of the server without a drafter, to the first prompts."""

    given: argparse.Namespace
    folder: Path
    converter: Sequence[str]
    model: Path
    target: Path
    ids: list[list[int]]

    def served(self, drafter: Path | None, ids: Sequence[Sequence[int]]) -> Answers:
        server = GreedyServer(self.given.server, self.target, drafter, self.given.threads, self.given.drafts)
        return served(server, ids, self.given.max_tokens, self.folder / (drafter.stem if drafter else "plain"))

    @cached_property
    def plain(self) -> Answers:
        return self.served(None, self.ids[: self.given.plain])

    @cached_property
    def laboratory(self) -> Laboratory:
        return Laboratory(self.given, self.ids)


def prepared(given: argparse.Namespace, folder: Path) -> Work:
    model = Path(folder_for_others(given.target))
    converter = [str(given.python), str(given.convert)]
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "target.gguf"
    made = converted(converter, model, target, None)
    if made.file is None:
        raise DraftproofError(f"{model}: llama.cpp's converter refuses the target ({made.error}); try another build")
    return Work(given, folder, converter, model, target, contexts(str(model), given.prompts, given.count))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", type=Path, required=True, help="llama-server")
    parser.add_argument("--convert", type=Path, required=True, help="convert_hf_to_gguf.py of the same build")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="one that has sentencepiece")
    parser.add_argument("--build", default="b11434")
    parser.add_argument("--drafter", type=Path, action="append", required=True)
    parser.add_argument("--target", default="bundled:smollm2")
    parser.add_argument("--prompts", default="demo", help="built-in workload or JSON Lines")
    parser.add_argument("--count", type=int, default=40, help="prompts")
    parser.add_argument("--plain", type=int, default=12, help="prompts that are also answered without a drafter")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--drafts", type=int, default=7, help="drafted tokens, block - 1")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--fingerprints", type=Path, help="of these drafters' weights, for diagnose")
    parser.add_argument("--condition", help="of the fingerprints")
    parser.add_argument("--keep", type=Path, help="folder for the GGUF files; default: a temporary one")
    parser.add_argument("--out", type=Path, default=Path("captures/llama.json"))
    return parser.parse_args()


def main() -> int:
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="draftproof-llama-") as folder:
        work = prepared(given, given.keep or Path(folder))
        rows = [told(drafter, variant, work) for drafter in given.drafter for variant in (FAITHFUL, UNSAID)]
    asked = {"workload": given.prompts, "prompts": len(work.ids), "max_tokens": given.max_tokens}
    document = {"schema_version": SCHEMA, "build": given.build, "asked": asked, "rows": rows}
    write_result(given.out, document | {"provenance": provenance()})
    print(f"{sum(row['right'] for row in rows)} of {len(rows)} judged rightly: {given.out}")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (DraftproofError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))
