"""Faults put into a running vLLM on purpose, each the way a real release or port has had it. For tests only.

Runs in vLLM's own environment and imports nothing of draftproof. Two kinds: those that must be there while the model
is built (``AT_LOAD``, by ``register`` from ``DRAFTPROOF_TEST_FAULTS``, names joined by commas), and those that can be
switched on and off in a live engine (``LIVE``, context managers).
"""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

VARIABLE = "DRAFTPROOF_TEST_FAULTS"
OLD_NAME = "_get_eagle3_aux_layers_from_config"
OLD_SOURCE = "DRAFTPROOF_TEST_OLD_RUNNER"  # gpu_model_runner.py of the release whose layer ids are wanted


# -- while the model is built -----------------------------------------------------------------------------


def window_ignored() -> None:
    """0.20 to 0.24: no layer has a window, whatever layer_types says."""
    module = importlib.import_module("vllm.model_executor.models.qwen3_dflash")
    own = module._resolve_layer_attention
    module._resolve_layer_attention = lambda config, index: (None, own(config, index)[1])


def non_causal() -> None:
    """0.20 to 0.22: every layer looks both ways inside the block."""
    module = importlib.import_module("vllm.model_executor.models.qwen3_dflash")
    module._dflash_layer_causal = lambda config, index: False


def causal() -> None:
    """The opposite: no layer does."""
    module = importlib.import_module("vllm.model_executor.models.qwen3_dflash")
    module._dflash_layer_causal = lambda config, index: True


def old_layer_ids() -> None:
    """The very function of the release whose file ``DRAFTPROOF_TEST_OLD_RUNNER`` names, in place of this one's."""
    runner = importlib.import_module("vllm.v1.worker.gpu_model_runner")
    setattr(runner.GPUModelRunner, OLD_NAME, old_function())


def old_function() -> Callable[[Any], Any]:
    """Cut out of the old release's source, which would not import here."""
    source = Path(os.environ[OLD_SOURCE]).read_text(encoding="utf-8")
    found = next(n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef) and n.name == OLD_NAME)
    found.returns, found.decorator_list = None, []
    space: dict[str, Any] = {}
    exec(compile(ast.Module([found], []), "old_runner", "exec"), space)
    return space[OLD_NAME]


AT_LOAD: dict[str, Callable[[], None]] = {
    "window-ignored": window_ignored,
    "non-causal": non_causal,
    "causal": causal,
    "old-layer-ids": old_layer_ids,
}


def register() -> None:
    """The plugin's entry point: in each of vLLM's processes, before a model is built."""
    for name in filter(None, os.environ.get(VARIABLE, "").split(",")):
        AT_LOAD[name]()


# -- in a live engine -------------------------------------------------------------------------------------


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """``owner.name`` is ``value`` for a while."""
    own = name in vars(owner)
    before = getattr(owner, name)
    object.__setattr__(owner, name, value)
    try:
        yield
    finally:
        if own:
            object.__setattr__(owner, name, before)
        else:
            object.__delattr__(owner, name)


@contextlib.contextmanager
def overwritten(tensor: torch.Tensor, value: Any) -> Iterator[None]:
    before = tensor.clone()
    tensor.copy_(torch.as_tensor(value, dtype=tensor.dtype).expand_as(tensor))
    try:
        yield
    finally:
        tensor.copy_(before)


def _taps(choose: Callable[[Any, tuple[int, ...]], Any]) -> Callable[[Any], Any]:
    """``choose(runner, right ids)``: the ids that the target hands out instead."""

    @contextlib.contextmanager
    def moved(runner: Any) -> Iterator[None]:
        model = runner.get_model()
        before = model.model.aux_hidden_state_layers
        model.set_aux_hidden_state_layers(tuple(choose(runner, before)))
        try:
            yield
        finally:
            model.set_aux_hidden_state_layers(before)

    return moved


