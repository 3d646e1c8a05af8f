"""Counts of many faults on many prompts, collected piece by piece into a file, so that an interrupted run goes on."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from draftproof.bench.acceptance import AcceptanceCounts
from draftproof.bench.workloads import WorkloadPrompt, load_workload
from draftproof.errors import UsageError
from draftproof.proof.fingerprints import HEALTHY
from draftproof.proof.lab.faults import Fault
from draftproof.proof.lab.runs import Laboratory

SCHEMA = "draftproof.lab-counts/1"
PIECE = 16  # prompts that are recorded together
MOST_CHARS = 2000  # of a question: contexts are made long on purpose, not by chance
Histograms = dict[str, list[int]]  # prompt → rounds by accepted tokens 0 … N
Pool = dict[str, dict[str, Histograms]]  # fault → condition → prompts


def key_of(prompt: WorkloadPrompt) -> str:
    """A short name that depends on the text alone."""
    text = json.dumps([[m["role"], m["content"]] for m in prompt.messages], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def choose(files: Sequence[str], limit: int, seed: int, without: Collection[str] = ()) -> list[WorkloadPrompt]:
    """``limit`` prompts, as many of each file as there are, in an order that the seed alone decides; ``without``:
    keys of prompts that are taken. Raises UsageError for fewer than two."""
    orders = []
    for name in files:
        known = {key_of(p): p for p in load_workload(name).prompts if len(p.messages[-1]["content"]) <= MOST_CHARS}
        keys = sorted(set(known) - set(without), key=lambda key: hashlib.sha256(f"{seed}:{key}".encode()).digest())
        orders.append([known[key] for key in keys])
    in_turn = [p for row in itertools.zip_longest(*orders) for p in row if p is not None][:limit]
    if len(in_turn) < 2:
        raise UsageError(f"{', '.join(files)}: {len(in_turn)} prompts; the laboratory needs at least 2")
    return in_turn


def collect(
    place: Laboratory,
    prompts: Sequence[WorkloadPrompt],
    faults: Sequence[Fault],
    conditions: Sequence[str],
    file: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Pool:
    """``healthy`` and every fault that can show, on all prompts. ``file``: what was counted so far, which is added
    to; raises UsageError if it is of another pair or other settings."""
    settings = describe(place)
    pool = _read(file, settings) if file is not None else {}
    chosen: list[Fault | None] = [None]
    for fault in faults:
        reason = fault.unfit(place.healthy.spec)
        if reason is None:
            chosen.append(fault)
        else:
            say(f"{fault.name}: left out, {reason}")
    for first in range(0, len(prompts), PIECE):
        piece = prompts[first : first + PIECE]
        rows = list(_count(place, piece, chosen, conditions, pool))
        _add(pool, rows)
        if file is not None and rows:
            _append(file, rows)
        say(f"{min(first + PIECE, len(prompts))} of {len(prompts)} prompts")
    names = {HEALTHY, *(fault.name for fault in chosen if fault)}
    wanted = {key_of(p) for p in prompts}
    return {
        name: {c: {k: h for k, h in by[c].items() if k in wanted} for c in conditions if c in by}
        for name, by in pool.items()
        if name in names
    }


def describe(place: Laboratory) -> dict[str, Any]:
    """What counts depend on beside the prompts."""
    return {
        "schema_version": SCHEMA,
        "weights": place.weights_sha256,
        "dtype": str(place.engine.target.info.dtype),
        "max_tokens": place.max_tokens,
        "seed": place.seed,
        "piece": PIECE,
    }


def _count(
    place: Laboratory,
    piece: Sequence[WorkloadPrompt],
    faults: Sequence[Fault | None],
    conditions: Sequence[str],
    known: Pool,
) -> Iterator[dict[str, Any]]:
    session, keys = place.on(piece), [key_of(p) for p in piece]
    for fault in faults:
        name = fault.name if fault else HEALTHY
        have = known.get(name, {})
        missing = [c for c in conditions if not all(k in have.get(c, {}) for k in keys)]
        for condition, counts in session.run(fault, missing).items():
            table = histograms(counts, len(piece), place.healthy.spec.num_draft_tokens)
            yield {"fault": name, "condition": condition, "prompts": dict(zip(keys, table, strict=True))}


def histograms(counts: AcceptanceCounts, prompts: int, most: int) -> list[list[int]]:
    """Per prompt: rounds with drafts by accepted tokens."""
    table = [[0] * (most + 1) for _ in range(prompts)]
    for depth, accepted, prompt in zip(counts.depths, counts.accepted, counts.groups or (), strict=True):
        if depth > 0:
            table[int(prompt)][int(accepted)] += 1  # type: ignore[call-overload]
    return table


def _add(pool: Pool, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        pool.setdefault(row["fault"], {}).setdefault(row["condition"], {}).update(row["prompts"])


def _read(file: Path, settings: Mapping[str, Any]) -> Pool:
    pool: Pool = {}
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings) + "\n", encoding="utf-8")
        return pool
    head, *lines = file.read_text(encoding="utf-8").splitlines()
    if json.loads(head) != dict(settings):
        raise UsageError(f"{file}: counts of another pair or other settings; remove it or name another file")
    _add(pool, [json.loads(line) for line in lines if line.endswith("}")])
    return pool


def _append(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.write("".join(json.dumps(row) + "\n" for row in rows))
