"""How often the rules say what an expert would: cases in, results/accuracy.json out.

A case counts as right if every code of ``must`` is found with medium or high confidence and none of ``must_not`` is.
Cases with ``derivable: false`` need facts that are not in the record; only their verdict is counted.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.bench.provenance import provenance
from draftproof.proof.case import parse_case
from draftproof.proof.verdict import conclude

FOR_PEOPLE = ("id", "source", "expect", "derivable", "note")


@dataclass(frozen=True)
class Outcome:
    name: str
    derivable: bool
    expected: str
    verdict: str
    missing: tuple[str, ...]
    forbidden: tuple[str, ...]

    @property
    def codes_right(self) -> bool:
        return not self.missing and not self.forbidden

    @property
    def verdict_right(self) -> bool:
        return self.verdict == self.expected


def judge_line(number: int, line: str) -> Outcome:
    """The outcome of one line. What is written for people is taken away before the case is judged."""
    given: dict[str, Any] = json.loads(line)
    people = {key: given.pop(key) for key in FOR_PEOPLE if key in given}
    verdict = conclude(parse_case(given, f"line {number}"))
    expect = people["expect"]
    return Outcome(
        people.get("id", f"line {number}"),
        bool(people.get("derivable", True)),
        expect["verdict"],
        verdict.kind,
        tuple(sorted(set(expect.get("must", ())) - verdict.codes)),
        tuple(sorted(set(expect.get("must_not", ())) & verdict.codes)),
    )


def share(right: int, of: int) -> dict[str, float | int]:
    return {"right": right, "of": of, "share": round(right / of, 4) if of else 0.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    lines = [line for line in arguments.cases.read_text(encoding="utf-8").splitlines() if line.strip()]
    outcomes = [judge_line(number, line) for number, line in enumerate(lines, start=1)]
    derivable = [o for o in outcomes if o.derivable]
    healthy = [o for o in outcomes if o.expected == "healthy"]
    document = {
        "schema_version": "draftproof.accuracy/1",
        "cases": len(outcomes),
        "codes_of_derivable": share(sum(o.codes_right for o in derivable), len(derivable)),
        "verdicts": share(sum(o.verdict_right for o in outcomes), len(outcomes)),
        "healthy_called_faulty": sum(o.verdict == "faulty" for o in healthy),
        "confusion": {
            f"{expected} → {got}": n
            for (expected, got), n in sorted(Counter((o.expected, o.verdict) for o in outcomes).items())
        },
        "wrong": [
            {
                "case": o.name,
                "derivable": o.derivable,
                "expected": o.expected,
                "verdict": o.verdict,
                "missing": list(o.missing),
                "forbidden": list(o.forbidden),
            }
            for o in outcomes
            if not (o.codes_right and o.verdict_right)
        ],
        "provenance": provenance() | {"command": "make accuracy"},
    }
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    print(text, end="")
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text, encoding="utf-8")
    codes, verdicts = document["codes_of_derivable"], document["verdicts"]
    passed = codes["share"] >= 0.97 and verdicts["share"] >= 0.95 and not document["healthy_called_faulty"]  # type: ignore[index]
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
