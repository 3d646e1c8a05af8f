"""How the result of ``generate`` looks: as JSON and as a small table."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from rich.table import Table

from draftproof import __version__
from draftproof.cli.protocol import TextEngine
from draftproof.cli.summary import Run, stats, usage
from draftproof.cli.terminal import err_console, print_trimmed, rounded
from draftproof.engine.types import SamplingParams

SCHEMA = "draftproof.generate/1"


def as_json(run: Run, engine: TextEngine, params: SamplingParams) -> str:
    output = run.output
    document: dict[str, Any] = {
        "schema_version": SCHEMA,
        "tool_version": __version__,
        "text": output.text,
        "token_ids": output.token_ids,
        "finish_reason": output.finish_reason,
        "finish_detail": output.finish_detail,
        "usage": usage(run),
        "stats": rounded(stats([run])),
        "engine": engine.describe(),
        "sampling": {f.name: _plain(getattr(params, f.name)) for f in dataclasses.fields(params)},
    }
    if output.logprobs is not None:
        document["logprobs"] = [dataclasses.asdict(entry) for entry in output.logprobs]
    return json.dumps(document, ensure_ascii=False)


def print_stats(runs: list[Run]) -> None:
    """Speed and acceptance on stderr."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in stats_rows(runs):
        table.add_row(name, value)
    print_trimmed(err_console(), table)


def stats_rows(runs: list[Run]) -> list[tuple[str, str]]:
    numbers = stats(runs)
    counts = [usage(run) for run in runs]
    per_round = numbers["ms_per_round"]
    rows = [
        ("prompt", f"{sum(c['prompt_tokens'] for c in counts)} tokens in {numbers['prefill_s']:.2f} s"),
        (
            "answer",
            f"{sum(c['completion_tokens'] for c in counts)} tokens in {numbers['decode_s']:.2f} s"
            f" = {numbers['tokens_per_s']:.1f} tok/s",
        ),
        ("rounds", f"{numbers['rounds']}: " + ", ".join(f"{k} {v:.1f} ms" for k, v in per_round.items())),
    ]
    accepted = numbers["acceptance"]
    if accepted is not None:
        rows.append(("τ", f"{tau_text(accepted)} tokens per round"))
        rows.append(("accepted ≥ k", " ".join(f"{share:.2f}" for share in accepted["per_position"])))
    return rows


def tau_text(accepted: dict[str, Any]) -> str:
    """τ with its 95 % interval, which takes two rounds or more."""
    interval = accepted["tau_ci95"]
    if interval is None:
        return f"{accepted['tau']:.2f}"
    return f"{accepted['tau']:.2f} ({interval[0]:.2f}–{interval[1]:.2f})"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
