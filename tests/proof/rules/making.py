"""Small cases for tests of rules about measurements."""

from __future__ import annotations

from typing import Any

from draftproof.proof.case import Case, parse_case
from draftproof.proof.rules import judge

ENGINE_KEYS = ("name", "version", "options", "launch", "env")


def run(conditions: dict[str, Any] | None = None, *log: str, **metrics: Any) -> dict[str, Any]:
    """One observation."""
    return {"label": "", "conditions": conditions or {}, "metrics": metrics, "log": list(log)}


def case(
    *observations: dict[str, Any],
    method: str | None = "dflash",
    k: int | None = 7,
    workload: dict[str, Any] | None = None,
    drafter: dict[str, Any] | None = None,
    target: dict[str, Any] | None = None,
    **engine: Any,
) -> Case:
    """``engine``: name, version …; other keywords are engine options."""
    fixed = {key: engine.pop(key) for key in ENGINE_KEYS if key in engine}
    return parse_case(
        {
            "schema": "draftproof.case/1",
            "engine": {"name": "vllm", "options": engine, **fixed},
            "method": method,
            "num_speculative_tokens": k,
            "drafter": drafter or {},
            "target": target or {},
            "workload": workload or {},
            "observations": list(observations),
        }
    )


def severity(made: Case, code: str) -> str | None:
    """Of the finding of ``code`` that counts; None if there is none, "candidate" if it only is one."""
    found = [finding for finding in judge(made).findings if finding.code == code]
    if not found:
        return None
    return found[0].severity if found[0].counts else "candidate"
