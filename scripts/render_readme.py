"""Fills the generated blocks of the documents.

A block lies between ``<!-- generated: NAME -->`` and ``<!-- /generated -->``. Numbers come from
results/*.json, flags and exit codes from the code. ``--check`` writes nothing and fails if a file is stale.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from typer.main import get_command

from draftproof.bench import tables
from draftproof.bench.headlines import headlines
from draftproof.bench.tables import label, table
from draftproof.cli.demo_view import SCHEMA as DEMO
from draftproof.cli.generate_view import tau_text
from draftproof.cli.main import EXIT_CODES, make_app
from draftproof.proof.lab.faults import FAULTS

ROOT = Path(__file__).resolve().parents[1]
FILES = ("README.md", "docs/cli.md", "docs/lab.md", "docs/measured.md", "docs/scale.md", "docs/serve.md")
BLOCK = re.compile(r"(<!-- generated: (?P<name>[\w:-]+) -->\n).*?(<!-- /generated -->)", re.DOTALL)
NOTHING_YET = "*No measurement is recorded in this checkout yet; `make bench docs` makes and shows one.*\n"


def render(text: str, root: Path = ROOT) -> str:
    """The text with every generated block made anew."""
    return BLOCK.sub(lambda found: f"{found[1]}{block(found['name'], root)}{found[3]}", text)


def block(name: str, root: Path) -> str:
    kind, _, argument = name.partition(":")
    match kind:
        case "numbers":
            return numbers(root / "results")
        case "headline":
            return headline(root / "results")
        case "serve":
            return serve(root / "results" / "serve.json", argument)
        case "story":
            return story(root / "results" / "story.json")
        case "flags":
            return flags(argument)
        case "faults":
            rows = [[f"`{f.name}`", f"`{f.code}`", f.says] for f in FAULTS]
            return table(["fault", "finding", "what is wrong"], rows)
        case "exit-codes":
            return table(["code", "meaning"], [[str(code), text] for code, text in EXIT_CODES.items()])
    raise SystemExit(f"error: unknown generated block {name!r}")


def numbers(folder: Path) -> str:
    """Every recorded result under its file's name, in the order of the names."""
    parts = []
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        is_demo = document.get("schema_version") == DEMO
        shown = demo_table(document) if is_demo else tables.render(document)
        if shown:
            parts.append(f"**{path.name}**\n\n{shown}")
    return "\n".join(parts) or NOTHING_YET


def headline(folder: Path) -> str:
    """The few lines that a reader in a hurry wants, from whichever results there are."""
    documents = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    rows = [row for document in documents.values() for row in headlines(document)]
    return table(["what", "measured", "where"], rows) if rows else NOTHING_YET


def serve(path: Path, part: str) -> str:
    """Of the server's benchmark: every ``check``, or ``scale``, what tells when one machine is not enough."""
    if not path.exists():
        return NOTHING_YET.replace("make bench docs", "make bench-serve docs")
    document = json.loads(path.read_text(encoding="utf-8"))
    return (tables.served if part == "checks" else tables.served_scale)(document)


def story(path: Path) -> str:
    """What each tool said of engines whose state is known."""
    if not path.exists():
        return NOTHING_YET.replace("make bench docs", "make story docs")
    return tables.render(json.loads(path.read_text(encoding="utf-8"))) or ""


def demo_table(result: dict[str, Any]) -> str:
    rows = []
    for name, way in result["ways"].items():
        found = way["acceptance"]
        same = "–" if name == "plain" else "yes" if way["identical"] else "**no**"
        speed = [f"{way['tokens_per_s']:.1f}", f"{way['speedup']:.2f}×"]
        rows.append([label(name), *speed, tau_text(found) if found else "1.00", same])
    head = table(["way", "tokens/s", "speed-up", "τ (95 % interval)", "text identical"], rows)
    return head + "\n" + caption(result)


def caption(result: dict[str, Any]) -> str:
    """What was measured where, in one paragraph."""
    engine, origin = result["engine"], result["provenance"]
    versions = origin["versions"]
    remark = f" The drafter is {result['stand_in']}." if result["stand_in"] else ""
    machine = f"{origin['machine']['cpu']}, {engine['threads']} threads, {engine['dtype']}"
    return (
        f"`{origin['command']}` on {machine};"
        f" target `{engine['target']}`, drafter `{engine['drafter']}`; {result['prompts']} prompts of up to"
        f" {result['max_tokens']} tokens, greedy, one request at a time, after a warm-up; torch"
        f" {versions.get('torch')}, {origin['time'][:10]}.{remark}\n"
    )


def flags(command: str) -> str:
    """A command's flags, in its own order. ``bench-speed`` is the command speed of the group bench."""
    chosen: Any = get_command(make_app())
    for name in command.split("-"):
        chosen = chosen.commands[name]
    context = chosen.make_context(f"draftproof {command}", [], resilient_parsing=True)
    records = [p.get_help_record(context) for p in chosen.params]
    rows = [[f"`{names}`", help_text] for names, help_text in filter(None, records)]
    return table(["flag", "meaning"], rows)


def main() -> int:
    stale = []
    for name in FILES:
        path = ROOT / name
        old = path.read_text(encoding="utf-8")
        new = render(old)
        if new == old:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(new, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"error: stale: {', '.join(stale)}; run make docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
