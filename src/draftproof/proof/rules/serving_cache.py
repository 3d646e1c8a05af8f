"""SERVING: the prefix cache, and what is left over from one request to the next."""

from __future__ import annotations

from draftproof.proof.case import Case, Observation
from draftproof.proof.comparing import comparisons, fact, with_drafter
from draftproof.proof.findings import Finding
from draftproof.proof.quantities import acceptance, number
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.rules.runtime_symptoms import is_low, is_zero
from draftproof.proof.rules.saying import CANDIDATE, COUNTED, PRIMARY, PUBLISHED, ask, both, logged, named, seen

_BLOCK_METHODS = {"dflash", "dflash2", "dspark"}
_FAILED = {"crash", "http_400", "http_500", "load_error", "oom"}
_FINE_WORDS = {"ok", "normal", "unchanged"}
_BAD_OUTPUT = {"corrupt", "degenerate_repetition", "reasoning_truncated", "tool_arguments_mangled"}
_MANY_QUERIES = 10_000


def failed(observation: Observation) -> bool:
    return observation.metrics.get("outcome") in _FAILED


def bad(case: Case, observation: Observation) -> bool | None:
    """Did the requests fail, or come out wrong, or get garbage drafts? None if nothing is said about it."""
    broken, it = broken_output(observation), acceptance(case, observation)
    if broken:
        return True
    if it.known:
        return is_zero(it) or is_low(it)
    if broken is False:
        return False
    return {"normal": False, "unchanged": None, None: None}.get(it.said, True)


def broken_output(observation: Observation) -> bool | None:
    """Did requests fail or come out wrong, acceptance aside? None if nothing is said about it."""
    metrics = observation.metrics
    if failed(observation) or metrics.get("output") in _BAD_OUTPUT:
        return True
    right, total = number(metrics, "tool_calls_ok"), number(metrics, "tool_calls_total")
    if right is not None and total:
        return right < 0.9 * total
    reported = metrics.get("tool_calls_reported")
    if reported is not None:
        return reported not in _FINE_WORDS
    fine = metrics.get("outcome") == "ok" or metrics.get("output") in ("ok", "text_correct")
    return False if fine else None


@rule(
    "PREFIX_CACHE_DISABLED_BY_DRAFTER",
    "SERVING",
    "error",
    meaning="With the drafter the prefix cache never hits.",
    derived=(
        "prefix_cache_hits 0 with 10000 queries or more although prompts repeat or hits are normal without the "
        "drafter; or hit rate 0 while normal without the drafter; or TTFT of a repeated prompt at least 3x that "
        "without the drafter and no hits; or log 'no KV cache group could be identified as the draft model's ... "
        "reuse across requests will be disabled'"
    ),
    remedy="Newer engine, another method, or no drafter for cached traffic.",
    probe="TTFT of a repeated prompt with and without the drafter.",
    sources=(
        "vllm#50457",
        "vllm#57032",
        "z-lab#165",
        "vllm#54360",
        "vllm#33270",
    ),
)
def prefix_cache_disabled_by_drafter(case: Case, earlier: frozenset[str]) -> Said:
    code = "PREFIX_CACHE_DISABLED_BY_DRAFTER"
    line = logged(case, "no KV cache group could be identified", "reuse across requests will be disabled")
    if line is not None:
        yield Finding(code, "error", COUNTED, "The engine says so: no prefix is reused with this drafter.", (line,))
        return
    if case.primary is None or not _no_hits(case.primary):
        return
    metrics = case.primary.metrics
    keys = ("prefix_cache_hits", "prefix_cache_queries", "prefix_cache_hit_rate", "ttft_s")
    evidence = tuple(case.evidence(f"{PRIMARY}.{key}", f"{key} = {metrics[key]}") for key in keys if key in metrics)
    for one in comparisons(case):
        if one.other.conditions.get("drafter") is not False:
            continue
        wait, other = number(metrics, "ttft_s"), number(one.other.metrics, "ttft_s")
        slow = wait is not None and other is not None and wait >= 3 * other and bool(fact(case, "repeated_prompt"))
        if _hits_normal(one.other) or slow:
            says = f"With the drafter no prefix is reused; without it ({named(one)}) prefixes are."
            yield Finding(
                code, "error", COUNTED, says, (*evidence, case.evidence(one.where, str(dict(one.other.metrics))))
            )
            return
    queries = number(metrics, "prefix_cache_queries")
    if queries is not None and queries >= _MANY_QUERIES and fact(case, "repeated_prompt"):
        says = f"{queries:g} tokens were looked up, prompts repeat, and nothing was found."
        yield Finding(code, "error", PUBLISHED, says, evidence)
    elif queries is not None and queries >= _MANY_QUERIES:
        yield Finding(code, "error", CANDIDATE, f"{queries:g} tokens were looked up and nothing was found.", evidence)
        yield ask("whether prompts repeat", "the same prompt twice, with and without the drafter (--endpoint URL)")


def _no_hits(observation: Observation) -> bool:
    hits, rate = (number(observation.metrics, key) for key in ("prefix_cache_hits", "prefix_cache_hit_rate"))
    return hits == 0 or (hits is None and rate == 0)


def _hits_normal(observation: Observation) -> bool:
    hits, rate = (number(observation.metrics, key) for key in ("prefix_cache_hits", "prefix_cache_hit_rate"))
    return observation.metrics.get("prefix_cache_reported") == "normal" or bool(hits) or bool(rate)


