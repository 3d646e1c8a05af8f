"""Programming prompts made by template: a function's head with a docstring and true examples, or a request in words.

Every task here was written for this package. Examples in docstrings are computed, not typed, so they are right.
"""

from __future__ import annotations

import random
from typing import Any

from draftproof.train.prompt_numbers import NUMBER_TASKS, Task
from draftproof.train.prompt_texts import TEXT_TASKS

WORDS = [
    "river",
    "stone",
    "lamp",
    "paper",
    "cloud",
    "engine",
    "garden",
    "violet",
    "marble",
    "copper",
    "window",
    "harbor",
    "saddle",
    "pepper",
    "ladder",
    "ribbon",
    "tunnel",
    "basket",
    "mirror",
    "anchor",
    "walnut",
    "candle",
    "feather",
    "bridge",
    "canyon",
    "meadow",
    "pocket",
    "socket",
    "kettle",
    "rocket",
]


TASKS = (*NUMBER_TASKS, *TEXT_TASKS)


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
