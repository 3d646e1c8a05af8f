"""attention() against a plain loop."""

import dataclasses

import pytest
import torch

from draftproof.native import RowPlan, attention
from native.reference import chain_plan, ints, naive_attention

VARIANTS = [
    {},
    {"window": 1},
    {"window": 70},
    {"softcap": 2.0},
    {"sinks": True},
    {"window": 5, "softcap": 3.0, "sinks": True},
    {"window": 40, "bidirectional": True},
    {"bidirectional": True},
]
HEADS = [(1, 1, 8), (3, 1, 16), (6, 2, 24), (9, 3, 64), (4, 4, 80), (10, 1, 128)]


def random_plan(rows, requests, slots, longest, *, extras, block):
    """Rows of several requests at random lengths over scattered slots."""
    generator = torch.Generator().manual_seed(rows * 31 + longest)

    def below(n, *shape):
        return torch.randint(0, n, shape, generator=generator, dtype=torch.int32)

    request = below(requests, rows).sort().values
    table = torch.stack([torch.randperm(slots, generator=generator)[:longest] for _ in range(requests)]).int()
    visible = below(longest + 1, rows)
    plan = RowPlan(visible.clone(), below(slots, rows), request, table, visible)
    if extras:
        counts = below(9, rows)
        plan.extra_ptr = torch.cat([ints([0]), counts.cumsum(0).int()])
        plan.extra_slots = below(slots, int(counts.sum()))
        plan.positions = visible + counts
    if block:
        plan.visible_block = (visible + below(8, rows)).clamp(max=longest)
    return plan


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("heads,kv_heads,dim", HEADS)
def test_matches_plain_loop(heads, kv_heads, dim, options):
    torch.manual_seed(3)
    options = dict(options, scale=dim**-0.5)
    if options.get("sinks"):
        options["sinks"] = torch.randn(heads)
    pool = torch.randn(2, 700, kv_heads, dim)
    for rows, longest, requests in ((1, 600, 1), (11, 90, 3), (5, 300, 2)):
        for extras in (False, True):
            block = options.get("bidirectional", False) and not extras
            plan = random_plan(rows, requests, 700, longest, extras=extras, block=block)
            for dtype, tolerance in ((torch.float32, 2e-5), (torch.bfloat16, 2e-2)):
                q, (k, v) = torch.randn(rows, heads, dim).to(dtype), pool.to(dtype)
                got = attention(q, plan, k, v, **options)
                assert got.dtype == dtype
                want = naive_attention(q, plan, k, v, **options)
                torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)


def test_row_without_keys_is_zero():
    plan = chain_plan(3)
    plan.visible = ints([0, 1, 0])
    q, pool = torch.randn(3, 2, 8), torch.randn(3, 1, 8)
    for sinks in (None, torch.zeros(2)):
        out = attention(q, plan, pool, pool, scale=1.0, sinks=sinks)
        assert out[0].abs().max() == 0 and out[2].abs().max() == 0 and out[1].abs().max() > 0


def test_unused_slots_are_not_read():
    pool = torch.full((2, 90, 1, 8), torch.nan)
    pool[:, :70] = torch.randn(2, 70, 1, 8)
    out = attention(torch.randn(70, 2, 8), chain_plan(70), pool[0], pool[1], scale=1.0)
    assert out.isfinite().all()


