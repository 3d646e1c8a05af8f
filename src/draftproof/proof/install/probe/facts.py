"""Levels 4 and 5 for the engines that are known: each fact asked of the sources, and of the shipped functions."""

from __future__ import annotations

import os
import traceback
from typing import Any, Callable

from . import children, sglang_calls, sglang_reads, vllm_calls, vllm_chain, vllm_reads, wire
from .link import Absent, Linker
from .source import Answer, Sources

READS: dict[str, dict[str, Callable[[Sources], Answer]]] = {"vllm": vllm_reads.READS, "sglang": sglang_reads.READS}
CALLS: dict[str, dict[str, Callable[[Linker], Answer]]] = {"vllm": vllm_calls.CALLS, "sglang": sglang_calls.CALLS}
CHAINS: dict[str, Callable[[Linker, dict[str, Any]], dict[str, Any]]] = {
    "vllm": vllm_chain.chain,
    "sglang": sglang_calls.chain,
}


def read(package: str, folder: str) -> dict[str, dict[str, Any]]:
    """Level 4: fact → {"value", "where", "how"}, from syntax trees alone."""
    sources = Sources(folder)
    found = {}
    for fact, question in READS.get(package, {}).items():
        answer = question(sources)
        if answer.value is None and sources.unreadable:
            path, says = next(iter(sources.unreadable.items()))
            answer = Answer(None, sources.at(path), says)
        found[fact] = answer._asdict()
    return found


def run(request: dict[str, Any]) -> None:
    """Level 5, in a child: the shipped functions with known inputs, and the user's config if there is one."""
    speaker = wire.Speaker(children.MARK, os.fdopen(os.dup(1), "w", encoding="ascii"))
    os.dup2(2, 1)
    package, folder = request["package"], request["folder"]
    facts = {}
    for fact, question in CALLS.get(package, {}).items():
        facts[fact] = _called(question, Linker(os.path.dirname(folder), package))._asdict()
    report: dict[str, Any] = {"facts": facts}
    if request.get("drafter") is not None and package in CHAINS:
        try:
            report["chain"] = CHAINS[package](Linker(os.path.dirname(folder), package), request["drafter"])
        except Exception as error:
            report["chain"] = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]}
    speaker.report(report)
    os._exit(0)


def _called(question: Callable[[Linker], Answer], linker: Linker) -> Answer:
    try:
        answer = question(linker)
    except Absent as error:
        return Answer(None, "", f"{error} is not there")
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        says = f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
        return Answer(None, f"{os.path.basename(frame.filename)}:{frame.lineno}", says)
    used = sorted(name for name in linker.used if ".logger" not in name and "init_logger" not in name)
    if used and answer.value is not None:
        return answer._replace(how=f"{answer.how} (stand-ins called: {', '.join(used[:3])})")
    return answer
