"""What a round's seconds are put down to."""

from __future__ import annotations

import time
from typing import Any

from draftproof import Engine, SamplingParams
from draftproof.engine.types import RoundFinished
from support.tiny import tiny_drafter, tiny_model


def test_taking_rows_back_is_a_cost_of_verification() -> None:
    """Recurrent layers run again over what stands; as host time it would make drafts look free."""
    running = Engine.from_model(tiny_model("qwen3_5"), None, lambda t: tiny_drafter(t), length_policy="fixed")
    inner = running.target.commit

    def commit(seq: int, rows: int, kept: int) -> None:
        if kept < rows:
            time.sleep(0.05)
        inner(seq, rows, kept)

    target: Any = running.target
    target.commit = commit
    events = list(running.stream([3, 14, 15], SamplingParams(max_tokens=12)))
    slow = [e.stats for e in events if isinstance(e, RoundFinished) and e.stats.accepted < e.stats.drafted]
    assert len(slow) > 3 and all(s.verify_s >= 0.05 > s.host_s for s in slow)
