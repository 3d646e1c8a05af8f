"""Prometheus metrics under the names that vLLM set and llama.cpp followed, with our own prefix.

Counters hold raw counts; rates are for whoever reads them. ``spec_decode_*`` counts as vLLM does: a draft is a round
in which something was drafted, position k (from 0) counts the rounds that accepted more than k tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from draftproof.engine.engine import Engine
from draftproof.engine.types import (
    Event,
    LengthChosen,
    PrefillFinished,
    RequestFinished,
    RequestPreempted,
    RoundFinished,
    TokensCommitted,
)

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
_STEP_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Metrics:
    """One registry per server, so that several in one process do not collide."""

    def __init__(self, engine: Engine, model_name: str) -> None:
        self.registry = CollectorRegistry()
        self._engine = engine
        self._model = model_name
        self.mean_request_s = 1.0  # running mean, for Retry-After
        self._spec_metrics()
        self._request_metrics()
        self._engine_gauges()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        made = Counter(f"draftproof:{name}", text, ["model_name", *labels], registry=self.registry)
        return made if labels else made.labels(self._model)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        made = Histogram(f"draftproof:{name}", text, ["model_name", *labels], registry=self.registry, buckets=buckets)
        return made if labels else made.labels(self._model)

    def _spec_metrics(self) -> None:
        self._drafts = self._counter("spec_decode_num_drafts", "Rounds in which something was drafted.")
        self._plain_rounds = self._counter("spec_decode_num_rounds_without_draft", "Rounds without drafts.")
        self._draft_tokens = self._counter("spec_decode_num_draft_tokens", "Drafted tokens.")
        self._accepted = self._counter("spec_decode_num_accepted_tokens", "Drafted tokens the target agreed with.")
        self._per_position = self._counter(
            "spec_decode_num_accepted_tokens_per_pos", "Rounds that accepted more than this many tokens.", "position"
        )
        drafter = self._engine.drafter
        for position in range(drafter.num_draft_tokens if drafter else 0):
            self._per_position.labels(self._model, str(position))
        self._lengths = self._histogram(
            "policy_draft_length", "Draft lengths that the policy changed to.", (0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32)
        )

    def _request_metrics(self) -> None:
        self._prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts read, cached ones included.")
        self._tokens = self._counter("generation_tokens", "Tokens committed.")
        self._preemptions = self._counter("num_preemptions", "Requests that gave their blocks back.")
        self._finished = self._counter("request_success", "Answers that ended.", "finished_reason")
        self._ended = self._counter("requests", "Requests that ended.", "outcome")
        self._http = self._counter("http_responses", "Responses by route and status.", "route", "status")
        self._ttft = self._histogram("time_to_first_token_seconds", "Arrival to first token.", _SECONDS)
        self._queued = self._histogram("request_queue_time_seconds", "Arrival to first pass.", _SECONDS)
        self._e2e = self._histogram("e2e_request_latency_seconds", "Arrival to end.", _SECONDS)
        self._per_token = self._histogram(
            "time_per_output_token_seconds", "First token to last, per token.", _STEP_SECONDS
        )
        self._step = self._histogram("step_seconds", "One pass of the engine, by part.", _STEP_SECONDS, "part")

    def _engine_gauges(self) -> None:
        engine, pool, cache = self._engine, self._engine.pool, self._engine.prefix_cache

        def gauge(name: str, text: str, value: Callable[[], float]) -> None:
            made = Gauge(f"draftproof:{name}", text, ["model_name"], registry=self.registry)
            made.labels(self._model).set_function(value)

        gauge("num_requests_running", "Answers in the batch.", lambda: len(engine.scheduler.running))
        gauge("num_requests_waiting", "Answers waiting.", lambda: len(engine.scheduler.waiting))
        gauge("kv_cache_usage_perc", "Share of blocks in use, 0 to 1.", lambda: 1 - pool.free_blocks / pool.num_blocks)
        if cache is not None:
            self._cache_counters = {
                "queries": self._counter("prefix_cache_queries", "Prompt tokens asked for."),
                "hits": self._counter("prefix_cache_hits", "Prompt tokens found."),
                "evictions": self._counter("prefix_cache_evictions", "Blocks forgotten."),
            }
            self._cache_seen = dict.fromkeys(self._cache_counters, 0)

    # -- what happens -------------------------------------------------------------------------------------

    def on_step(self, events: Sequence[Event], seconds: float) -> None:
        """One step of the engine; in its thread."""
        told = False
        for event in events:
            match event:
                case TokensCommitted():
                    self._tokens.inc(len(event.token_ids))
                case RoundFinished():
                    self._on_round(event)
                    if not told:  # the times are the whole pass's, told to each of its requests
                        told = True
                        for part in ("draft", "verify", "host"):
                            self._step.labels(self._model, part).observe(getattr(event.stats, f"{part}_s"))
                case PrefillFinished():
                    self._prompt_tokens.inc(event.prompt_tokens)
                case LengthChosen():
                    self._lengths.observe(event.length)
                case RequestPreempted():
                    self._preemptions.inc()
                case RequestFinished():
                    self._finished.labels(self._model, event.reason).inc()
        self._step.labels(self._model, "all").observe(seconds)
        cache = self._engine.prefix_cache
        if cache is not None:
            for name, counter in self._cache_counters.items():
                now = getattr(cache.stats, name)
                counter.inc(now - self._cache_seen[name])
                self._cache_seen[name] = now

    def _on_round(self, event: RoundFinished) -> None:
        stats = event.stats
        if not stats.drafted:
            self._plain_rounds.inc()
            return
        self._drafts.inc()
        self._draft_tokens.inc(stats.drafted)
        self._accepted.inc(stats.accepted)
        for position in range(stats.accepted):
            self._per_position.labels(self._model, str(position)).inc()

    def first_token(self, seconds: float, queued_s: float) -> None:
        self._ttft.observe(seconds)
        self._queued.observe(queued_s)

    def request_ended(self, outcome: str, seconds: float, decoding_s: float, tokens: int) -> None:
        self._ended.labels(self._model, outcome).inc()
        self._e2e.observe(seconds)
        self.mean_request_s += 0.1 * (seconds - self.mean_request_s)
        if tokens > 1:
            self._per_token.observe(max(decoding_s, 0.0) / (tokens - 1))

    def responded(self, route: str, status: int) -> None:
        self._http.labels(self._model, route, str(status)).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)
