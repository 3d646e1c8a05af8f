"""The result of the server's benchmark as Markdown: what was asked of it beside what was measured. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Table = tuple[Sequence[str], list[list[str]]]
Row = tuple[str, str, str]  # what, aim, measured
_PAYS = 1.03  # a ratio above this is more than noise
_RATIO_AIM, _RATIO_AIM_FEW = 0.97, 1.3


def serve_checks(document: Mapping[str, Any]) -> Table:
    """One line for every aim; a phase that has not been run is left out."""
    phases = document["phases"]
    rows = [[*row, _conditions(phases[name])] for name, maker in _CHECKS.items() if name in phases
            for row in maker(phases[name]["result"])]  # fmt: skip
    return ["what", "aim", "measured", "conditions"], rows


def serve_streams(document: Mapping[str, Any]) -> Table | None:
    """Throughput by clients; None if it has not been measured."""
    phase = document["phases"].get("throughput")
    if phase is None:
        return None
    rows = [
        [count, f"{told['plain_tokens_per_s']:.0f}", f"{told['drafter_tokens_per_s']:.0f}", f"{told['ratio']:.2f}",
         f"{min(told['ratios']):.2f} to {max(told['ratios']):.2f}", f"{told['wrong']} of {told['responses']}"]
        for count, told in phase["result"]["clients"].items()
    ]  # fmt: skip
    head = ["clients", "target alone, tok/s", "with the drafter, tok/s", "ratio", "of single turns", "wrong answers"]
    return head, rows


def serve_scale(document: Mapping[str, Any]) -> list[str]:
    """What the figures say about when to move on; only of what has been measured."""
    results = {name: phase["result"] for name, phase in document["phases"].items()}
    said = []
    if "throughput" in results:
        rows = {int(count): row for count, row in results["throughput"]["clients"].items()}
        best = max(rows, key=lambda n: rows[n]["drafter_tokens_per_s"])
        rate = rows[best]["drafter_tokens_per_s"]
        said.append(f"Most tokens a second: {rate:.0f}, at {best} clients ({rate / best:.1f} for each).")
        paying = [n for n, row in rows.items() if row["ratio"] > _PAYS]
        pays = f"up to {max(paying)} clients" if paying else "at no number of clients"
        said.append(f"The drafter brings more than {100 * (_PAYS - 1):.0f} % {pays}.")
    if "kill" in results:
        said.append(f"A killed server answers again after {results['kill']['restart_s']:.0f} s.")
    for name in ("soak", "faults"):
        if name in results:
            told = results[name]["drain"]
            said.append(f"SIGTERM with {told['open_streams']} answers under way: drained in {told['seconds']:.0f} s.")
            break
    where = next(iter(document["phases"].values()))["provenance"]["machine"]["cpu"]
    conditions = {_conditions(document["phases"][n]) for n in ("throughput", "kill", "soak") if n in results}
    return [*said, f"Measured on {where} ({'; '.join(sorted(conditions))})."]


def serve_captions(document: Mapping[str, Any]) -> list[str]:
    """One line for each different condition the phases ran under, with the phases of it."""
    groups: dict[str, list[str]] = {}
    for name, phase in document["phases"].items():
        origin, settings = phase["provenance"], phase["settings"]
        machine = origin["machine"]
        pair = f"target `{_after(settings['serve'], '-m')}`, drafter `{_after(settings['drafter'], '-d')}`"
        told = f"{origin['command']}`, {machine['cpu']}, {pair}, commit {_commit(origin)}"
        groups.setdefault(f"`{told}, {_conditions(phase)}", []).append(name)
    return [f"{', '.join(names)}: {told}." for told, names in groups.items()]


def _conditions(phase: Mapping[str, Any]) -> str:
    origin = phase["provenance"]
    cores, load = origin["machine"]["usable_cores"], origin["load_average"]["before"]
    busy = "" if not load else ", idle before" if load[0] < 0.7 else f", load {load[0]:.1f} before"
    return f"{origin['time'][:10]}, {cores} core{'s' if cores > 1 else ''}{busy}"


def _commit(origin: Mapping[str, Any]) -> str:
    git = origin["git"]
    return "unknown" if git is None else git["commit"][:9] + (" with changes" if git["dirty"] else "")


def _after(arguments: Sequence[str], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


# -- what is asked of each phase --------------------------------------------------------------------------


def _throughput(told: Mapping[str, Any]) -> Iterator[Row]:
    for count, row in told["clients"].items():
        aim = _RATIO_AIM_FEW if int(count) <= 2 else _RATIO_AIM
        said = f"{'above' if int(count) <= 2 else 'at least'} {aim}"
        yield f"throughput, {count} clients, ÷ target alone", said, _judged(f"{row['ratio']:.2f}", row["ratio"] >= aim)


def _one_stream(told: Mapping[str, Any]) -> Iterator[Row]:
    for way, row in told.items():
        name = "target alone" if way == "plain" else "with the drafter"
        share, host = row["outside_steps"], row["host_in_steps"]
        said = f"{100 * share:.1f} % outside the engine's steps, {100 * host:.1f} % in them beside the passes"
        what = f"one stream, {name}: HTTP and scheduling of {row['ms_per_token']:.1f} ms a token"
        yield what, "at most 5 %", _judged(said, share + host <= 0.05)


def _first_token(told: Mapping[str, Any]) -> Iterator[Row]:
    what = f"first token, {told['cached_tokens']:.0f} of {told['prompt_tokens']:.0f} prompt tokens cached"
    said = f"{100 * told['ratio']:.1f} % ({1000 * told['cached_s']:.0f} ms, cold {1000 * told['cold_s']:.0f} ms)"
    yield what, "at most 15 % of the cold one", _judged(said, told["ratio"] <= 0.15)


def _second_turn(told: Mapping[str, Any]) -> Iterator[Row]:
    same = told["same_texts"] and told["same_rounds"]
    said = f"{told['cached_tokens']} of {told['prompt_tokens']} tokens cached; τ {told['tau_cached']:.3f}, "
    said += f"{told['tau_cold']:.3f} without; {'the same' if same else 'other'} rounds"
    yield f"second turn of {told['chats']} chats", "same text, same rounds", _judged(said, same)


def _load(told: Mapping[str, Any]) -> Iterator[Row]:
    wrong, idle, bad, drain = told["wrong"], told["idle_connections"], told["bad_clients"], told["drain"]
    name = f"{told['clients']} clients, {told['seconds'] / 60:g} min"
    said = f"{sum(wrong.values())} of {told['responses']}"
    yield f"{name}: lost, crossed or other answers", "0", _judged(said, not wrong)
    slope = told["memory_slope_mb_per_min"]
    if slope is not None:
        ends = f"{told['memory_mb'][0]:.0f} to {told['memory_mb'][-1]:.0f} MB"
        yield f"{name}: memory, slope of the second half", "flat", f"{slope:+.2f} MB/min ({ends})"
    said = f"{bad['vanished']} vanished, {bad['half bodies']} half bodies, {bad['huge bodies']} huge bodies"
    fine = not bad["huge bodies not refused"] and not bad["failed"]
    yield f"{name}: bad clients beside them", "huge ones 413", _judged(said, fine)
    said = f"{idle['open_at_end']} of {idle['opened']} open to the end"
    yield f"{name}: idle connections", f"{idle['asked']}", _judged(said, idle["open_at_end"] == idle["asked"])
    said = f"{drain['seconds']:.1f} s, {drain['open_streams']} answers under way, {drain['cut_off']} cut off, "
    said += f"exit code {drain['exit_code']}"
    yield f"{name}: SIGTERM", "all answers end", _judged(said, not drain["cut_off"] and drain["exit_code"] == 0)


def _kill(told: Mapping[str, Any]) -> Iterator[Row]:
    said = (
        f"{told['noticed']} of {told['streams']} clients notice; a new server answers after {told['restart_s']:.1f} s"
    )
    yield "SIGKILL under load", "serves again within seconds", _judged(said, told["answers_again"])


def _small_pool(told: Mapping[str, Any]) -> Iterator[Row]:
    said = f"{told['wrong']} of {told['responses']} wrong, {told['preemptions']} pre-emptions"
    yield "16 clients, memory for two answers", "0 wrong", _judged(said, not told["wrong"] and told["preemptions"] > 0)


def _structured(told: Mapping[str, Any]) -> Iterator[Row]:
    taus = [told[way]["tau"] for way in ("free", "schema")]
    said = ", ".join(f"{tau:.2f} {way}" for tau, way in zip(taus, ("free", "under a JSON schema"), strict=True))
    yield f"τ of {told['requests']} questions, drafts of full length", "reported", said


def _schemas(told: Mapping[str, Any]) -> Iterator[Row]:
    said = f"{told['valid']} of {told['asked']}"
    yield "answers valid under generated JSON schemas", "all", _judged(said, told["valid"] == told["asked"])


def _equality(told: Mapping[str, Any]) -> Iterator[Row]:
    rows = told["variants"].values()
    differ, compared = sum(row["differ"] for row in rows), sum(row["compared"] for row in rows)
    what = f"whole and streamed, with and without drafter, {len(told['variants'])} kinds of request, {told['dtype']}"
    yield what, "all the same", _judged(f"{compared - differ} of {compared} the same", not differ)


def _hostile(told: Mapping[str, Any]) -> Iterator[Row]:
    refused = told["requests"] - len(told["not_refused"])
    fine = not told["not_refused"] and _unharmed(told)
    said = f"{refused} of {told['requests']}; {told['references_after']} references right after them"
    yield "hostile requests refused with 4xx", "all of 300 or more", _judged(said, fine)


def _schemathesis(told: Mapping[str, Any]) -> Iterator[Row]:
    said = f"{told['server_errors']} of {told['requests']}, {told['operations']} operations"
    yield "5xx under schemathesis", "none", _judged(said, not told["server_errors"] and _unharmed(told))


def _unharmed(told: Mapping[str, Any]) -> bool:
    right, _, asked = told["references_after"].partition(" of ")
    return right == asked and not told["requests_left"]


def _judged(said: str, reached: bool) -> str:
    return said if reached else f"**{said}**"


_CHECKS: dict[str, Callable[[Mapping[str, Any]], Iterator[Row]]] = {
    "throughput": _throughput,
    "one_stream": _one_stream,
    "first_token": _first_token,
    "second_turn": _second_turn,
    "soak": _load,
    "faults": _load,
    "small_pool": _small_pool,
    "kill": _kill,
    "structured": _structured,
    "schemas": _schemas,
    "equality": _equality,
    "hostile": _hostile,
    "schemathesis": _schemathesis,
}
