"""Counter-based numbers: pure functions of their arguments, uniform and independent in every direction."""

import time
from functools import cache

import numpy as np
import pytest
from scipy import stats

from draftproof.engine.rng import Purpose, RequestRng

N = 20_000
FIRST_OF_SEED_0 = [0.7054856102290846, 0.13870941014555427]


def numbers(seeds, positions, purposes=(Purpose.TARGET,)):
    return np.array([rng.uniform(p, q) for rng in map(RequestRng, seeds) for p in positions for q in purposes])


AXES = {
    "along positions": lambda: numbers([7], range(N)),
    "along seeds": lambda: numbers(range(N), [3]),
    "along purposes and positions": lambda: numbers([1], range(N // 4), Purpose),
    "far positions": lambda: numbers([2**63 - 1], range(10**9, 10**9 + N)),
    "strided positions": lambda: numbers([0], range(0, 16 * N, 16)),
}


def test_same_arguments_give_the_same_number_in_any_order():
    a, b = RequestRng(11), RequestRng(11)
    forward = [a.uniform(i, Purpose.ACCEPT) for i in range(50)]
    backward = [b.uniform(i, Purpose.ACCEPT) for i in reversed(range(50))]
    assert forward == backward[::-1]


def test_numbers_do_not_depend_on_the_version_of_the_program():
    rng = RequestRng(0)
    assert [rng.uniform(p, Purpose.TARGET) for p in (0, 1)] == FIRST_OF_SEED_0


@pytest.mark.parametrize("seed", [-1, 0, 2**64 - 1, 2**70])
def test_any_integer_is_a_seed_and_numbers_stay_inside_the_open_interval(seed):
    values = numbers([seed], range(2000))
    assert values.min() > 0.0 and values.max() < 1.0


def test_the_largest_scrambled_word_maps_below_one():
    assert ((2**64 - 1 >> 12) + 0.5) * 2.0**-52 < 1.0


@cache
def along(axis):
    return AXES[axis]()


@pytest.mark.parametrize("axis", AXES)
def test_uniform(axis):
    assert stats.kstest(along(axis), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("axis", AXES)
def test_consecutive_numbers_are_independent(axis):
    values = along(axis)
    octants = (values[: len(values) // 3 * 3].reshape(-1, 3) * 8).astype(int)
    cells = octants @ [64, 8, 1]
    assert stats.chisquare(np.bincount(cells, minlength=512)).pvalue > 1e-3


@pytest.mark.parametrize("first,second", [(a, b) for a in Purpose for b in Purpose if a < b])
def test_purposes_are_unrelated(first, second):
    x, y = numbers([5], range(N), (first,)), numbers([5], range(N), (second,))
    assert abs(np.corrcoef(x, y)[0, 1]) < 4 / np.sqrt(N)
    assert len(np.intersect1d(x, y)) == 0


@pytest.mark.parametrize("shift", [0, 1, -1, 2])
def test_neighbouring_seeds_are_unrelated(shift):
    x = numbers([100], range(10, N))
    y = numbers([101], range(10 + shift, N + shift))
    assert abs(np.corrcoef(x, y)[0, 1]) < 4 / np.sqrt(N)


def test_low_bits_are_random():
    bits = (numbers([3], range(N)) * 2**52).astype(np.int64) & 15
    assert stats.chisquare(np.bincount(bits, minlength=16)).pvalue > 1e-3


def test_a_number_is_cheap():
    rng = RequestRng(1)
    best = min(_seconds(rng) for _ in range(5))
    assert best / 1000 < 20e-6  # about 1 µs; the margin is for slow machines


def _seconds(rng):
    start = time.thread_time()
    for i in range(1000):
        rng.uniform(i, Purpose.TARGET)
    return time.thread_time() - start
