"""Result files as Markdown tables, for README.md and for the terminal. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from draftproof.bench.tables_drafter import evaluation, faults
from draftproof.bench.tables_engine import engine_sections
from draftproof.bench.tables_installs import releases, remarks
from draftproof.bench.tables_proof import captures, story, story_remarks
from draftproof.bench.tables_serve import serve_captions, serve_checks, serve_scale, serve_streams

PLAIN = "plain"
LABELS = {
    PLAIN: "target alone",
    "chain": "DFlash chain",
    "tree": "DDTree",
    "policy": "chain, policy choosing",
    "policy-tree": "DDTree, policy choosing",
}


def render(document: Mapping[str, Any]) -> str | None:
    """Markdown of a result, by its schema; None for one that is not made here."""
    maker = _MAKERS.get(str(document.get("schema_version")))
    return maker(document) if maker else None


def label(way: str) -> str:
    """``tree-16`` is a DDTree of 16 nodes."""
    if way in LABELS:
        return LABELS[way]
    name, _, budget = way.partition("-")
    return LABELS.get(name, name) + (f", {budget} nodes" if budget else "")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines)


# -- exactness --------------------------------------------------------------------------------------------


def exactness(document: Mapping[str, Any]) -> str:
    rows = []
    for way, told in document["ways"].items():
        bits = f"{told['compared_logprobs'] - told['logprobs_differ']} of {told['compared_logprobs']}"
        rows.append([f"{label(way)} = target alone", _of(told), f"{told['agreed_tokens']}", bits, _verdict(told)])
    against = document.get("transformers")
    if against:
        rows.append(
            [
                "target alone = transformers",
                _of(against),
                str(against["agreed_tokens"]),
                "–",
                _verdict(against),
            ]
        )
    head = ["compared", "identical answers", "tokens", "log-probabilities bit for bit", "verdict"]
    return table(head, rows) + "\n" + "".join(_differences(document)) + _caption(document)


def _of(told: Mapping[str, Any]) -> str:
    return f"{told['identical']} of {told['prompts']}"


def _verdict(told: Mapping[str, Any]) -> str:
    if not told["passed"]:
        return "**failed**"
    return f"passed ({told['rounding']} ties within rounding)" if told["rounding"] else "passed"


def _differences(document: Mapping[str, Any]) -> Iterator[str]:
    groups = {label(way): told for way, told in document["ways"].items()}
    if document.get("transformers"):
        groups["transformers"] = document["transformers"]
    lines = [
        f"- {who}, prompt {d['prompt']}, token {d['position'] + 1}: {d['explanation']}\n"
        for who, told in groups.items()
        for d in told["differences"]
    ]
    if lines:
        yield from [*lines, "\n"]


# -- speed ------------------------------------------------------------------------------------------------


def speed(document: Mapping[str, Any]) -> str:
    parts = [_speed_table(document), _positions(document), _pass_table(document), _peer_table(document)]
    return "\n".join(part for part in [*parts, _bandwidth(document), _caption(document)] if part)


def _speed_table(document: Mapping[str, Any]) -> str:
    rows = []
    for name, workload in document["workloads"].items():
        for way, told in workload["ways"].items():
            parts = told["ms_per_round"]
            rows.append(
                [
                    f"{name} ({workload['prompts']})",
                    label(way),
                    _number(told["decode_tokens_per_s"]["median"]),
                    f"{told['speedup']['median']:.2f}×",
                    _number(told["with_prefill_tokens_per_s"]["median"]),
                    _tau(told["acceptance"]),
                    " + ".join(f"{parts[part]:.1f}" for part in ("draft", "verify", "host")),
                    f"{100 * parts['host_share']:.0f} %",
                ]
            )
    head = ["prompts (count)", "way", "tok/s", "speed-up", "tok/s with prompt", "τ (95 %)"]
    return table([*head, "ms a round: draft + verify + host", "host share"], rows)


def _positions(document: Mapping[str, Any]) -> str:
    """Rounds that accepted at least k drafted tokens."""
    curves = [
        (name, way, [p["rate"] for p in told["acceptance"]["positions"]])
        for name, workload in document["workloads"].items()
        for way, told in workload["ways"].items()
        if told["acceptance"]
    ]
    if not curves:
        return ""
    deepest = max(len(curve) for _, _, curve in curves)
    head = ["prompts", "accepted at least", *(str(k) for k in range(1, deepest + 1))]
    filled = [[f"{rate:.2f}" for rate in curve] + [""] * (deepest - len(curve)) for _, _, curve in curves]
    return table(head, [[n, label(w), *cells] for (n, w, _), cells in zip(curves, filled, strict=True)])


def _pass_table(document: Mapping[str, Any]) -> str:
    costs = document["passes"]["costs"]
    rows = [[str(c["rows"]), _number(c["target_ms"]), _number(c["drafter_ms"])] for c in costs]
    return table(["rows in a pass", "target, ms", "drafter, ms"], rows)


def _peer_table(document: Mapping[str, Any]) -> str:
    rows = []
    ways = list(next(iter(document["workloads"].values()))["ways"])
    for name, told in document["peers"].items():
        if "skipped" in told:
            rows.append([name, f"left out: {told['skipped']}", *("" for _ in ways)])
        else:
            ratios = [f"{told['ratio'][way]:.2f}×" for way in ways]
            rows.append([f"{name} ({told['version']})", _number(told["tokens_per_second"]), *ratios])
    return table(["peer", "tok/s", *(f"{label(way)} is" for way in ways)], rows) if rows else ""


def _bandwidth(document: Mapping[str, Any]) -> str:
    told = document["bandwidth"]
    if told["share"] is None:
        return f"Memory reads at {told['read_bytes_per_s'] / 1e9:.1f} GB/s.\n"
    return (
        f"Memory reads at {told['read_bytes_per_s'] / 1e9:.1f} GB/s; the target alone reads its"
        f" {told['weight_bytes'] / 1e6:.0f} MB of weights at {told['reached_bytes_per_s'] / 1e9:.1f} GB/s,"
        f" {100 * told['share']:.0f} % of that.\n"
    )


# -- both -------------------------------------------------------------------------------------------------


def _tau(acceptance: Mapping[str, Any] | None) -> str:
    if not acceptance:
        return "1.00"
    interval = acceptance["tau_ci95"]
    return f"{acceptance['tau']:.2f}" + (f" ({interval[0]:.2f}–{interval[1]:.2f})" if interval else "")


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}"


def _caption(document: Mapping[str, Any]) -> str:
    """What was measured where, in one paragraph."""
    engine, settings = document["engine"], document["settings"]
    many = "streams" in document
    said = [
        f"target `{engine['target']}`, drafter `{engine['drafter']}`",
        f"up to {settings['max_tokens']} tokens",
    ]
    if "repeats" in settings:
        said.append(f"median of {settings['repeats']} runs" + ("" if many else " of each prompt"))
    said.append("greedy" if many else "greedy, one request at a time")
    origin = document.get("provenance")
    if not origin:
        return ", ".join(said) + ".\n"
    machine = origin["machine"]
    load = document.get("load_average", {}).get("before") or machine["load_average"]  # before our own
    where = f"`{origin['command']}` on {machine['cpu']}, {engine['threads']} threads, {engine['dtype']}"
    busy = f", load average {load[0]:.1f}" if load else ""
    when = f"torch {origin['versions'].get('torch')}, {origin['time'][:10]}{busy}"
    return f"{where}; {', '.join(said)}; {when}.\n"


def engine_load(document: Mapping[str, Any]) -> str:
    parts = [f"{said}\n\n{table(head, rows)}\n" for said, head, rows in engine_sections(document)]
    return "".join(parts) + _caption(document)


def drafter_worth(document: Mapping[str, Any]) -> str:
    engine = document["engine"]
    way = label("chain" if engine["method"] == "chain" else f"tree-{engine['tree_budget']}")
    said = f"{way}, greedy, drafts of full length, up to {document['max_tokens']} tokens, rounds in loops left out"
    return f"{table(*evaluation(document))}\n{said}; {_where(document)}.\n"


def served(document: Mapping[str, Any]) -> str:
    """The server's benchmark: every aim and what came of it; what falls short stands in bold type."""
    captions = "".join(f"- {line}\n" for line in serve_captions(document))
    return f"{table(*serve_checks(document))}\n{served_streams(document)}{captions}"