def _take(plan, rows):
    """The plan with only the given rows, in that order."""
    parts = {n: getattr(plan, n)[rows].contiguous() for n in ("positions", "slots", "request", "visible")}
    if plan.extra_ptr is not None:
        lists = [plan.extra_slots[plan.extra_ptr[r] : plan.extra_ptr[r + 1]] for r in rows.tolist()]
        parts["extra_ptr"] = ints([0, *torch.tensor([len(x) for x in lists]).cumsum(0).tolist()])
        parts["extra_slots"] = torch.cat(lists)
    return dataclasses.replace(plan, **parts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("extras", [False, True])
def test_rows_are_independent_of_company_and_threads(dtype, extras, two_threads):
    torch.manual_seed(4)
    plan = random_plan(40, 3, 900, 800, extras=extras, block=False)
    q, (k, v) = torch.randn(40, 6, 16).to(dtype), torch.randn(2, 900, 2, 16).to(dtype)
    options = {"scale": 0.25, "window": 500}
    two_threads(1)
    alone = torch.cat([attention(q[r : r + 1], _take(plan, ints([r]).long()), k, v, **options) for r in range(40)])
    for threads in (1, 2, 3):
        two_threads(threads)
        for rows in (1, 2, 3, 8, 9, 17, 40):
            pick = torch.randperm(40)[:rows]
            assert torch.equal(attention(q[pick].contiguous(), _take(plan, pick), k, v, **options), alone[pick])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extras_equal_table(dtype):
    """The same logical keys give the same bits through the table or as extras."""
    torch.manual_seed(5)
    k, v = torch.randn(2, 400, 2, 16).to(dtype)
    q = torch.randn(1, 4, 16).to(dtype)
    slots = torch.randperm(400)[:300].int()
    for split in (0, 1, 63, 64, 100, 256, 299, 300):
        zero = ints([0])
        plan = RowPlan(
            ints([299]), zero, zero, slots[None, :split].contiguous(), ints([split]),
            extra_ptr=ints([0, 300 - split]), extra_slots=slots[split:].contiguous(),
        )  # fmt: skip
        whole = RowPlan(ints([299]), zero, zero, slots[None].contiguous(), ints([300]))
        for window in (None, 120):
            a = attention(q, plan, k, v, scale=0.3, window=window)
            assert torch.equal(a, attention(q, whole, k, v, scale=0.3, window=window))


def test_bad_inputs():
    q, pool = torch.randn(4, 2, 8), torch.randn(10, 1, 8)

    def fails(text, changes=None, *, q=q, k=pool, v=pool, **options):
        plan = dataclasses.replace(chain_plan(4), **(changes or {}))
        with pytest.raises(ValueError, match=text):
            attention(q, plan, k, v, **{"scale": 1.0, **options})

    fails("q: expected shape", q=torch.randn(3, 2, 8))
    fails("k_pool: expected dtype", k=pool.bfloat16())
    fails("v_pool: expected shape", v=torch.randn(9, 1, 8))
    fails("num_heads: expected a multiple", q=torch.randn(4, 3, 8), k=torch.randn(10, 2, 8), v=torch.randn(10, 2, 8))
    fails(
        "head_dim: expected a multiple of 8",
        q=torch.randn(4, 2, 4),
        k=pool[..., :4].contiguous(),
        v=pool[..., :4].contiguous(),
    )
    fails("window: expected None or at least 1", window=0)
    fails("softcap: expected", softcap=-1.0)
    fails("sinks: expected shape", sinks=torch.zeros(3))
    fails(r"table: expected slots 0..9", {"table": ints([[0, 1, 10, 3]])})
    fails(r"visible\[3\]: expected 0..4, got 5", {"visible": ints([1, 2, 3, 5])})
    fails(r"request\[1\]: expected 0..0, got -1", {"request": ints([0, -1, 0, 0])})
    fails("positions: expected dtype", {"positions": torch.arange(4)})
    fails(r"positions\[0\]: expected 0 or more", {"positions": ints([-1, 0, 0, 0])})
    fails("visible: expected shape", {"visible": ints([1, 2, 3])})
    fails("extra_ptr, extra_slots: expected both", {"extra_ptr": ints([0] * 5)})
    fails(r"extra_ptr\[4\]", {"extra_ptr": ints([0, 0, 0, 0, 2]), "extra_slots": ints([1])})
    fails(r"extra_slots\[0\]: expected 0..9, got 10", {"extra_ptr": ints([0, 0, 0, 0, 1]), "extra_slots": ints([10])})
    fails(
        "visible_block: expected None",
        {"extra_ptr": ints([0] * 5), "extra_slots": ints([]), "visible_block": ints([1] * 4)},
    )
