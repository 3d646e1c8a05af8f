"""The catalogue: every known way to wire a DFlash drafter wrongly, as a change to a healthy one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from draftproof.drafters.dflash import DFlashDrafter
from draftproof.drafters.spec import DrafterSpec, RopeSpec
from draftproof.proof.lab import faulty
from draftproof.proof.lab.wiring import Wiring
from draftproof.targets.base import Target

Change = Callable[[Wiring, Target], Wiring]
Unfit = Callable[[DrafterSpec], str | None]
BITS = 3  # of the badly quantised drafter
NOISE = 0.08  # of a fine-tuned target: standard deviation of a change, in those of the weights


@dataclass(frozen=True)
class Fault:
    """``code``: what diagnose calls it. ``change`` None: the fault lies outside the drafter, in ``plain_prompts``
    (no chat template), ``noisy_target`` or ``greedy_drafts`` (at temperature 1). ``unfit``: why it cannot show on
    this drafter. ``only``: the one condition it shows in, None: all. ``one_by_one``: needs requests after another."""

    name: str
    code: str
    says: str
    change: Change | None = None
    unfit: Unfit = lambda spec: None
    only: str | None = None
    plain_prompts: bool = False
    noisy_target: bool = False
    greedy_drafts: bool = False
    one_by_one: bool = False


def _made_by(make: type[DFlashDrafter]) -> Change:
    return lambda wiring, target: wiring.made_by(make)


def _taps(change: Callable[[tuple[int, ...], int], tuple[int, ...]]) -> Change:
    return lambda wiring, target: wiring.with_spec(tap_layers=change(wiring.spec.tap_layers, target.info.num_layers))


def _window_off_by_one(wiring: Wiring, target: Target) -> Wiring:
    return wiring.with_layers(lambda x: replace(x, window=x.window - 1) if x.window else x)


def _flip(sliding: bool) -> Change:
    return lambda wiring, target: wiring.with_layers(
        lambda x: replace(x, causal=not x.causal) if x.sliding == sliding else x
    )


def _rope(change: Callable[[RopeSpec], RopeSpec]) -> Change:
    return lambda wiring, target: wiring.with_spec(rope=change(wiring.spec.rope))


def _mask_token(wiring: Wiring, target: Target) -> Wiring:
    wrong = next(i for i in (*target.info.eos_token_ids, 0, 1) if i != wiring.spec.mask_token_id)
    return wiring.with_spec(mask_token_id=wrong).with_weights(mask_embedding=None)


def _random_head(wiring: Wiring, target: Target) -> Wiring:
    rows = wiring.spec.head_vocab_size
    random = torch.Generator().manual_seed(0)
    head = torch.randn(rows, wiring.spec.hidden_size, generator=random) * 0.02
    return wiring.with_weights(head=head.to(target.info.device, target.info.dtype))


def _overwritten_head(wiring: Wiring, target: Target) -> Wiring:
    """The target's first rows in place of the drafter's own, whose map stays."""
    rows = target.embedding[: wiring.spec.head_vocab_size].to(target.info.dtype).contiguous()
    return wiring.with_weights(head=rows)


def _unmapped(wiring: Wiring, target: Target) -> Wiring:
    ids = wiring.weights.draft_to_target
    return wiring.with_weights(draft_to_target=None if ids is None else torch.arange(len(ids), device=ids.device))


def rounded(matrix: Tensor) -> Tensor:
    """Rounded to ``BITS`` bits with one scale a row."""
    levels = 2 ** (BITS - 1) - 1
    scale = matrix.float().abs().amax(-1, keepdim=True).clamp(min=1e-12) / levels
    return ((matrix.float() / scale).round().clamp(-levels, levels) * scale).to(matrix.dtype)


def _no_sliding(spec: DrafterSpec) -> str | None:
    return None if any(x.sliding for x in spec.layers) else "it has no layer with a window"


def _no_full(spec: DrafterSpec) -> str | None:
    return "all its layers have a window" if all(x.sliding for x in spec.layers) else None


def _no_reduced(spec: DrafterSpec) -> str | None:
    return None if spec.draft_vocab_size else "it drafts from the whole vocabulary"


FAULTS: tuple[Fault, ...] = (
    Fault(
        "taps-one-early",
        "AUX_LAYER_OFFSET",
        "every tap is read one layer too early",
        _taps(lambda ids, n: tuple(max(i - 1, 0) for i in ids)),
    ),
    Fault(
        "taps-one-late",
        "AUX_LAYER_OFFSET",
        "every tap is read one layer too late",
        _taps(lambda ids, n: tuple(min(i + 1, n) for i in ids)),
    ),
    Fault(
        "taps-reordered",
        "DRAFT_PATH_DEFECT",
        "taps are joined in the opposite order",
        _taps(lambda ids, n: ids[::-1]),
        lambda spec: None if len(spec.tap_layers) > 1 else "it reads one tap",
    ),
    Fault(
        "last-tap-post-norm",
        "DRAFT_PATH_DEFECT",
        "the last tap is the target's output after its final norm",
        _taps(lambda ids, n: (*ids[:-1], n)),
    ),
    Fault(
        "window-ignored",
        "ENGINE_SWA_IGNORED",
        "layers with a window see everything",
        lambda w, t: w.with_layers(lambda x: replace(x, sliding=False, window=None)),
        _no_sliding,
    ),
    Fault("window-off-by-one", "ENGINE_SWA_IGNORED", "windows are one key short", _window_off_by_one, _no_sliding),
    Fault(
        "causality-flipped-sliding",
        "ENGINE_CAUSALITY_MISMATCH",
        "layers with a window look the other way inside the block",
        _flip(sliding=True),
        _no_sliding,
    ),
    Fault(
        "causality-flipped-full",
        "ENGINE_CAUSALITY_MISMATCH",
        "layers without a window look the other way inside the block",
        _flip(sliding=False),
        _no_full,
    ),
    Fault("anchor-masked", "DRAFT_PATH_DEFECT", "the anchor is one more mask", _made_by(faulty.AnchorMasked)),
    Fault("mask-token-wrong", "MASK_TOKEN_INVALID", "another token stands for the mask", _mask_token),
    Fault(
        "mask-row-zero",
        "MASK_EMBEDDING_NOT_LOADED",
        "the mask's embedding is empty",
        lambda w, t: w.with_weights(mask_embedding=torch.zeros_like(t.embedding[0])),
    ),
    Fault("positions-shifted", "DRAFT_PATH_DEFECT", "block rows are one position late", _made_by(faulty.Shifted)),
    Fault(
        "rope-base-wrong",
        "ROPE_MISMATCH",
        "RoPE's base is ten times too small",
        _rope(lambda r: replace(r, theta=r.theta / 10)),
    ),
    Fault(
        "rope-partial",
        "ROPE_MISMATCH",
        "half of each head is rotated",
        _rope(lambda r: replace(r, partial_rotary_factor=r.partial_rotary_factor / 2)),
    ),
    Fault("hidden-norm-skipped", "DRAFT_PATH_DEFECT", "hidden_norm is left out", _made_by(faulty.HiddenNormSkipped)),
    Fault(
        "context-normed-twice",
        "DRAFT_PATH_DEFECT",
        "context rows pass the layers' input norms",
        _made_by(faulty.ContextNormedTwice),
    ),
    Fault(
        "context-k-norm-first",
        "DRAFT_PATH_DEFECT",
        "context keys of all layers pass the first layer's k_norm",
        _made_by(faulty.ContextFirstKNorm),
        lambda spec: None if spec.num_layers > 1 else "it has one layer",
    ),
    Fault(
        "embedding-scaled",
        "GEMMA_SCALING_MISSING",
        "block inputs have the wrong scale",
        lambda w, t: w.with_spec(
            input_embedding_scale=1.0 if w.spec.input_embedding_scale != 1.0 else w.spec.hidden_size**0.5
        ),
    ),
    Fault("head-random", "LM_HEAD_NOT_SHARED", "the head was never loaded", _random_head),
    Fault(
        "head-overwritten",
        "LM_HEAD_OVERWRITTEN",
        "the target's first rows stand in for the drafter's own head",
        _overwritten_head,
        _no_reduced,
    ),
    Fault("vocabulary-unmapped", "D2T_MISSING", "d2t is not applied", _unmapped, _no_reduced),
    Fault(
        "cached-context-lost",
        "PREFIX_CACHE_DRAFT_KV",
        "a prefix hit brings back no drafter K/V",
        _made_by(faulty.CachedContextLost),
        only="cached",
    ),
    Fault(
        "last-block-lost",
        "PREFIX_CACHE_DRAFT_KV",
        "a prefix hit lacks the drafter K/V of its last block",
        _made_by(faulty.LastBlockLost),
        only="cached",
    ),
    Fault(
        "stale-rows",
        "DRAFT_PATH_DEFECT",
        "accepted rows keep the block's own K/V",
        _made_by(faulty.StaleRows),
    ),
    Fault(
        "state-leaks",
        "STATE_LEAK_BETWEEN_REQUESTS",
        "a request begins with the drafter's context of the one before",
        _made_by(faulty.Leaking),
        one_by_one=True,
    ),
    Fault("half-precision", "DRAFT_FP16_OVERFLOW", "context is made in float16", _made_by(faulty.HalfPrecision)),
    Fault(
        "quantised-badly",
        "QUANTIZED_DRAFTER_UNSUPPORTED",
        f"weights are rounded to {BITS} bits a row",
        lambda w, t: w.with_matrices(rounded),
    ),
    Fault(
        "drafts-greedy",
        "DRAFT_SAMPLE_GREEDY",
        "drafts are greedy while requests are sampled",
        only="sampled",
        greedy_drafts=True,
    ),
    Fault("template-missing", "WORKLOAD_SHIFT", "prompts come without chat template", plain_prompts=True),
    Fault("target-finetuned", "TARGET_IS_FINETUNE", "the target's weights have moved", noisy_target=True),
)
BY_NAME = {fault.name: fault for fault in FAULTS}
# Explanations that acceptance counts cannot tell apart for a reason that holds for every pair, with the reason.
SAME_EFFECT: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset({"healthy", "window-off-by-one"}),
        "one key at the far edge of a window carries too little weight to move acceptance",
    ),
    (
        frozenset({"head-random", "head-overwritten", "vocabulary-unmapped"}),
        "each makes the drafter name unrelated tokens: next to nothing is accepted, wherever and whenever",
    ),
)
