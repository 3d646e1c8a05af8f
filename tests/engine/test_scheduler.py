"""Who gets the rows of a pass."""

from __future__ import annotations

from draftproof import Engine, SamplingParams
from draftproof.engine.types import PrefillFinished
from support.tiny import VOCAB, tiny_drafter, tiny_model

LONG = [(7 * i + 3) % VOCAB for i in range(45)]


def test_drafts_leave_prompts_a_row_however_small_the_budget() -> None:
    running = Engine.from_model(
        tiny_model("llama"), None, tiny_drafter, length_policy="fixed", max_num_seqs=4, max_num_batched_tokens=6
    )
    for i in range(3):
        running.add_request(LONG[i : i + 2], SamplingParams(max_tokens=80))
    for _ in range(6):
        running.step()
    running.add_request(LONG[:10], SamplingParams(max_tokens=1), "late")
    events = [event for _ in range(10) for event in running.step()]
    assert [e.request_id for e in events if isinstance(e, PrefillFinished)] == ["late"]


def test_hits_count_what_was_not_computed() -> None:
    """A block known in part is not copied where there is no room for it and its source; then it is no hit."""
    running = Engine.from_model(tiny_model("llama"), block_size=8, max_model_len=32, kv_cache_gb=32 * 512 / 2**30)
    assert running.pool.num_blocks == 4 and running.prefix_cache is not None
    running.generate(LONG[:20], SamplingParams(max_tokens=12))
    running.add_request([1, 2], SamplingParams(max_tokens=6))
    running.step()
    assert running.pool.free_blocks == running.pool.kept_blocks == 3
    running.add_request([*LONG[:20], 1, 2], SamplingParams(max_tokens=1), "again")
    events = running.step()
    cached = [e.cached_tokens for e in events if isinstance(e, PrefillFinished) and e.request_id == "again"]
    assert cached == [running.prefix_cache.stats.hits] == [16]
