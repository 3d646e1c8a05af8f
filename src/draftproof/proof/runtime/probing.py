"""Runs a plan of probes against a server and turns what came back into observations to compare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from draftproof.errors import UsageError
from draftproof.proof.case import Case, Observation
from draftproof.proof.runtime.endpoint import Answer, Ask, Endpoint
from draftproof.proof.runtime.probe_plan import Group, Plan
from draftproof.proof.runtime.prometheus import increase, metrics_of

_FOREIGN = 1.25  # more generated tokens than this factor of ours: others use the server too
_SHORT_PROMPT = 100  # tokens
_NEAR_TIE = 0.1  # nats between the two best tokens; numerics alone may turn these round


@dataclass
class Measured:
    """A group with its answers, in the order asked, and what the server counted meanwhile."""

    group: Group
    answers: list[Answer]
    metrics: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class Probed:
    """``comparisons``: pairs of places in ``observations``, the suspected side first."""

    observations: list[Observation] = field(default_factory=list)
    comparisons: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def cases(self, case: Case) -> list[Case]:
        """One per pair, the suspected side as the state under diagnosis."""
        pairs = [(self.observations[a], self.observations[b]) for a, b in self.comparisons]
        return [replace(case, observations=pair) for pair in pairs]


def run_plan(
    plan: Plan, server: Endpoint, plain: Endpoint | None, raw: Path, say: Callable[[str], None]
) -> list[Measured]:
    """One group after the other; stops early where the server answers nothing at all. Raw data go to ``raw`` as they
    come, one line of JSON per request."""
    done: list[Measured] = []
    try:
        raw.parent.mkdir(parents=True, exist_ok=True)
        with raw.open("w", encoding="utf-8") as file:
            for group in plan.groups:
                to = plain if group.plain and plain is not None else server
                say(f"{group.name}: {len(group.asks)} requests, {group.why}")
                measured = _run(group, to)
                done.append(measured)
                for ask, answer in zip(group.asks, measured.answers, strict=True):
                    line = {"group": group.name, "to": to.name, "ask": asdict(ask), "answer": asdict(answer)}
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
                file.flush()
                if len(done) == 1 and all(answer.status == 0 for answer in measured.answers):
                    break
    except OSError as error:
        raise UsageError(f"--raw {raw}: cannot be written ({error.strerror})") from None
    return done


def _run(group: Group, server: Endpoint) -> Measured:
    before = server.metrics()
    with ThreadPoolExecutor(max_workers=group.streams) as pool:
        answers = list(pool.map(server.ask, group.asks))
    measured = Measured(group, answers)
    after = server.metrics() if before is not None else None
    if before is not None and after is not None:
        between = increase(before, after)
        ours = sum(answer.completion_tokens or 0 for answer in answers)
        counted = sum(v for (name, _), v in between.samples.items() if name.endswith("generation_tokens_total"))
        if ours and counted > _FOREIGN * ours:
            measured.notes.append(f"{group.name}: others used the server meanwhile; its counters were left out")
        else:
            measured.metrics = metrics_of(between)
    elif any(answer.draft for answer in answers):
        drafted, accepted = (sum(answer.draft[i] for answer in answers if answer.draft) for i in (0, 1))
        rate = round(accepted / drafted, 5) if drafted else 0.0
        measured.metrics = {"num_draft_tokens": drafted, "num_accepted_tokens": accepted, "acceptance_rate": rate}
    return measured


def probed(done: list[Measured]) -> Probed:
    """Observations of all groups, pairs to compare (the suspected side first) and what is worth a remark."""
    found = Probed()
    place: dict[str, int] = {}
    by_name = {one.group.name: one for one in done}
    for one in done:
        place[one.group.name] = len(found.observations)
        found.observations.append(_observation(one, by_name))
        found.notes += one.notes
        found.notes += [f"{one.group.name}: {text} ({n} of {len(one.answers)})" for text, n in _errors(one)]
    for one in done:
        other = place.get(one.group.against or "")
        if other is None:
            continue
        mine = place[one.group.name]
        # A group may be the better side as well: thinking off against on, plain against drafting.
        found.comparisons.append((mine, other))
        if one.group.plain or one.group.name.startswith("thinking"):
            found.comparisons.append((other, mine))
    found.notes += _remarks(by_name)
    return found


def _errors(one: Measured) -> list[tuple[str, int]]:
    return Counter(answer.error for answer in one.answers if answer.error).most_common(3)  # type: ignore[return-value]


def _observation(one: Measured, by_name: dict[str, Measured]) -> Observation:
    metrics = {k: v for k, v in one.metrics.items() if k not in ("ttft_s", "kv_cache_usage")}
    good = [answer for answer in one.answers if answer.error is None]
    waits = [answer.ttft for answer in good if answer.ttft is not None]
    if waits:
        metrics["ttft_s"] = round(median(waits), 4)
    tokens = sum(answer.completion_tokens or 0 for answer in good)
    seconds = sum(answer.seconds for answer in good)
    if tokens and seconds and one.group.streams == 1 and not one.group.asks[0].stream:
        metrics["tok_s"] = round(tokens / seconds, 2)
    metrics["outcome"] = _outcome(one)
    if good and sum(repeats(answer.text) for answer in good) * 2 > len(good):
        metrics["output"] = "degenerate_repetition"
    metrics |= counted_wrong(one)
    if one.group.name == "streamed" and "cold" in by_name:
        metrics |= against_whole(by_name["cold"], one)
    if one.group.name == "cold" and "plain" in by_name:
        metrics |= _against_plain(one, by_name["plain"])
    conditions = {"temperature": 0, **one.group.conditions}
    if conditions.get("cached_prefix") and _hits(one) == 0:
        conditions["cached_prefix"] = False  # the cache is off, or never hits: nothing was restored
    log = tuple(answer.error for answer in one.answers if answer.error)
    return Observation(f"probe: {one.group.name}", conditions, metrics, log[:5])


def _hits(one: Measured) -> float | None:
    """Prompt tokens that came from the cache; None if the server does not say."""
    cached = [answer.cached_tokens for answer in one.answers if answer.cached_tokens is not None]
    hits = one.metrics.get("prefix_cache_hits")
    return hits if hits is not None else sum(cached) if cached else None


def _outcome(one: Measured) -> str:
    failed = [answer for answer in one.answers if answer.error]
    if len(failed) * 2 < len(one.answers):
        return "ok"
    status = failed[0].status
    return "http_400" if 400 <= status < 500 else "http_500" if status >= 500 else "crash" if status == 0 else "ok"


def _against_plain(one: Measured, plain: Measured) -> dict[str, Any]:
    """Speed without the drafter, and the first place where the texts part, near ties left out."""
    found: dict[str, Any] = {}
    good = [answer for answer in plain.answers if answer.error is None]
    tokens, seconds = sum(a.completion_tokens or 0 for a in good), sum(a.seconds for a in good)
    if tokens and seconds:
        found["baseline_tok_s"] = round(tokens / seconds, 2)
    parted = [split for a, b in zip(one.answers, plain.answers, strict=True) if (split := divergence(a, b)) is not None]
    real = [token for token, gap in parted if gap is None or gap > _NEAR_TIE]
    if real:
        found |= {"output": "text_differs", "first_divergence_token": min(real)}
    elif good:
        found["output"] = "ok"
    return found


def against_whole(whole: Measured, streamed: Measured) -> dict[str, int]:
    """How many streamed answers are not the whole ones to the same prompts, by what differs."""
    found: Counter[str] = Counter()
    for one, piece in zip(whole.answers, streamed.answers, strict=False):
        if one.error or piece.error:
            continue
        counts = (one.completion_tokens, piece.completion_tokens)
        if piece.whole != one.whole:
            found["streamed_lost" if _lacks(piece.whole, one.whole) else "streamed_differs"] += 1
        elif piece.finish_reason != one.finish_reason:
            found["streamed_finish"] += 1
        elif None not in counts and counts[0] != counts[1]:
            found["usage_streamed"] += 1
    return dict(found)


def _lacks(piece: str, whole: str) -> bool:
    """Is ``piece`` the text with some of it missing, and nothing changed or added?"""
    letters = iter(whole)
    return len(piece) < len(whole) and all(letter in letters for letter in piece)


def counted_wrong(one: Measured) -> dict[str, int]:
    """Answers of short prompts that were cut at ``max_tokens`` and count another number of tokens."""
    if one.group.conditions.get("context_tokens", 0) > _SHORT_PROMPT:
        return {}  # those may have been cut by the model's own limit
    wrong = sum(
        answer.finish_reason == "length" and answer.completion_tokens not in (None, ask.max_tokens)
        for ask, answer in zip(one.group.asks, one.answers, strict=True)
        if answer.error is None
    )
    return {"usage_wrong": wrong} if wrong else {}


def divergence(one: Answer, other: Answer) -> tuple[int, float | None] | None:
    """(index of the first different token, gap of the two best log-probabilities there); None if the texts agree or
    one was not answered. Without log-probabilities: words, and no gap."""
    if one.error or other.error or one.whole == other.whole:
        return None
    if one.tops and other.tops:
        for index, (mine, its) in enumerate(zip(one.tops, other.tops, strict=False)):
            if mine[0] != its[0]:
                return index, None if its[2] is None else abs(its[1] - its[2])
        return min(len(one.tops), len(other.tops)), None
    mine_words, its_words = one.whole.split(), other.whole.split()
    pairs = enumerate(zip(mine_words, its_words, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(mine_words), len(its_words))), None


def repeats(text: str) -> bool:
    """Does the same run of words fill the text? Counted on four words, in texts long enough to tell."""
    words = text.split()
    if len(words) < 40:
        return len(text) >= 60 and len(set(text)) <= 3
    runs = Counter(tuple(words[i : i + 4]) for i in range(len(words) - 3))
    return 1 - len(runs) / sum(runs.values()) > 0.6


def _remarks(by_name: dict[str, Measured]) -> Iterator[str]:
    """What no rule judges: a schema that is not followed, a template that does not think."""
    schema = by_name.get("schema")
    ended = [a for a in schema.answers if not a.error and a.finish_reason == "stop"] if schema is not None else []
    broken = [answer for answer in ended if not _is_json(answer.text)]
    if broken:
        yield f"schema: {len(broken)} answers that ended by themselves are no JSON"
    on, off = by_name.get("thinking on"), by_name.get("thinking off")
    if on is not None and off is not None and not any(a.reasoning or "<think>" in a.text for a in on.answers):
        yield "the template shows no thinking either way; the two groups are alike"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def list_asks(plan: Plan) -> Iterator[tuple[str, Ask]]:
    for group in plan.groups:
        for ask in group.asks:
            yield group.name, ask
