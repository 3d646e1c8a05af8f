"""Mask token, vocabulary map and the tensors of the checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator

from draftproof.proof import tensors
from draftproof.proof.case import Case
from draftproof.proof.engines import engines
from draftproof.proof.findings import Finding, Question
from draftproof.proof.judging import CANDIDATE, CERTAIN, LIKELY, healthy, log_lines
from draftproof.proof.layouts import DFLASH_FAMILY, drafter_method, layout_of, target_integer, target_text
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.versions import engine_name

_UNCLAIMED_LOG = re.compile(r"\b(\d+ )?(unclaimed|unexpected) (tensors?|keys?|weights?)", re.IGNORECASE)
_EXTRA = re.compile(r"aux\w*_norm|g_proj|attention_sink_bias")
_QUANTISED_HEAD = re.compile(r"^(mtp\..+)\.(qweight|scales|weight_scale|qzeros|weight_packed)$")


@rule(
    "MASK_TOKEN_INVALID",
    "FILES",
    "error",
    meaning="The mask token id is missing or lies outside the embedding table.",
    derived="mask_token_id < 0 or ≥ the rows of the embedding (padding included); or no mask_token_id, mask_token or "
    "dspark_noise_token_id in a complete config. An id in the padded rows is legal.",
    remedy="Set the id used in training.",
    probe="Compare with the special ids of the target's tokenizer and the number of embedding rows.",
    sources=("Model-Optimizer#1621", "dflash-mlx model.py"),
)
def mask_token_invalid(case: Case, earlier: frozenset[str]) -> Said:
    layout = layout_of(case)
    if drafter_method(case) not in DFLASH_FAMILY:
        return
    mask = layout.mask
    if mask is None:
        if layout.complete:
            yield Finding(
                "MASK_TOKEN_INVALID",
                "error",
                CERTAIN,
                "the config names no mask token (mask_token_id, mask_token or dspark_noise_token_id)",
                (case.evidence("drafter.config", "no mask token"),),
            )
        return
    where = case.evidence(f"drafter.config.{mask.path}", f"{mask.path}={_short(mask.value)}")
    if type(mask.value) is not int:
        if not (isinstance(mask.value, str) and mask.path.endswith("mask_token")):
            says = f"{mask.path}={_short(mask.value)} is not a token id"
            yield Finding("MASK_TOKEN_INVALID", "error", CERTAIN, says, (where,))
        return
    rows, whose = _embedding_rows(case)
    if mask.value < 0 or (rows is not None and mask.value >= rows):
        limit = f"the {whose} has {rows} rows" if rows is not None else "ids start at 0"
        says = f"{mask.path}={mask.value} is outside the embedding table: {limit}"
        yield Finding("MASK_TOKEN_INVALID", "error", CERTAIN, says, (where,))


def _embedding_rows(case: Case) -> tuple[int | None, str]:
    """The drafter embeds with its own table if it ships one, else with the target's."""
    own = tensors.shape(case, "embed_tokens.weight")
    if own is not None and len(own) == 2:
        return own[0], "drafter's embedding"
    target = target_integer(case, "vocab_size")
    if target is not None:
        return target, "target's vocabulary"
    return layout_of(case).vocab_size, "drafter's vocabulary"


@rule(
    "MASK_TOKEN_IS_SPECIAL",
    "FILES",
    "warning",
    meaning="The mask id is also eos, bos or pad; it works only if the drafter was trained that way.",
    derived="mask_token_id is one of eos_token_id, bos_token_id, pad_token_id of the drafter or of the target's "
    "config. A low id alone is not enough.",
    remedy="Confirm with the training config; pin a reserved id when training anew.",
    probe="Look for early stops in the drafts.",
    sources=("SpecForge longcat config", "Model-Optimizer#1621"),
)
def mask_token_is_special(case: Case, earlier: frozenset[str]) -> Said:
    layout = layout_of(case)
    mask = layout.mask
    if mask is None or type(mask.value) is not int:
        return
    hits = []
    for key in ("eos_token_id", "bos_token_id", "pad_token_id"):
        own = layout.find(key)
        target = target_text(case).get(key, (case.target.config or {}).get(key))
        for value, place in ((own.value if own else None, "drafter"), (target, "target")):
            if mask.value in (value if isinstance(value, list | tuple) else [value]):
                path = f"drafter.config.{own.path}" if place == "drafter" and own else f"target.config.{key}"
                hits.append((key.removesuffix("_token_id"), place, path))
    if hits:
        names = ", ".join(f"{key} of the {place}" for key, place, _ in hits)
        yield Finding(
            "MASK_TOKEN_IS_SPECIAL",
            "warning",
            CERTAIN,
            f"mask token {mask.value} is also {names}",
            tuple(case.evidence(path, f"{key} token {mask.value}") for key, _, path in hits),
        )