def _given(change: Callable[[list[Any], Any], list[Any]]) -> Callable[[Any], Any]:
    """``change(taps, final hidden states)`` of what the runner hands to the drafter."""

    def fault(runner: Any) -> Any:
        own = runner.propose_draft_token_ids

        def propose(output: Any, sampled: Any, metadata: Any, hidden: Any, sample: Any, aux: Any, *more: Any) -> Any:
            return own(output, sampled, metadata, hidden, sample, change(list(aux), hidden), *more)

        return replaced(runner, "propose_draft_token_ids", propose)

    return fault


def _inputs(change: Callable[[Any, int, int], None]) -> Callable[[Any], Any]:
    """``change(drafter, block rows, rows per request)`` after the block's inputs are laid out."""

    def fault(runner: Any) -> Any:
        drafter = runner.drafter
        own = drafter.set_inputs_first_pass

        def lay_out(**given: Any) -> Any:
            found = own(**given)
            change(drafter, found[0], drafter.num_speculative_tokens + 1)
            return found

        return replaced(drafter, "set_inputs_first_pass", lay_out)

    return fault


def _anchor_masked(drafter: Any, rows: int, each: int) -> None:
    drafter.input_ids[0:rows:each] = drafter.parallel_drafting_token_id


def _positions_shifted(drafter: Any, rows: int, each: int) -> None:
    drafter.positions[:rows] += 1


def _windows(runner: Any, change: Callable[[int], int]) -> contextlib.ExitStack:
    """Windows of the drafter's layers as its CPU attention counts them; -1: none."""
    stack = contextlib.ExitStack()
    for layer in runner.drafter.model.model.layers:
        impl = layer.self_attn.attn.impl
        stack.enter_context(replaced(impl, "sliding_window", change(impl.sliding_window)))
    for group in runner.drafter.draft_attn_groups:
        builder = group.get_metadata_builder()
        stack.enter_context(replaced(builder, "window_size", change(builder.window_size)))
    return stack


def window_short(runner: Any) -> Any:
    return _windows(runner, lambda window: window - 1)


def window_ignored_live(runner: Any) -> Any:
    """Keys that have left the window must stay in the cache, or there is nothing to see."""
    stack = _windows(runner, lambda window: -1)
    managers = importlib.import_module("vllm.v1.core.single_type_kv_cache_manager")
    manager = managers.SlidingWindowManager
    own = manager.get_num_skipped_tokens
    manager.get_num_skipped_tokens = lambda self, computed: 0
    stack.callback(setattr, manager, "get_num_skipped_tokens", own)
    return stack


def old_ids(runner: Any) -> Any:
    return _taps(lambda runner, ids: old_function()(runner))(runner)


def old_release(runner: Any) -> Any:
    """All that 0.20.1 does: its own layer ids, every layer full and looking both ways."""
    stack = contextlib.ExitStack()
    stack.enter_context(old_ids(runner))
    stack.enter_context(window_ignored_live(runner))
    stack.enter_context(replaced(runner.drafter, "dflash_causal", False))
    return stack


def direction_flipped(runner: Any) -> Any:
    return replaced(runner.drafter, "dflash_causal", not runner.drafter.dflash_causal)


def mask_token_wrong(runner: Any) -> Any:
    return replaced(runner.drafter, "parallel_drafting_token_id", 2)


def mask_row_zero(runner: Any) -> Any:
    drafter = runner.drafter
    return overwritten(drafter.model.model.embed_tokens.weight.data[drafter.parallel_drafting_token_id], 0.0)


def rope_base_wrong(runner: Any) -> Any:
    inner, stack = runner.drafter.model.model, contextlib.ExitStack()
    wrong = copy.deepcopy(inner.layers[0].self_attn.rotary_emb)
    wrong.base /= 10
    wrong.cos_sin_cache = wrong._compute_cos_sin_cache().to(inner._rope_cos_sin_cache)
    for layer in inner.layers:
        own = layer.self_attn.rotary_emb
        layer.self_attn.rotary_emb = wrong
        stack.callback(setattr, layer.self_attn, "rotary_emb", own)
    stack.enter_context(replaced(inner, "_rope_cos_sin_cache", wrong.cos_sin_cache))
    return stack


