"""Fingerprints: what was made with a fault is told apart from what was not, and little evidence decides nothing."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from draftproof.proof.fingerprints import HEALTHY, NONE, FingerprintError, Fingerprints, exactly, read_fingerprints
from draftproof.proof.likeness import Match, match, separation

SHAPES = {HEALTHY: [30, 25, 20, 12, 13], "tail": [30, 28, 25, 14, 3], "dead": [95, 4, 1, 0, 0]}
PROMPTS = 200


def drawn(rates: Sequence[float], rounds: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    counts = [0] * len(rates)
    for i in rng.choices(range(len(rates)), rates, k=rounds):
        counts[i] += 1
    return counts


def made(spread: float = 1.0) -> Fingerprints:
    """Ten independent rounds a prompt; ``spread``: how many times more its rates scatter than these would."""
    accepted = {name: {"short": drawn(shape, 10 * PROMPTS, 7)} for name, shape in SHAPES.items()}
    scatter, each = {}, {}
    for name, by in accepted.items():
        total = by["short"]
        rates = [sum(total[k:]) / sum(total) for k in range(1, 5)]
        scatter[name] = {"short": [spread * (max(p * (1 - p), 1e-4) / 10) ** 0.5 for p in rates]}
        each[name] = rates
    h = each[HEALTHY]
    correlation = [
        [(min(a, b) - a * b) / ((a * (1 - a) * b * (1 - b)) ** 0.5) if i != j else 1.0 for j, b in enumerate(h)]
        for i, a in enumerate(h)
    ]
    codes = {"tail": "ENGINE_CAUSALITY_MISMATCH", "dead": "LM_HEAD_NOT_SHARED"}
    return Fingerprints({}, ["short"], PROMPTS, accepted, scatter, correlation, codes)


def of(counts: Sequence[int], prints: Fingerprints | None = None, **more: object) -> list[Match]:
    return match(prints or made(), {"short": counts}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(SHAPES))
def test_enough_rounds_name_what_made_them(name: str) -> None:
    best = of(drawn(SHAPES[name], 1500, 1))[0]
    assert best.name == name and best.probability > 0.95 and best.share == 1.0


def test_twenty_rounds_do_not_tell_a_tail_from_health() -> None:
    assert of(drawn(SHAPES["tail"], 20, 2))[0].probability < 0.9


def test_a_fault_at_work_in_half_the_rounds_is_found() -> None:
    mixed = [a + b for a, b in zip(drawn(SHAPES["dead"], 600, 3), drawn(SHAPES[HEALTHY], 600, 4), strict=True)]
    best = of(mixed)[0]
    assert best.name == "dead" and best.share == 0.5


def test_what_resembles_nothing_is_none_of_these() -> None:
    assert of([0, 0, 1000, 0, 0])[0].name == NONE


def test_resembling_rounds_count_less() -> None:
    observed = drawn(SHAPES["tail"], 300, 5)
    sure, unsure = (of(observed, made(s))[0] for s in (1.0, 4.0))
    assert sure.name == "tail" and unsure.probability < sure.probability


def test_probabilities_sum_to_one() -> None:
    assert sum(m.probability for m in of(drawn(SHAPES[HEALTHY], 50, 6))) == pytest.approx(1.0)


def test_counts_from_curves_and_back() -> None:
    assert exactly([10, 7, 3]) == [3, 4, 3]
    with pytest.raises(FingerprintError, match="rise"):
        exactly([10, 3, 7])


def test_a_fault_that_is_not_known_is_none_of_these_or_one_alike() -> None:
    unknown = of(drawn([10, 60, 20, 5, 5], 1500, 3))[0]
    assert unknown.name == NONE
    assert of(drawn(SHAPES["dead"], 1500, 3), without=("dead",))[0].name == NONE


def test_shorter_drafts_are_compared_as_far_as_they_go() -> None:
    counts = drawn(SHAPES["dead"], 900, 4)
    assert of([counts[0], counts[1], sum(counts[2:])])[0].name == "dead"


def test_separation_grows_with_the_run() -> None:
    few, many = (separation(made(), "tail", HEALTHY, n) for n in (2, 100))
    assert 0 < few < many and many > 5


@pytest.mark.parametrize(
    ("observed", "condition", "says"), [([1] * 9, "short", "positions"), ([1], "cached", "no fingerprints")]
)
def test_what_does_not_fit_is_refused(observed: list[int], condition: str, says: str) -> None:
    with pytest.raises(FingerprintError, match=says):
        match(made(), {condition: observed})


def test_a_file_is_read_back_and_others_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    file.write_text(json.dumps(made().to_dict()))
    assert read_fingerprints(file).accepted == made().accepted
    for text, says in (("{", "line 1"), ("[]", "draftproof lab"), ('{"schema_version": "x"}', "draftproof lab")):
        file.write_text(text)
        with pytest.raises(FingerprintError, match=says):
            read_fingerprints(file)


def test_comparing_needs_no_torch() -> None:
    code = "import sys, draftproof.proof.likeness; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_diagnose_says_what_counts_resemble(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from draftproof.cli.main import main
    from draftproof.proof.case import Case, Observation

    counts = drawn(SHAPES["tail"], 1500, 9)
    at_least = [sum(counts[k:]) for k in range(5)]
    metrics = {"num_drafts": at_least[0], "accepted_per_position": [n / at_least[0] for n in at_least[1:]]}
    case, prints = tmp_path / "case.json", tmp_path / "prints.json"
    case.write_text(json.dumps(Case(method="dflash", k=4, observations=(Observation("x", {}, metrics),)).to_dict()))
    prints.write_text(json.dumps(made().to_dict()))
    main(["diagnose", "--case", str(case), "--fingerprints", str(prints), "--json"])
    said = json.loads(capsys.readouterr().out)["resembles"]
    assert said[0]["name"] == "tail" and said[0]["code"] == "ENGINE_CAUSALITY_MISMATCH"
    main(["diagnose", "--case", str(case), "--fingerprints", str(prints)])
    assert "tail (ENGINE_CAUSALITY_MISMATCH)" in capsys.readouterr().out
    assert main(["diagnose", "--case", str(case), "--condition", "long"]) == 2
    assert main(["diagnose", "--case", str(case), "--fingerprints", str(prints), "--condition", "odd"]) == 2
    errors = capsys.readouterr().err
    assert "--condition has no effect" in errors and "no fingerprints; there are some for: short" in errors