def served_scale(document: Mapping[str, Any]) -> str:
    """What of it tells how far one machine goes."""
    sentences = "".join(f"- {line}\n" for line in serve_scale(document))
    return f"{served_streams(document)}{sentences}"


def served_streams(document: Mapping[str, Any]) -> str:
    """Its throughput alone; nothing where it has not been measured."""
    found = serve_streams(document)
    return f"{table(*found)}\n" if found else ""


def fault_curves(document: Mapping[str, Any]) -> str:
    pair = document["pair"]
    said = f"target `{pair['target']}`, drafter `{pair['drafter']}`, {_workloads(pair['workload'])}"
    return f"{table(*faults(document))}\n{said}; {_where(document)}.\n"


def _workloads(told: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """One workload with its number of prompts, or the names of several."""
    if isinstance(told, Mapping):
        return f"{told['prompts']} prompts"
    return "prompts of " + ", ".join(str(one["name"]) for one in told)


def installs(document: Mapping[str, Any]) -> str:
    said = " ".join(remarks(document))
    return f"{table(*releases(document))}\n{said}\n\n{_where(document)}.\n"


def _where(document: Mapping[str, Any]) -> str:
    origin = document["provenance"]
    return f"`{origin['command']}`, {origin['machine']['cpu']}, {origin['time'][:10]}"


# -- story and capture ------------------------------------------------------------------------------------


def proof_story(document: Mapping[str, Any]) -> str:
    said = "".join(f"{line}\n\n" for line in story_remarks(document))
    return f"{table(*story(document))}\n{said}{_where(document)}.\n"


def capture_conformance(document: Mapping[str, Any]) -> str:
    return f"{table(*captures(document))}\n{_where(document)}.\n"


_MAKERS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "draftproof.exactness/1": exactness,
    "draftproof.speed/1": speed,
    "draftproof.engine/1": engine_load,
    "draftproof.evaluate/1": drafter_worth,
    "draftproof.lab/1": fault_curves,
    "draftproof.serve-bench/2": served,
    "draftproof.installs/1": installs,
    "draftproof.story/1": proof_story,
    "draftproof.capture-conformance/1": capture_conformance,
}
