"""Which requests are sent, in which groups, and what each group is compared with."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import resources
from random import Random
from typing import Any

from draftproof.proof.runtime.endpoint import Ask

_SCHEMA = {
    "type": "object",
    "properties": {"summary": {"type": "string"}, "steps": {"type": "array", "items": {"type": "string"}}},
    "required": ["summary", "steps"],
}
_TOKENS_PER_RECORD = 32  # about, in common vocabularies
_LONG = 3600  # tokens: several blocks of any prefix cache, and three prompts make 10,000 look-ups
_ROOM = 1.5  # times the tokens that a text is thought to have, with the answer
_SHORT: dict[str, Any] = {"concurrency": 1, "context_tokens": 40}


@dataclass(frozen=True)
class Group:
    """Requests under one condition. ``conditions``: in the words of a case; ``against``: the name of the group that
    differs in nothing else; ``streams``: requests at a time; ``plain``: sent to the endpoint without a drafter."""

    name: str
    why: str
    asks: tuple[Ask, ...]
    conditions: dict[str, Any] = field(default_factory=dict)
    against: str | None = None
    streams: int = 1
    plain: bool = False


@dataclass(frozen=True)
class Plan:
    """``left_out``: groups for which the allowed number of requests is too small; ``too_long``: for which the
    server's context is."""

    groups: tuple[Group, ...]
    left_out: tuple[str, ...] = ()
    too_long: tuple[str, ...] = ()

    @property
    def requests(self) -> int:
        return sum(len(group.asks) for group in self.groups)

    def within(self, max_tokens: int | None) -> Plan:
        """Without the groups whose prompts are too long for the server, where it says how long they may be."""
        kept = [g for g in self.groups if g.conditions.get("context_tokens", 0) * _ROOM <= (max_tokens or math.inf)]
        names = {g.name for g in kept}
        kept = [g for g in kept if g.against is None or g.against in names]
        gone = [g.name for g in self.groups if g not in kept]
        return replace(self, groups=tuple(kept), too_long=tuple(gone))


def make_plan(
    *,
    max_requests: int,
    max_concurrency: int,
    window: int | None = None,
    plain: bool = False,
    seed: int | None = None,
) -> Plan:
    """Groups in order of what they tell, as many as fit. ``window``: of the drafter's sliding layers, if known.
    ``seed``: of the first words that keep prompts out of caches; by default other ones each time."""
    groups = _groups(Random(seed), min(4, max_concurrency), window, plain)
    kept: list[Group] = []
    left_out: list[str] = []
    used = 0
    for group in groups:
        needs = group.against is None or any(one.name == group.against for one in kept)
        if needs and used + len(group.asks) <= max_requests:
            kept.append(group)
            used += len(group.asks)
        else:
            left_out.append(group.name)
    return Plan(tuple(kept), tuple(left_out))


def _groups(random: Random, streams: int, window: int | None, plain: bool) -> list[Group]:
    tasks = _texts()["tasks"]
    cold = [f"{_nonce(random)} {task}" for task in tasks]
    greedy = tuple(Ask(prompt, logprobs=plain) for prompt in cold)
    made = [Group("cold", "short prompts that no cache knows, one at a time, temperature 0", greedy, dict(_SHORT))]
    if plain:
        why = "the same prompts without the drafter: same text, and how fast"
        made.append(Group("plain", why, greedy, {**_SHORT, "drafter": False}, "cold", plain=True))
    made += _cache_groups(random, tasks[:3])
    if streams > 1:
        asks = tuple(Ask(f"{_nonce(random)} {task}") for task in tasks)
        why = f"the same tasks, {streams} at a time"
        made.append(Group("streams", why, asks, {**_SHORT, "concurrency": streams}, "cold", streams))
    asks = tuple(Ask(f"{_nonce(random)} {task}", temperature=1.0) for task in tasks)
    made.append(Group("sampled", "the same tasks at temperature 1", asks, {**_SHORT, "temperature": 1}, "cold"))
    length = max(6000, 3 * (window or 0))
    asks = tuple(Ask(f"{_nonce(random)} {_document(random, length)}\n\n{task}") for task in tasks[:2])
    why = f"the same tasks behind about {length} tokens" + (f", beyond the window of {window}" if window else "")
    made.append(Group("long", why, asks, {**_SHORT, "context_tokens": length}, "cold"))
    for thinking in (True, False):
        asks = tuple(Ask(f"{_nonce(random)} {task}", thinking=thinking) for task in tasks[:3])
        name = f"thinking {'on' if thinking else 'off'}"
        against = None if thinking else "thinking on"
        made.append(Group(name, f"three tasks with {name}", asks, {**_SHORT, "thinking": thinking}, against))
    asks = tuple(Ask(prompt, stream=True) for prompt in cold[:2])
    made.append(
        Group("streamed", "two of the first prompts again, streamed", asks, {**_SHORT, "streaming": True}, "cold")
    )
    asks = tuple(Ask(f"{_nonce(random)} {task}", schema=_SCHEMA) for task in tasks[2:4])
    made.append(Group("schema", "two tasks with a JSON schema", asks, {**_SHORT, "structured_output": True}, "cold"))
    return made


def _cache_groups(random: Random, tasks: Sequence[str]) -> list[Group]:
    document = _document(random, _LONG)
    first = [f"{_nonce(random)} {document}\n\n{task}" for task in tasks]
    again = [f"{_nonce(random)} {document}\n\n{task}" for task in tasks]
    length = {"concurrency": 1, "context_tokens": _LONG}
    fresh = {**length, "cached_prefix": False, "repeated_prompt": False}
    hit = {**length, "cached_prefix": True, "repeated_prompt": True}
    return [
        Group("uncached", f"three prompts of about {_LONG} tokens, new to the cache", _streamed(first), fresh),
        Group("cached", "the same three again: their prefix is in the cache", _streamed(first), hit, "uncached"),
        Group("nonce", "the same three behind a new first word: no cache hit", _streamed(again), fresh, "uncached"),
    ]


def _streamed(prompts: Sequence[str]) -> tuple[Ask, ...]:
    return tuple(Ask(prompt, stream=True) for prompt in prompts)


def _nonce(random: Random) -> str:
    return f"[{random.getrandbits(48):012x}]"


def _document(random: Random, tokens: int) -> str:
    record = _texts()["record"]
    lines = (
        record.format(n=n, a=random.randrange(900), b=random.randrange(9000), c=random.randrange(90), d=n * 7 % 61)
        for n in range(1, tokens // _TOKENS_PER_RECORD + 1)
    )
    return "\n".join(lines)


@lru_cache(maxsize=1)
def _texts() -> dict[str, Any]:
    text = resources.files("draftproof.proof").joinpath("data/probe_prompts.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
