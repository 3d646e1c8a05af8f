"""Tasks on numbers and grids for programming prompts. Written for this package; examples are computed by ``run``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class Task:
    """``head``: name and annotated parameters with the result; ``does``: what it does, in words; ``run`` computes
    an example from inputs drawn by ``kinds``, one letter a parameter (see ``_draw``)."""

    head: str
    does: str
    kinds: str
    run: Callable[..., Any]


def _chunks(xs: list, n: int) -> list:
    return [xs[i : i + n] for i in range(0, len(xs), n)]


def _rising(xs: list) -> int:
    best = now = 1 if xs else 0
    for a, b in pairwise(xs):
        now = now + 1 if b > a else 1
        best = max(best, now)
    return best


def _digits(number: int, base: int) -> list[int]:
    out: list[int] = []
    while number:
        out.append(number % base)
        number //= base
    return out[::-1] or [0]


def _change(amount: int, coins: list[int]) -> list[int]:
    out: list[int] = []
    for coin in sorted(coins, reverse=True):
        out += [coin] * (amount // coin)
        amount %= coin
    return out


NUMBER_TASKS = (
    Task(
        "keep_above(values: List[int], limit: int) -> List[int]",
        "keep only the values that are greater than the limit, in their order",
        "ln",
        lambda v, k: [x for x in v if x > k],
    ),
    Task(
        "running_total(values: List[int]) -> List[int]",
        "return the list of partial sums of the values",
        "l",
        lambda v: [sum(v[: i + 1]) for i in range(len(v))],
    ),
    Task(
        "range_width(values: List[int]) -> int",
        "return the difference between the largest and the smallest value",
        "l",
        lambda v: max(v) - min(v),
    ),
    Task(
        "second_smallest(values: List[int]) -> int",
        "return the second smallest distinct value",
        "l",
        lambda v: sorted(set(v))[1],
    ),
    Task(
        "pairwise_gaps(values: List[int]) -> List[int]",
        "return the absolute differences between neighbouring values",
        "l",
        lambda v: [abs(a - b) for a, b in pairwise(v)],
    ),
    Task(
        "split_even_odd(values: List[int]) -> Tuple[List[int], List[int]]",
        "separate the even values from the odd ones and return both lists",
        "l",
        lambda v: ([x for x in v if x % 2 == 0], [x for x in v if x % 2]),
    ),
    Task(
        "rotate_right(values: List[int], steps: int) -> List[int]",
        "move every value the given number of steps to the right, with wrap-around",
        "ls",
        lambda v, k: v[-(k % len(v)) :] + v[: -(k % len(v))] if k % len(v) else v,
    ),
    Task(
        "in_groups(values: List[int], size: int) -> List[List[int]]",
        "cut the list into consecutive groups of the given size; the last one may be shorter",
        "ls",
        lambda v, k: _chunks(v, k),
    ),
    Task(
        "index_of_peak(values: List[int]) -> int",
        "return the index of the largest value, the first one if there are several",
        "l",
        lambda v: v.index(max(v)),
    ),
    Task(
        "without_repeats(values: List[int]) -> List[int]",
        "remove repeated values but keep the order of their first appearance",
        "d",
        lambda v: list(dict.fromkeys(v)),
    ),
    Task(
        "most_frequent(values: List[int]) -> int",
        "return the value that occurs most often; the smallest one on a tie",
        "d",
        lambda v: min(set(v), key=lambda x: (-v.count(x), x)),
    ),
    Task(
        "weighted_sum(values: List[int], weights: List[int]) -> int",
        "multiply each value by the weight at the same place and add everything up",
        "ee",
        lambda v, w: sum(a * b for a, b in zip(v, w, strict=False)),
    ),
    Task(
        "interleave(left: List[int], right: List[int]) -> List[int]",
        "take elements from both lists in turn, starting with the left one",
        "ee",
        lambda a, b: [x for p in zip(a, b, strict=False) for x in p],
    ),
    Task(
        "longest_rise(values: List[int]) -> int",
        "return the length of the longest run of strictly increasing neighbours",
        "l",
        _rising,
    ),
    Task(
        "clamp_all(values: List[int], low: int, high: int) -> List[int]",
        "replace values below low by low and values above high by high",
        "lsn",
        lambda v, a, b: [min(max(x, a), b) for x in v],
    ),
    Task(
        "count_multiples(values: List[int], divisor: int) -> int",
        "count how many values can be divided by the divisor without remainder",
        "ls",
        lambda v, k: sum(x % k == 0 for x in v),
    ),
    Task(
        "sum_of_squares_of_odds(values: List[int]) -> int",
        "add the squares of all odd values",
        "l",
        lambda v: sum(x * x for x in v if x % 2),
    ),
    Task(
        "common_items(left: List[int], right: List[int]) -> List[int]",
        "return the sorted values that appear in both lists",
        "dd",
        lambda a, b: sorted(set(a) & set(b)),
    ),
    Task(
        "drop_extremes(values: List[int]) -> List[int]",
        "return the values without one smallest and one largest of them, sorted",
        "l",
        lambda v: sorted(v)[1:-1],
    ),
    Task(
        "mean_rounded(values: List[int]) -> int",
        "return the average of the values rounded down to a whole number",
        "l",
        lambda v: sum(v) // len(v),
    ),
    Task(
        "product_of_digits(number: int) -> int",
        "multiply the decimal digits of a positive number",
        "n",
        lambda n: math.prod(int(c) for c in str(n)),
    ),
    Task(
        "reverse_number(number: int) -> int",
        "return the number whose decimal digits are in reverse order",
        "n",
        lambda n: int(str(n)[::-1]),
    ),
    Task(
        "count_divisors(number: int) -> int",
        "return how many positive divisors the number has",
        "n",
        lambda n: sum(n % k == 0 for k in range(1, n + 1)),
    ),
    Task(
        "to_base(number: int, base: int) -> List[int]",
        "return the digits of the number in the given base, most significant first",
        "nb",
        lambda n, b: _digits(n, b),
    ),
    Task(
        "next_multiple(number: int, step: int) -> int",
        "return the smallest multiple of step that is not below the number",
        "ns",
        lambda n, k: -(-n // k) * k,
    ),
    Task(
        "triangle_number(n: int) -> int", "return the sum of the first n whole numbers", "n", lambda n: n * (n + 1) // 2
    ),
    Task(
        "halvings(number: int) -> int",
        "return how many times the number can be halved before it becomes odd",
        "n",
        lambda n: (n & -n).bit_length() - 1,
    ),
    Task(
        "minutes_to_clock(minutes: int) -> str",
        "format a number of minutes as hours and minutes, like 2:05",
        "m",
        lambda m: f"{m // 60}:{m % 60:02d}",
    ),
    Task(
        "celsius_to_fahrenheit(degrees: int) -> float",
        "convert a temperature from Celsius to Fahrenheit",
        "n",
        lambda d: d * 9 / 5 + 32,
    ),
    Task(
        "discounted(price: int, percent: int) -> float",
        "return the price after a discount of the given percentage",
        "mn",
        lambda p, q: round(p * (100 - q) / 100, 2),
    ),
    Task(
        "make_change(amount: int, coins: List[int]) -> List[int]",
        "pay the amount with as few coins as a greedy choice gives, largest first",
        "mq",
        lambda a, c: _change(a, c),
    ),
    Task(
        "row_sums(grid: List[List[int]]) -> List[int]",
        "return the sum of each row of the grid",
        "g",
        lambda g: [sum(r) for r in g],
    ),
    Task(
        "column_maxima(grid: List[List[int]]) -> List[int]",
        "return the largest value of each column",
        "g",
        lambda g: [max(c) for c in zip(*g, strict=True)],
    ),
    Task(
        "flip_grid(grid: List[List[int]]) -> List[List[int]]",
        "exchange rows and columns of the grid",
        "g",
        lambda g: [list(c) for c in zip(*g, strict=True)],
    ),
    Task(
        "flatten_grid(grid: List[List[int]]) -> List[int]",
        "return all values of the grid in one list, row by row",
        "g",
        lambda g: [x for r in g for x in r],
    ),
    Task(
        "border_sum(grid: List[List[int]]) -> int",
        "add the values in the first and in the last row",
        "g",
        lambda g: sum(g[0]) + sum(g[-1]),
    ),
)
