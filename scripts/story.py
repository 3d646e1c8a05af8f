"""``make story``: engine by engine, what check, diagnose, doctor and replay each say, against what is known.

Stands on the captures and counters that ``make conformance-capture`` left (``--captures``). Writes results/story.json
and results/story.html. What has not been captured is left out and named.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import capture_vllm
import conformance_capture
from jinja2 import Environment

from draftproof.bench.provenance import provenance
from draftproof.bench.results import write_result
from draftproof.errors import DraftproofError
from draftproof.proof.diagnosis import report
from draftproof.proof.gathering import Sources, gather

SCHEMA = "draftproof.story/1"
OLD_RELEASE = "0.20.1"
COUNTERS = (("num_drafts", "rounds"), ("num_draft_tokens", "drafted"), ("num_accepted_tokens", "accepted"))
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>The story, run for real</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid #8884; }
.yes { color: #17803d; } .no { color: #b91c1c; } code { font-size: .9em; }
</style>
<h1>The story, run for real</h1>
<p>One drafter ({{ drafter }}) in engines that are known to be right or wrong: what each tool says, from what it can
know. τ is tokens per round, bonus included. Engines with few rounds ran two prompts only: their τ shows that nothing
crashes, and is not to be compared with the others.{% if acceptance %} On the same {{ acceptance.prompts }} prompts the
healthy vLLM has τ {{ "%.2f" | format(acceptance.vllm.tau) }}
({{ acceptance.vllm.tau_ci95 | map("round", 2) | join("–") }})
and the reference engine {{ "%.2f" | format(acceptance.reference.tau) }}
({{ acceptance.reference.tau_ci95 | map("round", 2) | join("–") }}); {{ acceptance.same_text }} of the texts are the
same.{% endif %}</p>
<table><tr><th>engine<th>known<th>rounds<th>τ<th>accepted up to position 1, 2, …
<th>diagnose, counters and files<th>replay<th>right
{% for r in rows %}<tr><td>{{ r.engine }}<td>{{ r.known | join(", ") or "healthy" }}
{% if r.error %}<td colspan="4">does not run: <code>{{ r.error }}</code><br>{% for tool in ("check", "doctor") %}
{% if r[tool] %}<small>{{ tool }} beforehand: {{ r[tool].says }}</small><br>{% endif %}{% endfor %}<td>
{% else %}<td>{{ r.rounds }}<td>{{ "%.2f" | format(r.tau) }}
<td>{% for x in r.curve or () %}{{ "%.2f" | format(x) }} {% endfor %}<td>{{ r.diagnose.verdict }}:
{% for c in r.diagnose.codes %}<code>{{ c }}</code> {% endfor %}<td>{% if r.replay %}{{ r.replay.verdict }},
{{ r.replay.certainty }}<br>{{ r.replay.said | join(", ") }}<br><small>{{ r.replay.says }}</small>
{% else %}no capture of this engine{% endif %}{% endif %}
<td class="{{ "yes" if r.right else "no" }}">{{ "yes" if r.right else "no" }}{% endfor %}</table>
{% if doctor %}<h2>doctor on a real vLLM {{ doctor.version }}, before anything runs</h2>
<ul>{% for f in doctor.findings %}<li><code>{{ f.code }}</code> {{ f.says }}{% endfor %}</ul>{% endif %}
{% if killed %}<h2>doctor on installs killed at random moments (SGLang 0.5.11, SIGKILL while pip writes)</h2>
<table><tr><th>killed after<th>install<th>whole nevertheless<th>doctor<th>after the remedy
{% for k in killed %}<tr><td>{{ "%.1f" | format(k.seconds) }} s<td>{{ k.install }}<td>{{ "yes" if k.sound else "no" }}
<td>{% for c in k.found %}<code>{{ c }}</code> {% else %}nothing{% endfor %}
<td>{{ "clean" if k.clean_after_reinstall else "" }}{% endfor %}</table>{% endif %}
{% if missing %}<p>Not run: {{ missing | join(", ") }}.</p>{% endif %}
</html>
"""


@dataclass(frozen=True)
class Chapter:
    """``release``: the version whose code this engine's behaviour is, for what knows only versions."""

    case: str
    engine: str
    release: str