def _projection(rows: Callable[[Any, torch.Tensor, int], torch.Tensor]) -> Callable[[Any], Any]:
    """Context keys and values of ``rows(inner, fused taps, layer)`` instead of the normed ones."""

    def fault(runner: Any) -> Any:
        inner = runner.drafter.model.model

        def project(states: torch.Tensor, count: int, layers: int, heads: int, width: int) -> Any:
            parts = inner._fused_kv_weight.view(layers, -1, inner._fused_kv_weight.shape[-1])
            both = [F.linear(rows(inner, states, i), parts[i]).view(count, 2, heads, width) for i in range(layers)]
            joined = torch.stack(both).permute(2, 0, 1, 3, 4).contiguous()
            return joined[0], joined[1]

        return replaced(inner, "_project_context_kv", project)

    return fault


def k_norm_mended(runner: Any) -> Any:
    """No fault, the opposite: 0.32.0's CPU kernel gives every layer's context keys the first layer's k_norm, since it
    knows no weight per layer. Here each layer gets its own."""
    inner = runner.drafter.model.model

    def normalize(keys: torch.Tensor) -> torch.Tensor:
        weights = inner._k_norm_weights
        return torch.stack([_normed(keys[i], weights[i], inner._rms_norm_eps) for i in range(len(weights))])

    return replaced(inner, "_normalize_context_k", normalize)


def _normed(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def _twice(inner: Any, states: torch.Tensor, i: int) -> torch.Tensor:
    once = _normed(states, inner._hidden_norm_weight, inner._rms_norm_eps)
    return _normed(once, inner.layers[i].input_layernorm.weight.data, inner._rms_norm_eps)


def _head(make: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    """``make(own head, the target's embedding)`` computes the logits and lies in memory."""

    @contextlib.contextmanager
    def fault(runner: Any) -> Iterator[None]:
        head = runner.drafter.model.lm_head
        table = runner.get_model().model.embed_tokens.weight.data
        wrong = make(head.weight.data, table).to(head.weight.dtype)
        with overwritten(head.weight.data, wrong), contextlib.ExitStack() as stack:
            if hasattr(head, "cpu_linear"):  # packed: its kernel has a copy of its own
                stack.enter_context(replaced(head, "cpu_linear", lambda x, weight, bias: F.linear(x, wrong)))
            yield

    return fault


def _random_head(own: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    return torch.randn(own.shape, generator=torch.Generator().manual_seed(1)) * 0.02


def unmapped(runner: Any) -> Any:
    return overwritten(runner.drafter.model.draft_id_to_target_id.data, 0)


def embedding_scaled(runner: Any) -> Any:
    inner = runner.drafter.model.model
    own, scale = inner.embed_input_ids, float(inner.config.hidden_size) ** 0.5
    return replaced(inner, "embed_input_ids", lambda ids: own(ids) * scale)


LIVE: dict[str, Callable[[Any], Any]] = {
    "k-norm-mended": k_norm_mended,
    "taps-one-early": _taps(lambda runner, ids: [i - 1 for i in ids]),
    "taps-one-late": _taps(lambda runner, ids: [i + 1 for i in ids]),
    "old-layer-ids": old_ids,
    "old-release": old_release,
    "window-ignored": window_ignored_live,
    "taps-reordered": _given(lambda taps, hidden: taps[::-1]),
    "last-tap-post-norm": _given(lambda taps, hidden: [*taps[:-1], hidden[: taps[0].shape[0]]]),
    "window-off-by-one": window_short,
    "causality-flipped-sliding": direction_flipped,
    "causality-flipped-full": direction_flipped,
    "anchor-masked": _inputs(_anchor_masked),
    "positions-shifted": _inputs(_positions_shifted),
    "mask-token-wrong": mask_token_wrong,
    "mask-row-zero": mask_row_zero,
    "rope-base-wrong": rope_base_wrong,
    "hidden-norm-skipped": _projection(lambda inner, states, i: states),
    "context-normed-twice": _projection(_twice),
    "head-random": _head(_random_head),
    "head-overwritten": _head(lambda own, table: table[: own.shape[0]].clone()),
    "vocabulary-unmapped": unmapped,
    "embedding-scaled": embedding_scaled,
}
