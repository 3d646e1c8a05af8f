"""Reference implementations and model conversion for the kernel tests."""

import math

import torch

from draftproof.native import LayerKV, LayerWeights, NativeDecoder, RowPlan


def ints(values):
    return torch.tensor(values, dtype=torch.int32)


def naive_keys(plan, r, window, bidirectional):
    """[(slot, logical position)] visible to row r."""
    use_block = bidirectional and plan.visible_block is not None
    count = int((plan.visible_block if use_block else plan.visible)[r])
    keys = [(int(plan.table[int(plan.request[r]), k]), k) for k in range(count)]
    if plan.extra_ptr is not None:
        lo, hi = int(plan.extra_ptr[r]), int(plan.extra_ptr[r + 1])
        keys += [(int(plan.extra_slots[e]), count + e - lo) for e in range(lo, hi)]
    p = int(plan.positions[r])
    return [
        (slot, k) for slot, k in keys if window is None or (p - k < window and (not bidirectional or k - p < window))
    ]


def naive_attention(q, plan, k_pool, v_pool, *, scale, window=None, softcap=None, sinks=None, bidirectional=False):
    rows, heads, dim = q.shape
    group = heads // k_pool.shape[1]
    out = torch.zeros(rows, heads, dim, dtype=torch.float64)
    for r in range(rows):
        slots = [slot for slot, _ in naive_keys(plan, r, window, bidirectional)]
        if not slots:
            continue
        for h in range(heads):
            k = k_pool[slots, h // group].double()
            v = v_pool[slots, h // group].double()
            s = (k @ q[r, h].double()) * scale
            if softcap is not None:
                s = softcap * torch.tanh(s / softcap)
            if sinks is not None:
                s = torch.cat([s, sinks[h].double()[None]])
            p = torch.softmax(s, 0)
            out[r, h] = p[: len(slots)] @ v
    return out


def chain_plan(rows, start=0, slots=None):
    """Rows start..start+rows-1 of one request, each seeing itself and the past."""
    total = start + rows
    slots = torch.arange(total, dtype=torch.int32) if slots is None else slots[:total]
    pos = torch.arange(start, total, dtype=torch.int32)
    return RowPlan(
        pos, slots[start:].contiguous(), torch.zeros(rows, dtype=torch.int32), slots[None].contiguous(), pos + 1
    )


def pools(layers, num_slots, kv_heads, dim, dtype):
    """Pools full of NaN: reading a slot that was never written shows."""
    return [
        LayerKV(*(torch.full((num_slots, kv_heads, dim), math.nan, dtype=dtype) for _ in "kv")) for _ in range(layers)
    ]


def from_hf(model, dtype, *, bidirectional=False):
    """NativeDecoder of a Llama, Qwen2 or Qwen3 causal LM."""
    cfg, layers = model.config, []
    windows = getattr(cfg, "layer_types", None) or []
    for i, layer in enumerate(model.model.layers):
        att, mlp = layer.self_attn, layer.mlp

        def bias(module):
            return None if module.bias is None else module.bias.detach()

        def norm(name, att=att):
            return getattr(att, name).weight.detach() if hasattr(att, name) else None

        sliding = i < len(windows) and windows[i] == "sliding_attention"
        layers.append(
            LayerWeights(
                input_norm=layer.input_layernorm.weight.detach(),
                q=att.q_proj.weight.detach().to(dtype),
                k=att.k_proj.weight.detach().to(dtype),
                v=att.v_proj.weight.detach().to(dtype),
                o=att.o_proj.weight.detach().to(dtype),
                post_norm=layer.post_attention_layernorm.weight.detach(),
                gate=mlp.gate_proj.weight.detach().to(dtype),
                up=mlp.up_proj.weight.detach().to(dtype),
                down=mlp.down_proj.weight.detach().to(dtype),
                q_bias=bias(att.q_proj),
                k_bias=bias(att.k_proj),
                v_bias=bias(att.v_proj),
                o_bias=bias(att.o_proj),
                q_norm=norm("q_norm"),
                k_norm=norm("k_norm"),
                window=cfg.sliding_window if sliding else None,
                bidirectional=bidirectional,
            )
        )
    rotary = model.model.rotary_emb
    head_dim = getattr(cfg, "head_dim", None) or cfg.hidden_size // cfg.num_attention_heads
    return NativeDecoder(
        layers,
        hidden_size=cfg.hidden_size,
        num_heads=cfg.num_attention_heads,
        num_kv_heads=cfg.num_key_value_heads,
        head_dim=head_dim,
        rms_eps=cfg.rms_norm_eps,
        inv_freq=rotary.inv_freq,
        rope_scaling=float(rotary.attention_scaling),
        attn_scale=head_dim**-0.5,
        final_norm=model.model.norm.weight.detach(),
        dtype=dtype,
    )


def tiny(kind, **changes):
    """A seeded tiny model with norms and biases that are not trivial."""
    import transformers

    sizes = {
        "hidden_size": 48, "intermediate_size": 88, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "vocab_size": 101, "max_position_embeddings": 512, "head_dim": 8,
    }  # fmt: skip
    sizes.update(changes)
    if kind == "Qwen2":
        sizes.pop("head_dim")
    torch.manual_seed(7)
    model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**sizes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            elif "bias" in name:
                parameter.normal_(0, 0.2)
            else:
                parameter.normal_(0, 0.15)
    return model
