"""What is measured before the first request."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof import Engine, SamplingParams
from draftproof.drafters.base import Draft
from draftproof.engine.cost import CostCurve
from support.tiny import naive_greedy, tiny_drafter, tiny_model

PROMPT = [3, 14, 15]


class Raises:
    """A drafter that never works."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def propose(self, pool: Any, requests: Any) -> list[Draft]:
        raise RuntimeError("no weights")


def test_a_drafter_that_cannot_be_measured_is_tried_and_told_of() -> None:
    """Under the adaptive policy it must not just look too dear to be asked."""
    running = Engine.from_model(tiny_model("llama"), None, lambda t: Raises(tiny_drafter(t)))
    running.core.costs.target = CostCurve([(1, 1.0), (64, 1.001)])  # whatever disturbed this machine
    (output,) = running.generate(PROMPT, SamplingParams(max_tokens=60))
    assert output.token_ids == naive_greedy(tiny_model("llama"), PROMPT, 60)
    assert output.warnings == ["the drafter failed (no weights); going on without drafts"]


@pytest.mark.parametrize(("streams", "rows"), [(1, [2, 8]), (4, [8, 32]), (16, [8, 32, 128])])
def test_the_curve_of_drafts_has_a_slope_for_one_stream_too(streams: int, rows: list[int]) -> None:
    running = Engine.from_model(tiny_model("llama"), None, tiny_drafter, max_num_seqs=streams)
    assert [r for r, _ in running.core.costs.draft.points()] == rows
    assert running.scheduler.idle and running.pool.free_blocks == running.pool.num_blocks