@rule(
    "D2T_MISSING",
    "FILES",
    "error",
    meaning="A reduced draft vocabulary without the table that maps it to target ids.",
    derived="draft_vocab_size < vocab_size, and d2t or the drafter's own lm_head.weight is known to be absent "
    "(complete tensor list, or a reading that says so). A config without a tensor list proves nothing.",
    remedy="Put d2t (and t2d) into the checkpoint.",
    probe="List the tensor names of the index file.",
    sources=("Automodel#2447", "SpecForge configs"),
)
def d2t_missing(case: Case, earlier: frozenset[str]) -> Said:
    layout = layout_of(case)
    if not layout.reduced_vocabulary:
        return
    missing = [name for name in ("d2t", "lm_head.weight") if tensors.absent(case, name)]
    if not missing:
        if case.drafter.tensors is None and not tensors.reported_absent(case):
            yield Question("which tensors the drafter has", "draftproof check DRAFTER, with the weights at hand")
        return
    sizes = f"{layout.draft_vocab_size} of {layout.vocab_size}" if layout.draft_vocab_size else "a part of the"
    yield Finding(
        "D2T_MISSING",
        "error",
        CERTAIN,
        f"drafts from {sizes} tokens but the checkpoint has no {' and no '.join(missing)}",
        (
            case.evidence("drafter.config.draft_vocab_size", "reduced vocabulary"),
            case.evidence("drafter.tensors", f"no {', '.join(missing)}"),
        ),
    )


@rule(
    "UNCLAIMED_TENSORS",
    "FILES",
    "error",
    meaning="The checkpoint holds tensors that the engine does not load or does not apply, or holds them in a form "
    "that the loader skips.",
    derived="A load message with unclaimed or unexpected tensors; or names such as *aux_norm*, g_proj, "
    "attention_sink_bias on an engine without them; or mtp.*.qweight or scales while mtp.*.weight is absent.",
    remedy="Use an engine that knows the tensors, or an export that keeps the head unquantised.",
    probe="Print missing and unexpected keys at load; compare the RMS of the taps before fc with the reference.",
    sources=("ROCmFPX#44", "club-3090 Tess row", "local-inference-lab#9"),
)
def unclaimed_tensors(case: Case, earlier: frozenset[str]) -> Said:
    for confidence, says, path in _unclaimed(case):
        yield Finding("UNCLAIMED_TENSORS", "error", confidence, says, (case.evidence(path, says),))
        return  # the strongest reason is enough


def _unclaimed(case: Case) -> Iterator[tuple[float, str, str]]:
    for index, seen in enumerate(case.observations):
        count = seen.metrics.get("unclaimed_tensors")
        if isinstance(count, int) and count > 0:
            yield CERTAIN, f"{count} tensors were not claimed at load", f"observations[{index}].metrics"
    for name in sorted(tensors.names(case)):
        found = _QUANTISED_HEAD.match(name)
        plain = f"{found[1]}.weight" if found else ""
        if found and plain not in tensors.names(case) and (tensors.absent(case, plain) or len(tensors.names(case)) > 1):
            yield CERTAIN, f"{name} is there and {plain} is not: loaders skip it", f"drafter.tensors.{name}"
    for place, line in log_lines(case):
        count = _UNCLAIMED_LOG.search(line)
        if count and not re.search(r"\b0 (unclaimed|unexpected)", line):
            yield CERTAIN, f"the load log says {count[0]!r}", place
    extra = [name for name in sorted(tensors.names(case)) if _EXTRA.search(name)]
    if extra:
        engine = engine_name(case.engine.name)
        skips = engines()[engine].skips if engine in engines() else ()
        known = any(part in extra[0] for part in skips) and not healthy(case)
        says = f"{extra[0]} ({len(extra)} such tensors) has no place in {engine or 'many engines'}"
        yield LIKELY if known else CANDIDATE, says, f"drafter.tensors.{extra[0]}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"