@rule(
    "PREFIX_CACHE_DRAFT_KV",
    "SERVING",
    "error",
    meaning=(
        "Draft context KV is missing for tokens restored from the cache; drafts there read garbage or the request "
        "fails."
    ),
    derived=(
        "dflash, dflash2 or dspark, and ACCEPTANCE_DROPS_ON_CACHE_HIT; or a failure only with cached_prefix true "
        "while other methods and uncached runs are fine. Not if most cached prompts are fine"
    ),
    remedy="Disable prefix caching or mask the restored tokens.",
    probe="Same prompt twice; AL against the cached length.",
    sources=(
        "vllm#47930",
        "vllm#47926",
        "llama.cpp#27342",
        "tokenspeed#1025",
    ),
    stage=2,
)
def prefix_cache_draft_kv(case: Case, earlier: frozenset[str]) -> Said:
    first = case.primary
    if first is None or case.method not in _BLOCK_METHODS or not fact(case, "cached_prefix"):
        return
    runs = [one for one in comparisons(case) if with_drafter(case, one.other)]
    fine = [one for one in runs if bad(case, one.other) is False]
    if any(fact(case, "cached_prefix", one.other) is True and "method" not in one.axes for one in fine):
        return  # most cached prompts are fine: not a missing cache but a rarer fault
    if "ACCEPTANCE_DROPS_ON_CACHE_HIT" in earlier:  # only what this run computed itself has draft K/V
        says = "Drafts are lost exactly where the prompt comes from the cache: the drafter has no context K/V there."
        evidence = seen(case)
        for one in runs:
            if one.only("cache", "request"):
                evidence = both(case, one)
        yield Finding("PREFIX_CACHE_DRAFT_KV", "error", COUNTED, says, evidence)
    elif failed(first) and any(one.only("cache", "request") for one in fine):
        says = "Requests fail only when part of the prompt comes from the cache."
        evidence = (case.evidence(f"{PRIMARY}.outcome", f"outcome = {first.metrics.get('outcome')}"),)
        yield Finding("PREFIX_CACHE_DRAFT_KV", "error", PUBLISHED, says, evidence)


@rule(
    "PREFIX_CACHE_CORRUPTION",
    "SERVING",
    "warning → error if output fails only with speculation and prefix cache together",
    meaning=(
        "Cached blocks are wrong when speculation is on: tool calls or text degrade after hits, or acceptance of "
        "frequent prompts sinks until a restart."
    ),
    derived=(
        "2x2 comparison (speculation, prefix caching) in which only both together fail after hits; warning: "
        "ACCEPTANCE_DROPS_OVER_TIME for frequent prompts with prefix caching on"
    ),
    remedy="Disable one of the two; upgrade.",
    probe="Fresh server, then the same agent run three times.",
    sources=(
        "vllm#43559",
        "vllm#48375",
        "vllm#41838",
    ),
    stage=2,
)
def prefix_cache_corruption(case: Case, earlier: frozenset[str]) -> Said:
    first = case.primary
    if first is None or not _caching(case, first) or not with_drafter(case, first):
        return
    if broken_output(first):
        fine = [one for one in comparisons(case) if broken_output(one.other) is False]
        plain = [one for one in fine if not with_drafter(case, one.other) and one.only("drafter", "cache", "request")]
        plain = [one for one in plain if _caching(case, one.other)]
        uncached = [one for one in fine if one.only("cache", "request") and not _caching(case, one.other)]
        if plain and uncached:
            says = (
                f"Only speculation and prefix cache together fail: {named(plain[0])} and {named(uncached[0])} are fine."
            )
            evidence = (case.evidence(PRIMARY, str(dict(first.metrics))),)
            yield Finding("PREFIX_CACHE_CORRUPTION", "error", COUNTED, says, evidence)
            return
        if plain and not uncached:
            yield ask("the same requests with prefix caching off", "--no-enable-prefix-caching, then compare")
    if "ACCEPTANCE_DROPS_OVER_TIME" in earlier and fact(case, "prefix_caching") is True:
        frequent = _frequent(case)
        says = "Acceptance sinks until a restart, with the prefix cache on."
        sure = PUBLISHED if frequent else CANDIDATE
        yield Finding("PREFIX_CACHE_CORRUPTION", "warning", sure, says, seen(case))
        if not frequent:
            yield ask("whether the prompts that lose acceptance are frequent ones", "AL by prompt, early and late")


def _caching(case: Case, observation: Observation) -> bool:
    return fact(case, "prefix_caching", observation) is True or fact(case, "cached_prefix", observation) is True


def _frequent(case: Case) -> bool:
    words = " ".join(str(fact(case, name) or "") for name in ("prompts", "dataset")).lower()
    types = number(case.workload, "num_prompt_types")
    return bool(fact(case, "repeated_prompt")) or any(w in words for w in ("frequent", "repeat")) or (types or 99) <= 10


@rule(
    "STATE_LEAK_BETWEEN_REQUESTS",
    "SERVING",
    "error",
    meaning="State of the drafter survives a request.",
    derived="the first request is fine, a later different one fails or drafts garbage (request_index)",
    remedy="Reset the drafter at request start; upgrade.",
    probe="Two different requests in a row.",
    sources=(
        "llama.cpp#22105",
        "beellama#28",
    ),
)
def state_leak_between_requests(case: Case, earlier: frozenset[str]) -> Said:
    first = case.primary
    index = number(first.conditions, "request_index") if first is not None else None
    if first is None or index is None or index < 2 or not bad(case, first):
        return
    for one in comparisons(case):
        before = number(one.other.conditions, "request_index")
        if before is not None and before < index and one.only("request") and bad(case, one.other) is False:
            says = f"Request {before:g} is fine, request {index:g} fails: something of the drafter outlives a request."
            evidence = (
                case.evidence(PRIMARY, str(dict(first.metrics))),
                case.evidence(one.where, str(dict(one.other.metrics))),
            )
            yield Finding("STATE_LEAK_BETWEEN_REQUESTS", "error", COUNTED, says, evidence)
            return
