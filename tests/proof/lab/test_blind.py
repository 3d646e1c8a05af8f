"""The blind test on counts made by rule: what differs is named, what is the same is declared beforehand."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from draftproof.proof.fingerprints import HEALTHY, NONE
from draftproof.proof.lab.blind import calibration, runs_of, summary
from draftproof.proof.lab.pool import Pool
from draftproof.proof.lab.report import rows
from draftproof.proof.lab.summing import fingerprints

SHAPES = {
    HEALTHY: {"short": [30, 25, 20, 25], "long": [32, 26, 20, 22]},
    "window-ignored": {"short": [30, 25, 20, 25], "long": [60, 25, 10, 5]},
    "anchor-masked": {"short": [70, 10, 10, 10], "long": [72, 10, 9, 9]},
    "stale-rows": {"short": [40, 40, 15, 5], "long": [42, 40, 14, 4]},
    "head-random": {"short": [99, 1, 0, 0], "long": [99, 1, 0, 0]},
    "vocabulary-unmapped": {"short": [98, 2, 0, 0], "long": [98, 2, 0, 0]},
    "window-off-by-one": {"short": [30, 25, 20, 25], "long": [32, 26, 20, 22]},
}


def pool_of(seed: int, prompts: int, rounds: int = 14) -> Pool:
    """Each prompt has its own level, the same under all conditions, and its own chance."""
    pool: Pool = {}
    for name, by in SHAPES.items():
        for condition, shape in by.items():
            for i in range(prompts):
                level = random.Random(f"{seed} {i}").gauss(0, 0.3)
                weights = [w * 2.0 ** (level * k) for k, w in enumerate(shape)]
                drawn = random.Random(f"{seed} {name} {condition} {i}").choices(range(4), weights, k=rounds)
                counts = [drawn.count(k) for k in range(4)]
                pool.setdefault(name, {}).setdefault(condition, {})[f"{seed}-{i}"] = counts
    return pool


@pytest.fixture(scope="module")
def prints():
    return fingerprints(pool_of(1, 60), ["short", "long"], {"drafter": "x"}, {})


def test_faults_on_new_prompts_are_named(prints) -> None:
    names = [n for n in SHAPES if n != HEALTHY]
    pool = pool_of(2, 60)
    faulty = runs_of(pool, prints, names, 60, 40, seed=3)
    healthy = runs_of(pool, prints, [HEALTHY], 30, 40, seed=3)
    hidden = runs_of(pool, prints, names[:3], 30, 40, seed=3, hidden=True)
    found = summary(faulty, healthy, hidden, prints)
    assert found["first_or_alike"] >= 0.95 and found["healthy_called_faulty"] <= 0.04
    assert found["first"] < 1.0, "what is the same is not told apart"
    assert found["of_faults_that_show"]["runs"] == 50, "one of six shows nothing"
    assert {r.truth for r in hidden} == {NONE} and found["hidden_called_healthy"] <= 0.1


def test_what_is_the_same_is_declared_before(prints) -> None:
    assert "vocabulary-unmapped" in prints.alike["head-random"]
    assert HEALTHY in prints.alike["window-off-by-one"]
    assert "anchor-masked" not in prints.alike and "window-ignored" not in prints.alike


def test_one_condition_alone_does_not_show_everything(prints) -> None:
    pool = pool_of(2, 60)
    runs = runs_of(pool, prints, ["window-ignored"], 20, 40, seed=3, conditions=("short",))
    assert not any(r.right for r in runs), "the short condition knows nothing of windows"


def test_calibration_weighs_runs_as_the_priors_say(prints) -> None:
    pool = pool_of(2, 60)
    table = calibration(
        runs_of(pool, prints, ["anchor-masked"], 20, 40, seed=3),
        runs_of(pool, prints, [HEALTHY], 20, 40, seed=3),
        runs_of(pool, prints, ["stale-rows"], 20, 40, seed=3, hidden=True),
    )
    assert sum(row["weight"] for row in table) == pytest.approx(1.0)
    assert all(0 <= row["right"] <= 1 and row["low"] < row["said"] <= row["high"] for row in table)


def test_the_table_is_made_of_the_same_counts() -> None:
    table: Sequence[dict] = rows(pool_of(1, 5))
    healthy = next(row for row in table if row["name"] == HEALTHY)
    assert healthy["conditions"]["short"]["rounds"] == 5 * 14
    assert healthy["conditions"]["short"]["left"] == 1.0
