"""Write docs/findings.md from the rules' pages and docs/engines.md from the version matrix.

    python scripts/render_findings.py [--check]

The pages live beside the rules (``draftproof.proof.rules``), the facts in ``draftproof/proof/engines/*.toml``; nothing
in these two documents is written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from draftproof.proof.engines import RESPECTS, EngineFacts, Fact, engines
from draftproof.proof.findings import HIGH, MEDIUM, Page
from draftproof.proof.rules import PAGES

ROOT = Path(__file__).resolve().parents[1]
AREAS = {
    "FILES": "drafter and target: configs, tensors, do they belong together",
    "INSTALL": "is the engine whole, and the one that runs",
    "ENGINE": "what the engine's version or source does with the drafter",
    "LAUNCH": "arguments",
    "RUNTIME": "counters, logs, acceptance curves",
    "WORKLOAD": "what is asked of it",
    "METRICS": "numbers that are misread or contradict each other",
    "COST": "slower than plain decoding",
    "SERVING": "caches, streams, grammars, parsers",
    "TRAINING": "the checkpoint itself",
}
FINDINGS_HEAD = f"""# Findings

A finding is one statement about a speculative-decoding set-up: a code, a severity, a confidence, the facts it was
derived from, a remedy, and the next probe where it is not certain. This page is generated from the rules
(`make docs`); a code's entry and its rule stand in one place of the source.

Severity: *error* is a cause of harm, *warning* a risk or a symptom whose cause is not proven, *info* something to know.
Confidence: *high* from {HIGH} (every condition is a fact), *medium* from {MEDIUM} (one condition is inferred), below
that a candidate, which accuses nobody and does not take part in a verdict. "X; Y if Z" under severity: it rises to Y
when Z is in the record.

Statements about versions hold for plain releases. A fork, an image, a nightly or a development version is judged by
its base version only together with a matching symptom, and never while it is healthy.
"""
ENGINES_HEAD = """# What the engines' releases do

The version matrix behind `draftproof check --engine`: one row per fact, generated from
`src/draftproof/proof/engines/*.toml` (`make docs`). *different*: the engine runs the drafter, but not as the file says,
without a word. *refused*: it stops with an error. "When" names what must be true of drafter, target or set-up;
`draftproof check` answers these from the files at hand. A drafter that no row concerns is honoured.
"""


def findings() -> str:
    parts = [FINDINGS_HEAD, _contents()]
    for area, about in AREAS.items():
        pages = [page for page in PAGES.values() if page.area == area]
        if pages:
            parts.append(f"## {area}: {about}\n")
            parts += [_page(page) for page in sorted(pages, key=lambda p: p.code)]
    return "\n".join(parts)


def _contents() -> str:
    rows = [[f"[{p.code}](#{p.code.lower()})", p.area, p.severity, p.meaning] for p in PAGES.values()]
    order = list(AREAS)
    rows.sort(key=lambda row: (order.index(row[1]), row[0]))
    return table(["code", "area", "severity", "meaning"], rows)


def _page(page: Page) -> str:
    lines = [
        f"### {page.code}\n",
        f"{page.meaning} Severity: {page.severity}.\n",
        f"- **Derived from** {page.derived}",
        f"- **Remedy** {page.remedy}",
        f"- **Next probe** {page.probe}",
    ]
    if page.sources:
        lines.append(f"- **Sources** {', '.join(page.sources)}")
    return "\n".join(lines) + "\n"


def matrix() -> str:
    parts = [ENGINES_HEAD]
    for one in engines().values():
        parts.append(f"## {one.title}\n\n{_about(one)}\n\n{table(HEAD, list(_facts(one)))}")
    return "\n".join(parts)


HEAD = ["respect", "versions", "drafters", "when", "effect", "what it does", "finding", "source; probe"]


def _about(one: EngineFacts) -> str:
    sign = "b" if one.name == "llama.cpp" else ""
    counts = "the block, anchor included" if one.counts == "block" else "drafted tokens (block - 1)"
    read = ", ".join(sign + release for release in one.releases)
    return f"Releases read: {read}. Given as `{one.flag}`; its number counts {counts}."


def _facts(one: EngineFacts) -> Iterator[list[str]]:
    def place(fact: Fact) -> tuple[int, str]:
        return RESPECTS.index(fact.respect), fact.id

    for fact in sorted(one.facts, key=place):
        yield [
            fact.respect,
            fact.range,
            ", ".join(fact.methods) or "all",
            ", ".join(fact.when) or "always",
            fact.effect + (" (a cost only)" if fact.minor else ""),
            fact.says,
            f"[{fact.code}](findings.md#{fact.code.lower()})" if fact.code else "",
            f"{fact.source}; {fact.probe}",
        ]


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines) + "\n"


DOCUMENTS = {"docs/findings.md": findings, "docs/engines.md": matrix}


def main() -> int:
    stale = []
    for name, render in DOCUMENTS.items():
        path, text = ROOT / name, render()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"error: stale: {', '.join(stale)}; run make docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
