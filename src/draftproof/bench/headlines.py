"""The few lines of a result that a reader in a hurry wants: (what, measured, where). Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Line = list[str]


def headlines(document: Mapping[str, Any]) -> list[Line]:
    """Of a result file, by its schema; nothing for those that have none."""
    maker = _MAKERS.get(str(document.get("schema_version")))
    if maker is None:
        return []
    where = _machine(document)
    return [[what, measured, where] for what, measured in maker(document)]


def _machine(document: Mapping[str, Any]) -> str:
    phases: dict[str, Any] = document.get("phases") or {}
    first: dict[str, Any] = next(iter(phases.values()), {})
    origin = document.get("provenance") or first.get("provenance") or {}
    cpu = origin.get("machine", {}).get("cpu", "")
    return f"{cpu}, {str(origin.get('time', ''))[:10]}"


def _exactness(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind = document["engine"]["dtype"]
    for way, told in document["ways"].items():
        same = f"{told['identical']} of {told['prompts']} answers identical"
        yield f"{way} = target alone, {kind}", same


def _speed(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, told in document["workloads"].items():
        ways = told["ways"]
        plain = ways["plain"]["decode_tokens_per_s"]["median"]
        served = {way: found for way, found in ways.items() if way.startswith("policy")} or {
            way: found for way, found in ways.items() if way != "plain"
        }
        if served:
            best = max(served, key=lambda way: served[way]["speedup"]["median"])
            ratio = served[best]["speedup"]["median"]
            yield f"one stream, {name}", f"{ratio:.2f}× the target alone ({plain:.0f} tok/s), {best}"
    for name, peer in (document.get("peers") or {}).items():
        ratio = peer.get("ratio", {}).get("plain")
        if ratio:
            yield f"target alone beside {name}", f"{ratio:.2f}×"


def _streams(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    streams = document["streams"]
    rates = {int(n): told["plain"]["tokens_per_s"]["median"] for n, told in streams.items()}
    if {1, 16} <= set(rates):
        yield "target alone, 16 streams", f"{rates[16] / rates[1]:.1f}× one stream ({rates[16]:.0f} tok/s)"
    ratios = {int(n): t["drafter"]["ratio_to_plain"]["median"] for n, t in streams.items() if "drafter" in t}
    if ratios:
        low, high = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
        span = f"{ratios[low]:.2f}× ({low} streams) to {ratios[high]:.2f}× ({high})"
        yield "with the drafter, policy choosing, 1 to 64 streams", span
    first = document.get("first_token")
    if first:
        what = f"first token after a cached prefix of {first['prefix_tokens']} tokens"
        yield what, f"{1000 * first['cached_s']:.0f} ms instead of {1000 * first['cold_s']:.0f} ms"


def _evaluation(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    engine = document["engine"]
    way = "chain" if engine["method"] == "chain" else f"DDTree of {engine['tree_budget']} nodes"
    found = [f"{name} {told['tau']:.2f}" for name, told in document["workloads"].items() if told["tau"] is not None]
    yield f"τ of {engine['drafter'].rstrip('/').rpartition('/')[2]}, {way}", ", ".join(found)


def _served(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    results = {name: phase["result"] for name, phase in document["phases"].items()}
    if "soak" in results:
        told = results["soak"]
        wrong = sum(told["wrong"].values())
        said = f"{wrong} wrong of {told['responses']} answers"
        yield f"server, {told['clients']} streaming clients, {told['seconds'] / 60:g} minutes", said
    if "schemas" in results:
        told = results["schemas"]
        yield "server, generated JSON schemas under drafts", f"{told['valid']} of {told['asked']} answers valid"
    attacks = [results[name]["requests"] for name in ("hostile", "schemathesis") if name in results]
    if attacks:
        bad = len(results.get("hostile", {}).get("not_refused", ()))
        bad += results.get("schemathesis", {}).get("server_errors", 0)
        yield "server, hostile and generated requests", f"{bad} of {sum(attacks)} answered wrongly"


def _installs(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    what = f"`doctor` on {len(document['releases'])} installed releases of vLLM and SGLang, versions hidden"
    yield what, f"{document['right']} of {document['cells']} cells of the version matrix right"


def _story(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    rows = document["rows"]
    yield "the story: engines of known state, judged rightly", f"{sum(bool(r['right']) for r in rows)} of {len(rows)}"


def _captures(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    cases = document["cases"]
    what = f"`replay` on vLLM {document['engine']['version']}, healthy and with faults switched on inside it"
    yield what, f"{document['right']} of {len(cases)} named rightly, none with a rival"


def _blind(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    found = document["conditions"]["all"]
    shows = found["of_faults_that_show"]["first_or_alike"]
    yield "`diagnose --fingerprints`, blind: the fault is named first", f"{shows:.0%} of runs with one that shows"
    called = f"{found['healthy_called_faulty']:.1%} (with a probability of 0.9 or more: "
    yield "the same, healthy runs called faulty", f"{called}{found['healthy_called_faulty_surely']:.1%})"


def _accuracy(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    codes, verdicts = document["codes_of_derivable"], document["verdicts"]
    yield (
        f"`diagnose` on {document['cases']} collected cases, beside an expert's verdict",
        f"{verdicts['right']} of {verdicts['of']} verdicts, codes of {codes['right']} of {codes['of']} derivable ones",
    )


_MAKERS: dict[str, Callable[[Mapping[str, Any]], Iterator[tuple[str, str]]]] = {
    "draftproof.exactness/1": _exactness,
    "draftproof.speed/1": _speed,
    "draftproof.engine/1": _streams,
    "draftproof.evaluate/1": _evaluation,
    "draftproof.serve-bench/2": _served,
    "draftproof.installs/1": _installs,
    "draftproof.story/1": _story,
    "draftproof.capture-conformance/1": _captures,
    "draftproof.blind/1": _blind,
    "draftproof.accuracy/1": _accuracy,
}
