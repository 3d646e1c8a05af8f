"""How large an engine is: longest request, blocks of the pool, rows of a pass; with the arithmetic where it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from draftproof.drafters.base import Drafter
from draftproof.engine.memory import KVShape, PoolSizes, divide_memory
from draftproof.engine.options import EngineOptions
from draftproof.errors import UsageError
from draftproof.targets.base import Target

_CPU_ROWS = 256  # a pass of this many rows takes a fraction of a second: what a running answer may have to wait
_DEVICE_ROWS = 2048
MOST_WAITING = 32  # committed rows of a request that may wait for their context K/V


@dataclass(frozen=True)
class EngineSizes:
    """``max_rows``: rows of a pass; ``ahead``: most rows of one request's round beyond its committed tokens;
    ``limited_by``: what ``max_model_len`` comes from, and what to do about it."""

    max_model_len: int
    max_rows: int
    ahead: int
    tree_budget: int
    pool: PoolSizes
    limited_by: str = "max_model_len; shorten the prompt"
    note: str = ""


def engine_sizes(target: Target, drafter: Drafter | None, options: EngineOptions) -> EngineSizes:
    """Divide ``kv_cache_gb``; raises :class:`UsageError` if not even one request fits."""
    wanted = options.max_model_len or target.info.max_position
    if wanted > target.info.max_position:
        raise UsageError(f"max_model_len={wanted} exceeds the target's {target.info.max_position} positions")
    drafted = drafter.num_draft_tokens if drafter else 0
    tree_budget = options.tree_budget or max(drafted, 1)
    ahead = 1 + max(tree_budget, drafted) if drafter else 1
    max_rows = _max_rows(target, options)
    shapes: Sequence[KVShape] = [*target.kv_shapes, *(drafter.kv_shapes if drafter else ())]
    size = options.block_size
    most = -(-(wanted + ahead) // size) * options.max_num_seqs
    # Inside a window stand, per sequence, the window itself, rows that wait for their context K/V and a round's
    # rows; as much again for cached prefixes.
    windows = sorted({s.window for s in shapes if s.window is not None})
    window_blocks = {
        w: min(most, 2 * options.max_num_seqs * (-(-(w + ahead + MOST_WAITING) // size) + 2) + -(-max_rows // size))
        for w in windows
    }
    budget = int(options.kv_cache_gb * 2**30)
    pool = divide_memory(
        budget, shapes, target.info.dtype, block_size=size, most_blocks=most, window_blocks=window_blocks
    )
    max_model_len = min(wanted, pool.blocks * size)
    per_token = sum(s.bytes_per_token(target.info.dtype) for s in shapes)
    if max_model_len < 2:
        raise UsageError(
            f"kv_cache_gb={options.kv_cache_gb} holds {pool.blocks} blocks of {size} tokens "
            f"({per_token} bytes a token): too small for one request"
        )
    made = EngineSizes(max_model_len, max_rows, ahead, tree_budget, pool)
    if max_model_len == wanted:
        return made
    holds = f"kv_cache_gb={options.kv_cache_gb} holds {pool.blocks} blocks of {size} tokens ({per_token} bytes a token)"
    return replace(
        made,
        limited_by=f"{holds}; raise it or shorten the prompt",
        note=f"context limited to {max_model_len} tokens by kv_cache_gb={options.kv_cache_gb}",
    )


def _max_rows(target: Target, options: EngineOptions) -> int:
    default = _CPU_ROWS if target.info.device.type == "cpu" else _DEVICE_ROWS
    rows = options.max_num_batched_tokens or max(default, 2 * options.max_num_seqs)
    if rows < options.max_num_seqs:
        raise UsageError(
            f"max_num_batched_tokens={rows} is below max_num_seqs={options.max_num_seqs}: every running request needs "
            "a row in each pass"
        )
    return rows
