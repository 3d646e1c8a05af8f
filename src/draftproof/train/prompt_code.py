"""Programming prompts made by template: a function's head with a docstring and true examples, or a request in words.

Every task here was written for this package. Examples in docstrings are computed, not typed, so they are right.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WORDS = (
    "river stone lamp paper cloud engine garden violet marble copper window harbor saddle pepper ladder ribbon "
    "tunnel basket mirror anchor walnut candle feather bridge canyon meadow pocket socket kettle rocket"
).split()


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


def _runs(text: str) -> list:
    out: list = []
    for c in text:
        if out and out[-1][0] == c:
            out[-1] = (c, out[-1][1] + 1)
        else:
            out.append((c, 1))
    return out


def _rising(xs: list) -> int:
    best = now = 1 if xs else 0
    for a, b in zip(xs, xs[1:], strict=False):
        now = now + 1 if b > a else 1
        best = max(best, now)
    return best


TASKS = (
    Task("keep_above(values: List[int], limit: int) -> List[int]", "keep only the values that are greater than the limit, in their order", "ln", lambda v, k: [x for x in v if x > k]),
    Task("running_total(values: List[int]) -> List[int]", "return the list of partial sums of the values", "l", lambda v: [sum(v[: i + 1]) for i in range(len(v))]),
    Task("range_width(values: List[int]) -> int", "return the difference between the largest and the smallest value", "l", lambda v: max(v) - min(v)),
    Task("second_smallest(values: List[int]) -> int", "return the second smallest distinct value", "l", lambda v: sorted(set(v))[1]),
    Task("pairwise_gaps(values: List[int]) -> List[int]", "return the absolute differences between neighbouring values", "l", lambda v: [abs(a - b) for a, b in zip(v, v[1:], strict=False)]),
    Task("split_even_odd(values: List[int]) -> Tuple[List[int], List[int]]", "separate the even values from the odd ones and return both lists", "l", lambda v: ([x for x in v if x % 2 == 0], [x for x in v if x % 2])),
    Task("rotate_right(values: List[int], steps: int) -> List[int]", "move every value the given number of steps to the right, with wrap-around", "ls", lambda v, k: v[-(k % len(v)) :] + v[: -(k % len(v))] if k % len(v) else v),
    Task("in_groups(values: List[int], size: int) -> List[List[int]]", "cut the list into consecutive groups of the given size; the last one may be shorter", "ls", lambda v, k: _chunks(v, k)),
    Task("index_of_peak(values: List[int]) -> int", "return the index of the largest value, the first one if there are several", "l", lambda v: v.index(max(v))),
    Task("without_repeats(values: List[int]) -> List[int]", "remove repeated values but keep the order of their first appearance", "d", lambda v: list(dict.fromkeys(v))),
    Task("most_frequent(values: List[int]) -> int", "return the value that occurs most often; the smallest one on a tie", "d", lambda v: min(set(v), key=lambda x: (-v.count(x), x))),
    Task("weighted_sum(values: List[int], weights: List[int]) -> int", "multiply each value by the weight at the same place and add everything up", "ee", lambda v, w: sum(a * b for a, b in zip(v, w, strict=False))),
    Task("interleave(left: List[int], right: List[int]) -> List[int]", "take elements from both lists in turn, starting with the left one", "ee", lambda a, b: [x for p in zip(a, b, strict=False) for x in p]),
    Task("longest_rise(values: List[int]) -> int", "return the length of the longest run of strictly increasing neighbours", "l", _rising),
    Task("clamp_all(values: List[int], low: int, high: int) -> List[int]", "replace values below low by low and values above high by high", "lsn", lambda v, a, b: [min(max(x, a), b) for x in v]),
    Task("count_multiples(values: List[int], divisor: int) -> int", "count how many values can be divided by the divisor without remainder", "ls", lambda v, k: sum(x % k == 0 for x in v)),
    Task("sum_of_squares_of_odds(values: List[int]) -> int", "add the squares of all odd values", "l", lambda v: sum(x * x for x in v if x % 2)),
    Task("common_items(left: List[int], right: List[int]) -> List[int]", "return the sorted values that appear in both lists", "dd", lambda a, b: sorted(set(a) & set(b))),
    Task("drop_extremes(values: List[int]) -> List[int]", "return the values without one smallest and one largest of them, sorted", "l", lambda v: sorted(v)[1:-1]),
    Task("mean_rounded(values: List[int]) -> int", "return the average of the values rounded down to a whole number", "l", lambda v: sum(v) // len(v)),
    Task("count_vowel_words(words: List[str]) -> int", "count the words that start with a vowel", "w", lambda w: sum(x[0] in "aeiou" for x in w)),
    Task("longest_words(words: List[str]) -> List[str]", "return all words that have the greatest length", "w", lambda w: [x for x in w if len(x) == max(map(len, w))]),
    Task("initials(words: List[str]) -> str", "return the first letters of the words as one upper-case string", "w", lambda w: "".join(x[0].upper() for x in w)),
    Task("group_by_length(words: List[str]) -> Dict[int, List[str]]", "map each word length to the list of words of that length", "w", lambda w: {n: [x for x in w if len(x) == n] for n in dict.fromkeys(map(len, w))}),
    Task("word_lengths(words: List[str]) -> Dict[str, int]", "return a dictionary from each word to its number of letters", "w", lambda w: {x: len(x) for x in w}),
    Task("join_with_commas(words: List[str]) -> str", "join the words with commas and put 'and' before the last one", "w", lambda w: ", ".join(w[:-1]) + " and " + w[-1]),
    Task("words_with_letter(words: List[str], letter: str) -> List[str]", "return the words that contain the given letter", "wc", lambda w, c: [x for x in w if c in x]),
    Task("sort_by_last_letter(words: List[str]) -> List[str]", "sort the words by their last letter; words with the same last letter keep their order", "w", lambda w: sorted(w, key=lambda x: x[-1])),
    Task("total_letters(words: List[str]) -> int", "return how many letters all words have together", "w", lambda w: sum(map(len, w))),
    Task("mirror_words(words: List[str]) -> List[str]", "reverse the letters of every word, but leave the words in their order", "w", lambda w: [x[::-1] for x in w]),
    Task("shorten(text: str, width: int) -> str", "cut the text to the given width and add three dots if something was cut", "tn", lambda t, n: t if len(t) <= n else t[:n] + "..."),
    Task("swap_halves(text: str) -> str", "exchange the first and the second half of the text", "t", lambda t: t[len(t) // 2 :] + t[: len(t) // 2]),
    Task("letter_counts(text: str) -> Dict[str, int]", "count how often each letter occurs, ignoring spaces", "t", lambda t: {c: t.count(c) for c in dict.fromkeys(t) if c != " "}),
    Task("title_each(text: str) -> str", "write every word of the text with a capital first letter", "t", lambda t: t.title()),
    Task("remove_letter(text: str, letter: str) -> str", "return the text without any occurrence of the letter", "tc", lambda t, c: t.replace(c, "")),
    Task("double_letters(text: str) -> str", "repeat every character of the text once", "t", lambda t: "".join(c * 2 for c in t)),
    Task("snake_to_camel(name: str) -> str", "turn a name with underscores into camel case", "u", lambda t: t.split("_")[0] + "".join(p.title() for p in t.split("_")[1:])),
    Task("dashes_for_spaces(text: str) -> str", "replace each space by a dash and use lower case everywhere", "t", lambda t: t.lower().replace(" ", "-")),
    Task("run_lengths(text: str) -> List[Tuple[str, int]]", "return each run of equal characters with its length", "r", _runs),
    Task("last_word(text: str) -> str", "return the last word of a sentence", "t", lambda t: t.split()[-1]),
    Task("words_backwards(text: str) -> str", "return the sentence with its words in reverse order", "t", lambda t: " ".join(t.split()[::-1])),
    Task("pad_left(text: str, width: int, fill: str) -> str", "put the fill character in front until the text has the given width", "rnc", lambda t, n, c: t.rjust(n, c)),
    Task("product_of_digits(number: int) -> int", "multiply the decimal digits of a positive number", "n", lambda n: __import__("math").prod(int(c) for c in str(n))),
    Task("reverse_number(number: int) -> int", "return the number whose decimal digits are in reverse order", "n", lambda n: int(str(n)[::-1])),
    Task("count_divisors(number: int) -> int", "return how many positive divisors the number has", "n", lambda n: sum(n % k == 0 for k in range(1, n + 1))),
    Task("to_base(number: int, base: int) -> List[int]", "return the digits of the number in the given base, most significant first", "nb", lambda n, b: _digits(n, b)),
    Task("next_multiple(number: int, step: int) -> int", "return the smallest multiple of step that is not below the number", "ns", lambda n, k: -(-n // k) * k),
    Task("triangle_number(n: int) -> int", "return the sum of the first n whole numbers", "n", lambda n: n * (n + 1) // 2),
    Task("halvings(number: int) -> int", "return how many times the number can be halved before it becomes odd", "n", lambda n: (n & -n).bit_length() - 1),
    Task("minutes_to_clock(minutes: int) -> str", "format a number of minutes as hours and minutes, like 2:05", "m", lambda m: f"{m // 60}:{m % 60:02d}"),
    Task("celsius_to_fahrenheit(degrees: int) -> float", "convert a temperature from Celsius to Fahrenheit", "n", lambda d: d * 9 / 5 + 32),
    Task("discounted(price: int, percent: int) -> float", "return the price after a discount of the given percentage", "mn", lambda p, q: round(p * (100 - q) / 100, 2)),
    Task("make_change(amount: int, coins: List[int]) -> List[int]", "pay the amount with as few coins as a greedy choice gives, largest first", "mq", lambda a, c: _change(a, c)),
    Task("row_sums(grid: List[List[int]]) -> List[int]", "return the sum of each row of the grid", "g", lambda g: [sum(r) for r in g]),
    Task("column_maxima(grid: List[List[int]]) -> List[int]", "return the largest value of each column", "g", lambda g: [max(c) for c in zip(*g, strict=True)]),
    Task("flip_grid(grid: List[List[int]]) -> List[List[int]]", "exchange rows and columns of the grid", "g", lambda g: [list(c) for c in zip(*g, strict=True)]),
    Task("flatten_grid(grid: List[List[int]]) -> List[int]", "return all values of the grid in one list, row by row", "g", lambda g: [x for r in g for x in r]),
    Task("border_sum(grid: List[List[int]]) -> int", "add the values in the first and in the last row", "g", lambda g: sum(g[0]) + sum(g[-1])),
    Task("invert_mapping(mapping: Dict[str, int]) -> Dict[int, str]", "exchange keys and values of the mapping", "p", lambda p: {v: k for k, v in p.items()}),
    Task("best_key(mapping: Dict[str, int]) -> str", "return the key with the largest value", "p", lambda p: max(p, key=lambda k: p[k])),
    Task("keys_above(mapping: Dict[str, int], limit: int) -> List[str]", "return the sorted keys whose value is greater than the limit", "pn", lambda p, k: sorted(x for x in p if p[x] > k)),
    Task("total_price(prices: Dict[str, int], bought: List[str]) -> int", "add up the prices of everything that was bought", "pk", lambda p, b: sum(p.get(x, 0) for x in b)),
)  # fmt: skip


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


def _draw(kind: str, rng: random.Random) -> Any:
    ints = [rng.randint(-5, 30) for _ in range(rng.randint(4, 7))]
    return {
        "l": lambda: ints,
        "e": lambda: [rng.randint(1, 12) for _ in range(4)],
        "d": lambda: [rng.randint(1, 6) for _ in range(rng.randint(5, 8))],
        "n": lambda: rng.randint(6, 60),
        "s": lambda: rng.randint(2, 4),
        "b": lambda: rng.randint(2, 8),
        "m": lambda: rng.randint(30, 400),
        "q": lambda: rng.choice([[1, 5, 10], [1, 2, 5, 20], [1, 3, 7]]),
        "w": lambda: rng.sample(WORDS, rng.randint(3, 5)),
        "t": lambda: " ".join(rng.sample(WORDS, rng.randint(2, 4))),
        "c": lambda: rng.choice("aeorlnt"),
        "r": lambda: "".join(c * rng.randint(1, 3) for c in rng.sample("abcxyz", 3)),
        "u": lambda: "_".join(rng.sample(WORDS, 3)),
        "g": lambda: [[rng.randint(0, 9) for _ in range(3)] for _ in range(3)],
        "p": lambda: {w: rng.randint(1, 60) for w in rng.sample(WORDS, 3)},
        "k": lambda: rng.sample(WORDS, 3),
    }[kind]()


def _examples(task: Task, name: str, rng: random.Random, count: int) -> list[tuple[str, str]]:
    found = []
    for _ in range(count):
        inputs = [_draw(kind, rng) for kind in task.kinds]
        found.append((f"{name}({', '.join(map(repr, inputs))})", repr(task.run(*inputs))))
    return found


_PREFIXES = ("", "", "", "get_", "compute_", "my_", "find_", "do_", "calc_")
_SUFFIXES = ("", "", "", "_of", "_v2", "_fast", "_helper", "_for")
_OTHER = ("JavaScript", "Java", "C++", "Go", "Rust", "TypeScript", "C", "Ruby", "SQL", "Bash")


def function_head(rng: random.Random) -> str:
    """A function's signature and docstring with examples, as an editor would hold it before the body is written."""
    task = rng.choice(TASKS)
    name, rest = task.head.split("(", 1)
    named = rng.choice(_PREFIXES) + name + rng.choice(_SUFFIXES)
    does = task.does[0].upper() + task.does[1:] + "."
    lines = [f"    >>> {call}\n    {result}" for call, result in _examples(task, named, rng, rng.randint(1, 3))]
    if rng.random() < 0.25:
        lines = [f"    {call} -> {result}" for call, result in _examples(task, named, rng, 2)]
    used = [t for t in ("Dict", "List", "Tuple") if f"{t}[" in rest]
    imports = f"from typing import {', '.join(used)}\n\n\n" if used and rng.random() < 0.8 else "\n"
    quotes = rng.choice(['"""', '""" ', "'''", '"""\n    '])
    close = "'''" if quotes.startswith("'") else '"""'
    if rng.random() < 0.3:
        rest = rest.replace("List[int]", "list").replace("List[str]", "list").replace("Dict[str, int]", "dict")
    return f"{imports}def {named}({rest}:\n    {quotes}{does}\n" + "\n".join(lines) + f"\n    {close}\n"


def code_request(rng: random.Random) -> str:
    """The same kind of task asked for in words: written, explained, tested, repaired or moved to another language."""
    task = rng.choice(TASKS)
    name = task.head.split("(", 1)[0]
    call, result = _examples(task, name, rng, 1)[0]
    return rng.choice(
        (
            f"Write a Python function called {name} that does the following: {task.does}.",
            f"Write a Python function to {task.does}. Add a docstring and one example.",
            f"Implement `{task.head}` in Python. It should {task.does}. For example, {call} returns {result}.",
            f"Please complete this Python function:\n\ndef {task.head}:\n    # {task.does}\n",
            f"Write a {rng.choice(_OTHER)} program that can {task.does}.",
            f"I need a function in {rng.choice(_OTHER)} to {task.does}. Keep it short and explain how it works.",
            f"Write unit tests in Python for a function {name} that should {task.does}.",
            f"Explain step by step how you would {task.does} in Python, then show the code.",
            f"What does this call return and why? `{call}` The function's job is to {task.does}.",
            f"Write a Python class with a method {name} whose purpose is to {task.does}.",
        )
    )
