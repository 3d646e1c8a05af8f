"""Logs and counters as observations of a case, each fact with the place it was read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from draftproof.proof.case import Case, Observation
from draftproof.proof.runtime.logs import LogFacts
from draftproof.proof.runtime.prometheus import Scrape, metrics_of, running
from draftproof.proof.runtime.startup import Startup
from draftproof.proof.runtime.tally import Sum


def from_log(facts: LogFacts) -> tuple[list[Observation], dict[str, str]]:
    """Observations (the state to judge first) and the origins of their facts, relative to the first one."""
    tally = facts.tally
    metrics: dict[str, Any] = tally.total.metrics()
    if tally.total.estimated:
        metrics.pop("num_draft_tokens", None)  # made from an average and an interval: no counter
        metrics.pop("num_accepted_tokens", None)
    metrics |= {name: facts.load[name] for name in ("kv_cache_usage", "prefix_cache_hit_rate") if name in facts.load}
    if facts.eval_ms and facts.eval_tokens:
        metrics["tok_s"] = round(1000 * facts.eval_tokens / facts.eval_ms, 2)
    elif tally.tok_s[1]:
        metrics["tok_s"] = round(tally.tok_s[0] / tally.tok_s[1], 2)
    conditions: dict[str, Any] = {"concurrency": round(tally.running_most)} if tally.running_most else {}
    lines = tuple(line for line, _ in facts.lines)
    names = ", ".join(facts.names)
    origins = {f"log.{i}": place for i, (_, place) in enumerate(facts.lines)}
    origins["metrics"] = _span(names, tally.total)
    fell = tally.step_to_zero()
    if fell is None:
        return [Observation(f"log {names}", conditions, metrics, lines)], origins
    before, after = fell
    late = Observation(f"log {names}, end", conditions | {"uptime": "hours"}, after.metrics(), lines)
    return [late, Observation(f"log {names}, start", conditions | {"uptime": "start"}, before.metrics())], origins


def _span(names: str, total: Sum) -> str:
    return f"{names}:{total.first_line}-{total.last_line} ({total.windows} windows)" if total.windows else names


def from_scrape(scrape: Scrape) -> tuple[Observation, dict[str, str]]:
    conditions: dict[str, Any] = {}
    streams = running(scrape)
    if streams is not None and streams >= 1:
        conditions["concurrency"] = round(streams)
    return Observation(f"metrics {scrape.name}", conditions, metrics_of(scrape)), {"metrics": scrape.name}


def with_startup(case: Case, startup: Startup) -> Case:
    """What a server said of itself fills what the case does not know yet; what was given on the command line stays."""
    engine, drafter = case.engine, case.drafter
    origins = dict(case.origins)
    options = {**startup.options, **engine.options}
    origins |= {f"engine.{name}": place for name, place in startup.places.items() if name.startswith("options.")}
    for name in ("engine", "version"):
        if name in startup.places:
            origins.setdefault({"engine": "engine.name", "version": "engine.version"}[name], startup.places[name])
    if startup.gguf and drafter.config is None:
        drafter = replace(drafter, config={"gguf": startup.gguf, "_truncated": True})
        origins["drafter.config"] = startup.places.get("drafter.config", "")
    own = engine.name is None
    engine = replace(
        engine,
        name=engine.name or startup.engine,
        version=engine.version or (startup.version if own or engine.name == startup.engine else None),
        options=options,
    )
    k = case.k if case.k is not None else startup.k
    return replace(case, engine=engine, drafter=drafter, method=case.method or startup.method, k=k, origins=origins)


def add(case: Case, observations: list[Observation], origins: Mapping[str, str]) -> Case:
    """Observations go to the end; the first ones of a case are the state to judge."""
    index = len(case.observations)
    placed = {f"observations.{index}.{path}": place for path, place in origins.items()}
    return replace(case, observations=(*case.observations, *observations), origins={**case.origins, **placed})
