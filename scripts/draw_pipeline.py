"""Draws docs/pipeline.svg: one round of the engine. Plain SVG, readable on light and dark pages.

Usage: python scripts/draw_pipeline.py [FILE]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 880, 404
INK, PAPER, MUTED = "#1f2933", "#ffffff", "#5b6873"
TARGET, DRAFTER, RESULT = "#d9e8f6", "#dff0dc", "#fbe9cf"
FONT = "font-family='Helvetica, Arial, sans-serif'"


NOTE = "The text is what the target alone would have written; the drafter decides how many passes it takes."


@dataclass(frozen=True)
class Box:
    x: int
    y: int
    width: int
    height: int
    fill: str
    title: str
    lines: tuple[str, ...]

    def svg(self) -> str:
        middle = self.x + self.width // 2
        top = self.y + 25
        parts = [
            f"<rect x='{self.x}' y='{self.y}' width='{self.width}' height='{self.height}' rx='8'"
            f" fill='{self.fill}' stroke='{INK}' stroke-width='1.2'/>",
            text(middle, top, self.title, size=16, bold=True),
        ]
        parts += [text(middle, top + 21 + 18 * i, line) for i, line in enumerate(self.lines)]
        return "".join(parts)


def text(
    x: int, y: int, words: str, *, size: int = 13, bold: bool = False, fill: str = INK, anchor: str = "middle"
) -> str:
    weight = " font-weight='bold'" if bold else ""
    return (
        f"<text x='{x}' y='{y}' {FONT} font-size='{size}'{weight} text-anchor='{anchor}' fill='{fill}'>"
        f"{escape(words)}</text>"
    )


def arrow(points: list[tuple[int, int]], *, dashed: bool = False) -> str:
    path = " ".join(f"{x},{y}" for x, y in points)
    dash = " stroke-dasharray='5 4'" if dashed else ""
    return f"<polyline points='{path}' fill='none' stroke='{INK}' stroke-width='1.6'{dash} marker-end='url(#head)'/>"


def token(x: int, y: int, word: str, fill: str, *, struck: bool = False) -> str:
    cell = f"<rect x='{x}' y='{y}' width='54' height='26' rx='4' fill='{fill}' stroke='{INK}'/>"
    line = f"<line x1='{x + 6}' y1='{y + 13}' x2='{x + 48}' y2='{y + 13}' stroke='{INK}'/>" if struck else ""
    return cell + text(x + 27, y + 18, word, size=12) + line


def boxes() -> list[Box]:
    return [
        Box(
            30,
            70,
            220,
            104,
            DRAFTER,
            "1  draft",
            ("one pass over a block:", "the last token and N masks", "give N tokens or a tree"),
        ),
        Box(
            330,
            70,
            220,
            104,
            TARGET,
            "2  verify",
            ("one target pass over all", "drafted tokens; keep those", "the target would have chosen"),
        ),
        Box(
            630,
            70,
            220,
            104,
            RESULT,
            "3  commit",
            ("accepted tokens + 1 bonus;", "rejected keys and values", "are rolled back"),
        ),
    ]


def example() -> str:
    """The same round with words: what was drafted, what stood, what was added."""
    drafted = [("the", DRAFTER), ("sky", DRAFTER), ("was", DRAFTER), ("red", DRAFTER)]
    parts = [
        text(30, 304, "drafted", anchor="start", fill=MUTED),
        text(30, 344, "committed", anchor="start", fill=MUTED),
    ]
    for i, (word, fill) in enumerate(drafted):
        parts.append(token(120 + 60 * i, 286, word, fill, struck=i >= 2))
    for i, (word, fill) in enumerate([("the", DRAFTER), ("sky", DRAFTER), ("is", TARGET)]):
        parts.append(token(120 + 60 * i, 326, word, fill))
    parts.append(text(318, 344, "2 accepted + 1 bonus = 3 tokens from one target pass", anchor="start", fill=MUTED))
    parts.append(
        text(
            30,
            384,
            NOTE,
            anchor="start",
            fill=MUTED,
        )
    )
    return "".join(parts)


def drawing() -> str:
    arrows = [
        arrow([(250, 122), (326, 122)]),
        arrow([(550, 122), (626, 122)]),
        arrow([(740, 174), (740, 222), (140, 222), (140, 178)]),
        arrow([(740, 66), (740, 34)]),
    ]
    labels = [
        text(
            440,
            240,
            "taps: the target's hidden states of committed tokens become the drafter's context",
            fill=MUTED,
        ),
        text(728, 48, "text, as typed events", anchor="end", fill=MUTED, size=12),
        text(30, 40, "one round", size=18, bold=True, anchor="start"),
        text(288, 112, "tokens", size=12, fill=MUTED),
        text(588, 112, "accepted", size=12, fill=MUTED),
    ]
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}'"
        f" height='{HEIGHT}' role='img' aria-label='One round: draft, verify, commit'>"
        f"<defs><marker id='head' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' markerHeight='7'"
        f" orient='auto-start-reverse'><path d='M0,0 L10,5 L0,10 z' fill='{INK}'/></marker></defs>"
        f"<rect width='{WIDTH}' height='{HEIGHT}' rx='10' fill='{PAPER}'/>"
    )
    body = "\n".join([*(box.svg() for box in boxes()), *arrows, *labels, example()])
    return f"{head}\n{body}\n</svg>\n"


def main() -> None:
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pipeline.svg")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(drawing(), encoding="utf-8")


if __name__ == "__main__":
    main()