CHAPTERS = (
    Chapter("as-released", "vLLM 0.32.0 on a CPU, as released", "0.32.0"),
    Chapter("healthy", "vLLM 0.32.0 on a CPU, its k_norm mended", "0.32.0"),
    Chapter("old-release", "the same with the faults of 0.20.1", OLD_RELEASE),
    Chapter("taps-one-early", "the same, taps one early only", "0.32.0"),
    Chapter("window-ignored", "the same, window ignored only", "0.32.0"),
    Chapter("causality-flipped-sliding", "the same, direction flipped only", "0.32.0"),
)


def diagnosed(counters: dict[str, Any], drafter: str, release: str) -> dict[str, Any]:
    """What ``diagnose`` says without a capture: the engine's counters, the files, the release."""
    lines = [f'vllm:spec_decode_{name}_total{{engine="0"}} {counters[key]}' for name, key in COUNTERS]
    lines += [
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{i}"}} {count}'
        for i, count in enumerate(counters["accepted_at_least"])
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "metrics"
        file.write_text("\n".join(lines) + "\n")
        case, notes = gather(Sources(drafter=drafter, engine=f"vllm=={release}", metrics=[str(file)]))
    verdict = report(case, notes).verdict
    return {"verdict": verdict.kind, "codes": sorted(verdict.codes), "next_probe": verdict.next_probe}


def doctored() -> dict[str, Any] | None:
    """``doctor`` on the unpacked old release, if it is here."""
    runner = capture_vllm.old_runner()
    if runner is None:
        return None
    command = [sys.executable, "-m", "draftproof.cli", "doctor", "--prefix", str(runner.parents[3]), "--engine", "vllm"]
    done = subprocess.run([*command, "--json", "--quiet"], capture_output=True, text=True, check=False)
    (install,) = json.loads(done.stdout)["installs"]
    found = [{key: one[key] for key in ("code", "severity", "says")} for one in install["findings"]]
    return {"version": install["version"], "exit_code": done.returncode, "findings": found}


def told(chapter: Chapter, counters: dict[str, Any], row: dict[str, Any], drafter: str) -> dict[str, Any]:
    rounds = counters["rounds"]
    return {
        "engine": chapter.engine,
        "known": row["expected"],
        "tau": 1 + counters["accepted"] / rounds,
        "curve": [count / rounds for count in counters["accepted_at_least"]],
        "rounds": rounds,
        "diagnose": diagnosed(counters, drafter, chapter.release),
        "replay": {key: row[key] for key in ("verdict", "certainty", "said", "says", "agreement", "taps_error")},
        "right": row["right"],
    }


def elsewhere(folder: Path) -> list[dict[str, Any]]:
    """Rows that story_releases.py and story_llama.py left: other releases of vLLM, llama.cpp."""
    files = [folder / name for name in ("releases.json", "llama.json")]
    rows = [row for file in files if file.is_file() for row in json.loads(file.read_text())["rows"]]
    # A release whose pins could not be had was not tried: docs/conformance.md tells of it.
    return [row for row in rows if not str(row.get("error") or "").startswith("not in its own environment")]


def saved(file: Path, key: str) -> Any:
    """A part of another result, None where that has not been measured."""
    return json.loads(file.read_text()).get(key) if file.is_file() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="bundled:smollm2")
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--captures", type=Path, default=Path("captures/conformance"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args()
    answers = json.loads((given.captures / "answers.json").read_text())
    counted = {case["name"]: case["acceptance"] for case in answers["cases"]}
    known = {case.name: case for case in conformance_capture.cases(False)}
    rows, missing = [], []
    for chapter in CHAPTERS:
        if chapter.case not in counted or chapter.case not in known:
            missing.append(chapter.engine)
            continue
        row = conformance_capture.judged(known[chapter.case], given.captures, str(given.drafter), given.target)
        rows.append(told(chapter, counted[chapter.case], row, str(given.drafter)))
    rows += elsewhere(given.captures.parent)
    document = {"schema_version": SCHEMA, "drafter": given.drafter.name, "rows": rows, "doctor": doctored()}
    document |= {"missing": missing, "acceptance": saved(given.out / "capture.json", "acceptance")}
    document |= {"killed": saved(given.out / "installs.json", "killed_installs")}
    write_result(given.out / "story.json", document | {"provenance": provenance() | {"command": "make story"}})
    page = Environment(autoescape=True).from_string(PAGE).render(**document)
    (given.out / "story.html").write_text(page, encoding="utf-8")
    print(f"{sum(row['right'] for row in rows)} of {len(rows)} engines judged rightly: {given.out / 'story.html'}")
    return 0 if rows and all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (DraftproofError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))
