"""The laboratory's blind test on one pair: 200 fault runs on prompts that its fingerprints do not know.

Counting is the expensive part; it goes on from --counts where it was interrupted.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from draftproof import native
from draftproof.bench.provenance import provenance
from draftproof.bench.results import write_result
from draftproof.cli.terminal import rounded
from draftproof.proof.fingerprints import HEALTHY, Fingerprints, read_fingerprints
from draftproof.proof.lab.blind import runs_of, summary
from draftproof.proof.lab.faults import FAULTS, SAME_EFFECT
from draftproof.proof.lab.pool import Pool, choose, collect
from draftproof.proof.lab.runs import Laboratory

SCHEMA = "draftproof.blind/1"
HEALTHY_LIMIT, FIRST_LIMIT = 0.02, 0.90


def judged(pool: Pool, prints: Fingerprints, arguments: argparse.Namespace) -> dict[str, Any]:
    names = [n for n in pool if n != HEALTHY and n in prints.accepted]
    size, seed, found = arguments.run_prompts, arguments.seed, {}
    for label, conditions in (("all", None), *((c, (c,)) for c in prints.conditions)):
        faults = names if conditions is None else [n for n in names if conditions[0] in pool[n]]
        more: dict[str, Any] = {"seed": seed, "conditions": conditions}
        faulty = runs_of(pool, prints, faults, arguments.runs, size, **more)
        healthy = runs_of(pool, prints, [HEALTHY], arguments.runs, size, **more)
        hidden = runs_of(pool, prints, faults, arguments.runs, size, hidden=True, **more)
        found[label] = summary(faulty, healthy, hidden, prints)
    return found


def draw(calibration: Sequence[dict[str, float]], out: Path) -> None:
    """Reported probability against frequency; the size of a point is the number of runs behind it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.7", lw=1, label="perfectly calibrated")
    said, right = [row["said"] for row in calibration], [row["right"] for row in calibration]
    axes.plot(said, right, color="#1f4e79", lw=1)
    axes.scatter(said, right, s=[20 + 2 * row["runs"] ** 0.9 for row in calibration], color="#1f4e79", alpha=0.8)
    for row in calibration:
        axes.annotate(
            f"{row['runs']:.0f}", (row["said"], row["right"]), (6, -10), textcoords="offset points", fontsize=8
        )
    axes.set(xlabel="probability of the first explanation", ylabel="share of runs where it was right")
    axes.set(xlim=(0, 1.03), ylim=(0, 1.05))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drafter", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--prompts", action="append", required=True)
    parser.add_argument("--fingerprints", type=Path, required=True)
    parser.add_argument("--counts", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=192, help="prompts held back")
    parser.add_argument("--run-prompts", type=int, default=64, help="prompts of one run")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path, default=Path("results/blind.json"))
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    prints = read_fingerprints(arguments.fingerprints)
    pair = prints.pair
    place = Laboratory(arguments.target, arguments.drafter, max_tokens=pair["max_tokens"], seed=pair["seed"] + 1)
    native.set_threads(torch.get_num_threads())
    if place.weights_sha256 != pair["weights_sha256"]:
        print(f"{arguments.fingerprints}: made for other weights; run make fingerprints first", file=sys.stderr)
        return 2
    prompts = choose(arguments.prompts, arguments.limit, arguments.seed, set(pair["prompts"]))
    faults = [f for f in FAULTS if f.name in prints.accepted]
    pool = collect(place, prompts, faults, prints.conditions, arguments.counts, lambda s: print(s, file=sys.stderr))
    found = judged(pool, prints, arguments)
    command = shlex.join(["python", "scripts/blind.py", *sys.argv[1:]])
    document = {
        "schema_version": SCHEMA,
        "pair": {k: v for k, v in pair.items() if k != "prompts"},
        "prompts": {"fingerprints": prints.prompts, "held_back": len(prompts), "of_a_run": arguments.run_prompts},
        "declared_same": [{"faults": sorted(group), "why": why} for group, why in SAME_EFFECT],
        "conditions": found,
        "provenance": provenance(arguments.seed) | {"command": command},
    }
    write_result(arguments.out, rounded(document))
    draw(found["all"]["calibration"], arguments.out.with_suffix(".svg"))
    all_of_them = found["all"]
    print({key: value for key, value in all_of_them.items() if key not in ("by_fault", "alike", "calibration")})
    shows = all_of_them["of_faults_that_show"]["first_or_alike"]
    return 0 if shows >= FIRST_LIMIT and all_of_them["healthy_called_faulty"] <= HEALTHY_LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(main())
