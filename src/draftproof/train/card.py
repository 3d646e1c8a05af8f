"""The card beside a drafter's weights, made from its provenance alone so that it cannot say anything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.drafters.spec import DrafterSpec

START = {"target": "copies of the target's last layers", "random": "random values"}


def model_card(spec: DrafterSpec, form: str, provenance: Mapping[str, Any]) -> str:
    """Markdown: what it is, how to use it, what was measured, how it was made."""
    target = provenance.get("target", "its target")
    lines = [
        "---",
        "license: apache-2.0",
        "library_name: draftproof",
        "tags: [speculative-decoding, dflash]",
        "---",
        "",
        f"# A DFlash drafter for {target}",
        "",
        f"Proposes {spec.num_draft_tokens} tokens in one pass; with a target that verifies them the text stays exactly "
        "the target's.",
        "",
        "```sh",
        f'draftproof generate --model {target} --drafter THIS_FOLDER "Why is the sky blue?"',
        "```",
        "",
        "## What it is",
        "",
        *(f"- {line}" for line in spec.describe()),
        *(["- The head is the target's own, its rows of the drafted tokens"] if spec.draft_vocab_size else []),
        f"- Files in {'z-lab' if form == 'zlab' else 'speculators'} format; `draftproof convert` writes the other one",
        "",
        *_measured(provenance.get("metrics") or {}),
        "## How it was made",
        "",
        *_made(provenance),
        "",
    ]
    return "\n".join(lines)


def _measured(metrics: Mapping[str, Any]) -> list[str]:
    rows = [
        f"| {name} | {m['tau']:.2f} | {_interval(m.get('tau_ci95'))} | {' '.join(f'{r:.2f}' for r in m['rates'])} |"
        for name, m in (metrics.get("workloads") or {}).items()
    ]
    if not rows:
        return []
    how = metrics.get("how", "greedy")
    head = ["## Measured", "", "| prompts | τ | 95 % | accepted at least 1, 2, … |", "|---|---|---|---|"]
    return [*head, *rows, "", f"τ: mean acceptance length, bonus included; {how}.", ""]


def _interval(value: Any) -> str:
    return "–" if not value else f"{value[0]:.2f}–{value[1]:.2f}"


def _made(provenance: Mapping[str, Any]) -> list[str]:
    data = provenance.get("data") or {}
    lines = [f"- Command: `{provenance.get('command', '?')}`"]
    for source in data.get("sources", []):
        lines.append(f"- Prompts: {source['name']} ({source['prompts']}, sha256 {source['sha256'][:16]}…)")
    if data:
        lines.append(
            f"- {data['answers']} answers of the target itself, {data['answer_tokens']} tokens; "
            f"{100 * data['share_cut']:.1f} % of the decoded tokens were repetition and were cut"
        )
    start = (provenance.get("config") or {}).get("init")
    if start:
        lines.append(f"- Weights started from {START.get(start, f'another drafter, {start}')}")
    training = provenance.get("training") or {}
    if training:
        lines.append(
            f"- {training['steps']} steps, {training['blocks']} blocks, {training['draft_tokens']} drafted tokens "
            f"in {training['minutes']:.0f} minutes"
        )
    versions = provenance.get("versions") or {}
    lines.append("- Versions: " + ", ".join(f"{k} {v}" for k, v in versions.items()))
    return lines
