"""What the page shows while the server works: raw counts since the start and a short window of speed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from draftproof.engine.engine import Engine
from draftproof.engine.types import Event, LengthChosen, RoundFinished, TokensCommitted

_WINDOW_S = 10.0
_RECENT_ROUNDS = 400


class Live:
    """``on_step`` in the engine's thread, ``snapshot`` from any: every field is replaced whole or only counted up."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rounds: deque[tuple[int, int]] = deque(maxlen=_RECENT_ROUNDS)  # depth, accepted
        self._tokens: deque[tuple[float, int]] = deque(maxlen=20_000)
        self._choice: dict[str, Any] = {"length": None, "reason": ""}
        self.tokens = 0

    def on_step(self, events: Sequence[Event], seconds: float) -> None:
        now, tokens = perf_counter(), 0
        for event in events:
            match event:
                case TokensCommitted():
                    tokens += len(event.token_ids)
                case RoundFinished():
                    self._rounds.append((event.stats.depth, event.stats.accepted))
                case LengthChosen():
                    self._choice = {"length": event.length, "reason": event.reason}
        if tokens:
            self.tokens += tokens
            self._tokens.append((now, tokens))

    def snapshot(self) -> dict[str, Any]:
        every = self._rounds.copy()
        rounds = [(depth, accepted) for depth, accepted in every if depth]
        deepest = max((depth for depth, _ in rounds), default=0)
        engine, pool, cache = self._engine, self._engine.pool, self._engine.prefix_cache
        return {
            "tokens": self.tokens,
            "tokens_per_s": self._rate(),
            "rounds": len(rounds),
            "tau": 1 + sum(accepted for _, accepted in rounds) / len(rounds) if rounds else None,
            "accepted_at_least": [sum(accepted > k for _, accepted in rounds) for k in range(deepest)],
            "drafted_per_round": sum(depth for depth, _ in every) / len(every) if every else None,
            "policy": self._choice if engine.drafter else None,
            "running": len(engine.scheduler.running),
            "waiting": len(engine.scheduler.waiting),
            "kv_used": 1 - pool.free_blocks / pool.num_blocks,
            "cache": {"queries": cache.stats.queries, "hits": cache.stats.hits} if cache else None,
        }

    def _rate(self) -> float:
        """Tokens a second over the last seconds in which anything came."""
        now = perf_counter()
        recent = [(at, n) for at, n in self._tokens.copy() if now - at < _WINDOW_S]
        if len(recent) < 2:
            return 0.0
        return sum(n for _, n in recent[1:]) / max(now - recent[0][0], 1e-3)
