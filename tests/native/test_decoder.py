"""NativeDecoder against Hugging Face models and against itself."""

import dataclasses

import pytest
import torch

from draftproof.native import LayerKV, LayerWeights, NativeDecoder, RowPlan
from native.reference import chain_plan, from_hf, ints, naive_attention, pools, tiny

CASES = [
    ("Llama", {}),
    ("Llama", {"attention_bias": True, "hidden_size": 60, "head_dim": 16, "intermediate_size": 75}),
    ("Qwen2", {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 3}),
    ("Qwen2", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
    ("Qwen3", {"hidden_size": 32, "num_attention_heads": 4}),
    ("Qwen3", {"hidden_size": 40, "head_dim": 24, "num_attention_heads": 3, "num_key_value_heads": 3}),
    (
        "Llama",
        {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "rope_theta": 1e4,
            }
        },
    ),
]


def run(decoder, embeddings, plan, kv=None, taps=()):
    dtype = decoder.dtype
    kv = kv or pools(decoder.num_layers, 200, decoder.num_kv_heads, decoder.head_dim, dtype)
    return decoder.forward(embeddings, plan, kv, taps)


@pytest.mark.parametrize("kind,changes", CASES, ids=lambda v: str(v)[:40])
def test_matches_hugging_face_in_float32(kind, changes):
    model = tiny(kind, **changes)
    decoder = from_hf(model, torch.float32)
    ids = torch.randint(0, 101, (1, 23))
    taps = [2, 0, 3, 1]
    with torch.no_grad():
        want = model(ids, output_hidden_states=True)
        hidden, tapped = run(decoder, model.model.embed_tokens(ids)[0], chain_plan(23), taps=taps)
        torch.testing.assert_close(model.lm_head(hidden), want.logits[0], rtol=1e-4, atol=1e-4)
    states = torch.cat([want.hidden_states[j][0] for j in taps], dim=1)
    torch.testing.assert_close(tapped, states, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Qwen3"])
def test_close_to_hugging_face_in_bfloat16(kind):
    model = tiny(kind).bfloat16()
    decoder = from_hf(model, torch.bfloat16)
    ids = torch.randint(0, 101, (1, 40))
    with torch.no_grad():
        want = model.float()(ids).logits[0]
        hidden, _ = run(decoder, model.model.embed_tokens(ids)[0].float(), chain_plan(40))
        got = model.lm_head(hidden)
    assert (got - want).norm() / want.norm() < 0.02


def test_steps_equal_prefill_bit_for_bit(two_threads):
    for dtype in (torch.float32, torch.bfloat16):
        model = tiny("Qwen3")
        decoder = from_hf(model, dtype)
        x = model.model.embed_tokens(torch.randint(0, 101, (150,))).detach()
        two_threads(1)
        slots = torch.randperm(200).int()
        whole, taps = run(decoder, x, chain_plan(150, slots=slots), taps=[1, 3])
        for threads in (1, 2, 3):
            two_threads(threads)
            kv = pools(3, 200, 2, 8, dtype)
            slots, at = torch.randperm(200).int(), 0
            while at < 150:
                n = int(torch.randint(1, 30, ()).clamp(max=150 - at))
                got, tapped = run(decoder, x[at : at + n], chain_plan(n, at, slots), kv, [1, 3])
                assert torch.equal(got, whole[at : at + n]) and torch.equal(tapped, taps[at : at + n])
                at += n


def _merge(plans):
    """One plan with the rows of several single-request plans."""
    width = max(p.table.shape[1] for p in plans)
    table = torch.zeros(len(plans), width, dtype=torch.int32)
    for i, p in enumerate(plans):
        table[i, : p.table.shape[1]] = p.table[0]
    request = torch.cat([torch.full_like(p.positions, i) for i, p in enumerate(plans)])
    joined = {n: torch.cat([getattr(p, n) for p in plans]) for n in ("positions", "slots", "visible")}
    return RowPlan(request=request, table=table, **joined)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_and_order_change_no_bit(dtype, two_threads):
    model = tiny("Llama")
    decoder = from_hf(model, dtype)
    lengths = [1, 30, 7, 90, 2]
    xs = [torch.randn(n, 48) for n in lengths]
    alone = [run(decoder, x, chain_plan(len(x)))[0] for x in xs]
    order = torch.randperm(200).int()
    plans, at = [], 0
    for n in lengths:
        plans.append(chain_plan(n, slots=order[at : at + n]))
        at += n
    plan, x, want = _merge(plans), torch.cat(xs), torch.cat(alone)
    for threads in (1, 2, 3):
        two_threads(threads)
        for pick in (torch.arange(at), torch.randperm(at)):
            names = ("positions", "slots", "visible", "request")
            shuffled = dataclasses.replace(plan, **{n: getattr(plan, n)[pick].contiguous() for n in names})
            got, _ = run(decoder, x[pick].contiguous(), shuffled)
            assert torch.equal(got, want[pick])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tree_equals_chains_bit_for_bit(dtype):
    """Each path of a random tree equals the same tokens decoded as a chain."""
    model = tiny("Llama")
    decoder = from_hf(model, dtype)
    prefix, nodes = 70, 30
    past = torch.randn(prefix, 48)
    x = torch.randn(nodes, 48)
    kv = pools(3, 200, 2, 8, dtype)
    run(decoder, past, chain_plan(prefix), kv)
    parent = [-1] + [int(torch.randint(-1, i, ())) for i in range(1, nodes)]
    slots = (torch.randperm(200 - prefix)[:nodes] + prefix).tolist()
    paths = [[0]]
    for i in range(1, nodes):
        paths.append((paths[parent[i]] if parent[i] >= 0 else []) + [i])
    tree = RowPlan(
        positions=ints([prefix + len(p) - 1 for p in paths]),
        slots=ints(slots),
        request=ints([0] * nodes),
        table=torch.arange(prefix, dtype=torch.int32)[None],
        visible=ints([prefix] * nodes),
        extra_ptr=ints([0, *torch.tensor([len(p) for p in paths]).cumsum(0).tolist()]),
        extra_slots=ints([slots[i] for p in paths for i in p]),
    )
    got, _ = run(decoder, x, tree, kv)
    for i, path in enumerate(paths):
        chain, _ = run(decoder, torch.cat([past, x[path]]), chain_plan(prefix + len(path)))
        assert torch.equal(got[i], chain[-1])


def test_append_context_matches_plain_formula():
    for kind, dtype, tolerance in (
        ("Qwen3", torch.float32, 1e-5),
        ("Qwen2", torch.float32, 1e-5),
        ("Qwen3", torch.bfloat16, 3e-2),
    ):
        model = tiny(kind)
        decoder = from_hf(model, dtype)
        dim = decoder.head_dim
        kv = pools(3, 60, 2, dim, dtype)
        x, positions = torch.randn(20, 48), torch.randint(0, 99, (20,)).int()
        slots = torch.randperm(60)[:20].int()
        slots[3] = -1
        decoder.append_context(x, positions, slots, kv)
        keep = slots >= 0
        with torch.no_grad():
            cos, sin = model.model.rotary_emb(x, positions[None].long())
            for (k_pool, v_pool, _), layer in zip(kv, model.model.layers, strict=True):
                k = layer.self_attn.k_proj(x).view(20, 2, dim)
                if hasattr(layer.self_attn, "k_norm"):
                    k = layer.self_attn.k_norm(k)
                turned = torch.cat([-k[..., dim // 2 :], k[..., : dim // 2]], -1)
                k = k * cos[0][:, None] + turned * sin[0][:, None]
                v = layer.self_attn.v_proj(x).view(20, 2, dim)
                at = slots[keep].long()
                torch.testing.assert_close(k_pool[at].float(), k[keep], rtol=tolerance, atol=tolerance)
                torch.testing.assert_close(v_pool[at].float(), v[keep], rtol=tolerance, atol=tolerance)
        assert kv[0][0].isnan().any(-1).any(-1).sum() == 60 - int(keep.sum())


def test_context_in_parts_changes_no_bit():
    decoder = from_hf(tiny("Qwen3"), torch.bfloat16)
    x, where = torch.randn(50, 48), torch.arange(50, dtype=torch.int32)
    whole, parts = (pools(3, 50, 2, 8, torch.bfloat16) for _ in range(2))
    decoder.append_context(x, where, where, whole)
    for piece in torch.randperm(50).split(7):
        decoder.append_context(x[piece].contiguous(), where[piece].contiguous(), where[piece].contiguous(), parts)
    assert all(torch.equal(a, b) for p, q in zip(whole, parts, strict=True) for a, b in zip(p[:2], q[:2], strict=True))


def test_bidirectional_block_sees_context_and_itself():
    """A DFlash block: context keys by append_context, then rows that see all."""
    model = tiny("Qwen3", num_hidden_layers=1)
    decoder = from_hf(model, torch.float32, bidirectional=True)
    kv = pools(1, 30, 2, 8, torch.float32)
    where = torch.arange(20, dtype=torch.int32)
    decoder.append_context(torch.randn(20, 48), where, where, kv)
    block = ints(list(range(20, 26)))
    plan = RowPlan(
        block, block, ints([0] * 6), torch.arange(26, dtype=torch.int32)[None], block + 1, visible_block=ints([26] * 6)
    )
    x = torch.randn(6, 48)
    got, _ = decoder.forward(x, plan, kv)
    layer = model.model.layers[0]
    with torch.no_grad():
        cos, sin = model.model.rotary_emb(x, block[None].long())
        q = layer.self_attn.q_norm(layer.self_attn.q_proj(layer.input_layernorm(x)).view(6, 6, 8))
        q = q * cos[0][:, None] + torch.cat([-q[..., 4:], q[..., :4]], -1) * sin[0][:, None]
        a = naive_attention(q, plan, *kv[0][:2], scale=8**-0.5, bidirectional=True).float()
        h = x + layer.self_attn.o_proj(a.reshape(6, 48))
        want = model.model.norm(h + layer.mlp(layer.post_attention_layernorm(h)))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_partial_rotation_leaves_the_rest():
    torch.manual_seed(0)
    kwargs = {
        "hidden_size": 16,
        "num_heads": 2,
        "num_kv_heads": 2,
        "head_dim": 8,
        "rms_eps": 1e-6,
        "rope_scaling": 1.0,
        "attn_scale": 1.0,
    }
    square = torch.eye(16)
    layer = LayerWeights(torch.ones(16), square, square, square, square, torch.ones(16), square, square, square)
    decoder = NativeDecoder([layer], inv_freq=torch.ones(2), final_norm=None, dtype=torch.float32, **kwargs)
    kv = pools(1, 1, 2, 8, torch.float32)
    x = torch.randn(1, 16)
    decoder.append_context(x, ints([1]), ints([0]), kv)
    k = kv[0][0].reshape(2, 8)
    assert torch.equal(k[:, 4:], x.view(2, 8)[:, 4:]) and not torch.allclose(k[:, :4], x.view(2, 8)[:, :4])


def test_bad_inputs():
    model = tiny("Llama")
    decoder = from_hf(model, torch.float32)
    kv, plan, x = pools(3, 10, 2, 8, torch.float32), chain_plan(4), torch.randn(4, 48)

    def fails(text, x=x, plan=plan, kv=kv, taps=()):
        with pytest.raises(ValueError, match=text):
            decoder.forward(x, plan, kv, taps)

    fails("x: expected shape", x=torch.randn(5, 48))
    fails("x: expected dtype", x=x.bfloat16())
    fails("taps: expected indices 0..3", taps=[4])
    fails("kv: expected 3 pairs, got 2", kv=kv[:2])
    fails(r"kv\[1\].v: expected shape", kv=[kv[0], LayerKV(kv[0].key, torch.zeros(9, 2, 8)), kv[2]])
    fails(r"kv\[0\].k: expected dtype", kv=pools(3, 10, 2, 8, torch.bfloat16))
    fails(r"slots\[2\]: expected -1 or 0..9, got 10", plan=dataclasses.replace(plan, slots=ints([0, 1, 10, 3])))
    fails(
        "table: expected slots",
        kv=pools(3, 3, 2, 8, torch.float32),
        plan=dataclasses.replace(plan, slots=ints([0, 1, 2, -1])),
    )
    with pytest.raises(ValueError, match=r"slots\[0\]"):
        decoder.append_context(x, plan.positions, ints([-2, 0, 1, 2]), kv)
    with pytest.raises(ValueError, match="slots: expected shape"):
        decoder.append_context(x, plan.positions, ints([0, 1]), kv)
    assert decoder.forward(torch.empty(0, 48), chain_plan(0), kv)[0].shape == (0, 48)
    good = {
        f.name: torch.ones(16, 16)
        for f in dataclasses.fields(LayerWeights)
        if f.name in ("q", "k", "v", "o", "gate", "up", "down")
    }
    norms = {"input_norm": torch.ones(16), "post_norm": torch.ones(16)}
    sizes = {
        "hidden_size": 16,
        "num_heads": 2,
        "num_kv_heads": 2,
        "head_dim": 8,
        "rms_eps": 1e-6,
        "rope_scaling": 1.0,
        "attn_scale": 1.0,
        "final_norm": None,
    }
    with pytest.raises(ValueError, match=r"layers\[0\].o: expected shape \[16, 16\], got \[16, 8\]"):
        NativeDecoder(
            [LayerWeights(**{**good, **norms, "o": torch.ones(16, 8)})],
            inv_freq=torch.ones(4),
            dtype=torch.float32,
            **sizes,
        )
    with pytest.raises(ValueError, match="inv_freq: expected at most"):
        NativeDecoder([LayerWeights(**good, **norms)], inv_freq=torch.ones(5), dtype=torch.float32, **sizes)
