"""Counters of a serving engine in Prometheus text: one scrape gives totals since start, two give what lies between.

A counter that is lower in the second scrape was reset by a restart: everything it shows has happened since, as in
Prometheus' own ``increase``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from draftproof.errors import UnavailableError, UsageError
from draftproof.proof.runtime.logs import hide_secrets

MAX_BYTES = 64 << 20
_PREFIXES = ("vllm:", "llamacpp:", "draftproof:", "sglang:")
_ENGINES = {"vllm:": "vllm", "llamacpp:": "llama.cpp", "draftproof:": "draftproof", "sglang:": "sglang"}
_COUNTERS = {
    "num_drafts": ("spec_decode_num_drafts_total", "spec_verify_calls_total"),
    "num_draft_tokens": ("spec_decode_num_draft_tokens_total",),
    "num_accepted_tokens": ("spec_decode_num_accepted_tokens_total",),
    "prefix_cache_queries": ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
    "prefix_cache_hits": ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
    "generated_tokens": ("generation_tokens_total", "tokens_predicted_total"),
    "decode_seconds": ("tokens_predicted_seconds_total",),
    "ttft_sum": ("time_to_first_token_seconds_sum",),
    "ttft_count": ("time_to_first_token_seconds_count",),
}
_PER_POSITION = ("spec_decode_num_accepted_tokens_per_pos_total",)
_GAUGES = {
    "running": ("num_requests_running", "num_running_reqs", "requests_processing"),
    "kv_cache_usage": ("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage", "kv_cache_usage_ratio"),
    "accept_length": ("spec_accept_length",),
    "accept_rate": ("spec_accept_rate",),
    "hit_rate": ("cache_hit_rate",),
}
Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass
class Scrape:
    """Samples by name and labels; ``notes``: what was wrong with some of them."""

    name: str
    samples: dict[Key, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def engine(self) -> str | None:
        """Who wrote it, by the prefix of its metrics."""
        return next((_ENGINES[p] for p in _PREFIXES if any(name.startswith(p) for name, _ in self.samples)), None)


def parse(text: str, name: str) -> Scrape:
    """Raises UsageError for what is no Prometheus text (an HTML page, JSON, another file)."""
    from prometheus_client.parser import text_string_to_metric_families

    head = text.lstrip()[:200].lower()
    if head.startswith(("<!doctype", "<html")):
        raise UsageError(f"--metrics {name}: an HTML page, no Prometheus text; the path is usually /metrics")
    scrape = Scrape(name)
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                _take(scrape, sample.name, sample.labels, float(sample.value))
    except (ValueError, KeyError, IndexError) as error:
        if not scrape.samples:
            line = hide_secrets(" ".join(str(error).split())[:80])
            raise UsageError(f"--metrics {name}: no Prometheus text ({line})") from None
        scrape.notes.append(f"{name}: ends early, {len(scrape.samples)} samples read")
    return scrape


def _take(scrape: Scrape, name: str, labels: dict[str, str], value: float) -> None:
    if not name.startswith(_PREFIXES) or name.endswith(("_bucket", "_created")):
        return
    if math.isnan(value) or math.isinf(value) or value < 0:
        scrape.notes.append(f"{scrape.name}: {name} = {value:g} is no count and was left out")
        return
    scrape.samples[name, tuple(sorted(labels.items()))] = value


def increase(first: Scrape, second: Scrape) -> Scrape:
    """What was counted between two scrapes; gauges as in the second one."""
    found = Scrape(f"{first.name} → {second.name}", notes=[*first.notes, *second.notes])
    resets: set[str] = set()
    for key, value in second.samples.items():
        before = first.samples.get(key, 0.0)
        counter = key[0].endswith(("_total", "_sum", "_count"))
        if counter and value < before:
            resets.add(key[0])
        found.samples[key] = value if not counter or value < before else value - before
    if resets:
        found.notes.append(f"{sorted(resets)[0]} went backwards: a restart lies between; counted from there")
    return found


def metrics_of(scrape: Scrape) -> dict[str, object]:
    """In the words of a case: raw counts, summed over engines and models, and the averages that have no counts."""
    got = {field: total for field, names in _COUNTERS.items() if (total := _sum(scrape, names)) is not None}
    gauges = {field: value for field, names in _GAUGES.items() if (value := _mean(scrape, names)) is not None}
    found: dict[str, object] = {}
    for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens", "prefix_cache_hits", "prefix_cache_queries"):
        if name in got:
            found[name] = round(got[name])
    drafts, accepted, drafted = (got.get(n) for n in ("num_drafts", "num_accepted_tokens", "num_draft_tokens"))
    if drafts and accepted is not None:
        found["mean_acceptance_length"] = round(1 + accepted / drafts, 4)
        found["accepted_per_position"] = [round(count / drafts, 4) for count in _positions(scrape)]
    if drafted and accepted is not None:
        found["acceptance_rate"] = round(accepted / drafted, 5)
    if accepted is None and gauges.get("accept_length", 0) >= 1:  # SGLang: averages of the last interval
        found["mean_acceptance_length"] = gauges["accept_length"]
        if gauges.get("accept_rate"):
            found["acceptance_rate"] = gauges["accept_rate"]
    if "kv_cache_usage" in gauges:
        usage = gauges["kv_cache_usage"]
        found["kv_cache_usage"] = usage / 100 if usage > 1 else usage
    if "hit_rate" in gauges and "prefix_cache_hits" not in found:
        found["prefix_cache_hit_rate"] = gauges["hit_rate"]
    if got.get("decode_seconds") and got.get("generated_tokens"):
        found["tok_s"] = round(got["generated_tokens"] / got["decode_seconds"], 2)
    if got.get("ttft_count"):
        found["ttft_s"] = round(got.get("ttft_sum", 0.0) / got["ttft_count"], 4)
    if found.get("accepted_per_position") == []:
        del found["accepted_per_position"]
    return found


def running(scrape: Scrape) -> float | None:
    return _mean(scrape, _GAUGES["running"])


def _bare(name: str) -> str:
    return next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)


def _sum(scrape: Scrape, names: Sequence[str]) -> float | None:
    values = [value for (name, _), value in scrape.samples.items() if _bare(name) in names]
    return sum(values) if values else None


def _mean(scrape: Scrape, names: Sequence[str]) -> float | None:
    values = [value for (name, _), value in scrape.samples.items() if _bare(name) in names]
    return sum(values) / len(values) if values else None


def _positions(scrape: Scrape) -> list[float]:
    """Accepted tokens by position, summed over replicas; up to the last position anyone reports."""
    counts: dict[int, float] = {}
    for (name, labels), value in scrape.samples.items():
        position = dict(labels).get("position", "")
        if _bare(name) in _PER_POSITION and position.isdigit():
            counts[int(position)] = counts.get(int(position), 0.0) + value
    return [counts.get(i, 0.0) for i in range(max(counts) + 1)] if counts and max(counts) < 512 else []


def shown(url: str) -> str:
    """A URL as it may be reported: without user, password and query, which hold keys."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"


def fetch(url: str, *, key: str | None = None, timeout: float = 10.0) -> str:
    """The text behind a metrics URL. Raises UnavailableError with what the server did instead."""
    import httpx

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    name = shown(url)
    try:
        with httpx.stream("GET", url, headers=headers, timeout=timeout, follow_redirects=True) as response:
            if response.status_code != 200:
                more = "; give --api-key-env VAR" if response.status_code in (401, 403) else ""
                raise UnavailableError(f"--metrics {name}: HTTP {response.status_code}{more}")
            body = bytearray()
            for part in response.iter_bytes():
                body += part
                if len(body) > MAX_BYTES:
                    raise UnavailableError(f"--metrics {name}: more than {MAX_BYTES >> 20} MB; this is no metrics page")
    except httpx.TimeoutException:
        raise UnavailableError(f"--metrics {name}: no answer within {timeout:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UnavailableError(f"--metrics {name}: {type(error).__name__}; is the server running there?") from None
    return body.decode("utf-8", "replace")
