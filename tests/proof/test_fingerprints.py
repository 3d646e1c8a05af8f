"""Fingerprints: what was made with a fault is told apart from what was not, and little evidence decides nothing."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from draftproof.proof.fingerprints import (
    HEALTHY,
    NONE,
    FingerprintError,
    Fingerprints,
    design_effect,
    exactly,
    read_fingerprints,
)

SHAPES = {HEALTHY: [30, 25, 20, 12, 13], "tail": [30, 28, 25, 14, 3], "dead": [95, 4, 1, 0, 0]}


def drawn(rates: Sequence[float], rounds: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    counts = [0] * len(rates)
    for i in rng.choices(range(len(rates)), rates, k=rounds):
        counts[i] += 1
    return counts


def made(spread: float = 1.0) -> Fingerprints:
    accepted = {name: {"short": drawn(shape, 2000, 7)} for name, shape in SHAPES.items()}
    return Fingerprints({}, accepted, {"tail": "ENGINE_CAUSALITY_MISMATCH", "dead": "LM_HEAD_NOT_SHARED"}, spread)


@pytest.mark.parametrize("name", list(SHAPES))
def test_enough_rounds_name_what_made_them(name: str) -> None:
    best = made().match(drawn(SHAPES[name], 1500, 1), "short")[0]
    assert best.name == name and best.probability > 0.95 and best.share == 1.0


def test_twenty_rounds_do_not_tell_a_tail_from_health() -> None:
    assert made().match(drawn(SHAPES["tail"], 20, 2), "short")[0].probability < 0.9


def test_a_fault_at_work_in_half_the_rounds_is_found() -> None:
    mixed = [a + b for a, b in zip(drawn(SHAPES["dead"], 600, 3), drawn(SHAPES[HEALTHY], 600, 4), strict=True)]
    best = made().match(mixed, "short")[0]
    assert best.name == "dead" and best.share == 0.5


def test_what_resembles_nothing_is_none_of_these() -> None:
    assert made().match([0, 0, 1000, 0, 0], "short")[0].name == NONE


def test_resembling_rounds_count_less() -> None:
    observed = drawn(SHAPES["tail"], 300, 5)
    sure, unsure = (made(s).match(observed, "short")[0] for s in (1.0, 20.0))
    assert sure.name == "tail" and unsure.probability < sure.probability


def test_probabilities_sum_to_one() -> None:
    assert sum(m.probability for m in made().match(drawn(SHAPES[HEALTHY], 50, 6), "short")) == pytest.approx(1.0)


def test_counts_from_curves_and_back() -> None:
    assert exactly([10, 7, 3]) == [3, 4, 3]
    with pytest.raises(FingerprintError, match="rise"):
        exactly([10, 3, 7])


def test_the_design_effect_is_one_for_independent_rounds_and_more_for_prompts_of_their_own() -> None:
    rng = random.Random(0)
    alike = [(sum(rng.random() < 0.5 for _ in range(60)), 60) for _ in range(200)]
    apart = [(60 if i % 2 else 0, 60) for i in range(200)]
    assert design_effect(alike) < 1.3 and design_effect(apart) > 10
    assert design_effect([(3, 5)]) == 1.0


@pytest.mark.parametrize(
    ("observed", "condition", "says"), [([1] * 9, "short", "positions"), ([1], "cached", "no fingerprints")]
)
def test_what_does_not_fit_is_refused(observed: list[int], condition: str, says: str) -> None:
    with pytest.raises(FingerprintError, match=says):
        made().match(observed, condition)


def test_a_file_is_read_back_and_others_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    file.write_text(json.dumps(made().to_dict()))
    assert read_fingerprints(file).accepted == made().accepted
    for text, says in (("{", "line 1"), ("[]", "draftproof lab"), ('{"schema_version": "x"}', "draftproof lab")):
        file.write_text(text)
        with pytest.raises(FingerprintError, match=says):
            read_fingerprints(file)


def test_comparing_needs_no_torch() -> None:
    code = "import sys, draftproof.proof.fingerprints; sys.exit('torch' in sys.modules)"
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
