"""Which layers of the target the drafter reads, as its files say it."""

from __future__ import annotations

from draftproof.drafters.values import show
from draftproof.proof import tensors
from draftproof.proof.case import Case
from draftproof.proof.findings import Finding, Question
from draftproof.proof.judging import CERTAIN, LIKELY
from draftproof.proof.layouts import (
    DFLASH_FAMILY,
    Layout,
    default_taps,
    drafter_method,
    layout_of,
    target_integer,
)
from draftproof.proof.rules.registry import Said, rule

HOW_TO_READ = "draftproof check DRAFTER reads the safetensors header"


@rule(
    "FC_TAPS_MISMATCH",
    "FILES",
    "error",
    meaning="The projection of the drafter does not fit the number of tapped layers.",
    derived="fc.weight.shape[1] differs from the number of taps times the target's width (target_hidden_size, else "
    "hidden_size).",
    remedy="Use the config that belongs to these weights.",
    probe="Read the safetensors header; compare with the published config of the same revision.",
    sources=("ROCmFPX#44", "speculators converter", "z-lab#152"),
)
def fc_taps_mismatch(case: Case, earlier: frozenset[str]) -> Said:
    layout = layout_of(case)
    count, width = layout.num_taps, layout.integer("target_hidden_size") or layout.integer("hidden_size")
    weight = tensors.shape(case, "fc.weight")
    if weight is None and count is not None and case.drafter.tensors is None:
        yield Question("the shape of fc.weight", HOW_TO_READ)
    if weight is None or len(weight) != 2 or not count or not width or weight[1] == count * width:
        return
    taps = layout.taps
    fits = f"{weight[1] // width} taps" if weight[1] % width == 0 else "no whole number of them"
    yield Finding(
        "FC_TAPS_MISMATCH",
        "error",
        CERTAIN,
        f"fc.weight has {weight[1]} columns; {count} taps of width {width} need {count * width} ({fits} would fit)",
        (
            case.evidence("drafter.tensors.fc.weight", f"fc.weight {list(weight)}"),
            case.evidence(f"drafter.config.{taps.path if taps else 'n_extract'}", f"{count} taps"),
        ),
    )


@rule(
    "TARGET_LAYER_IDS_MISSING",
    "FILES",
    "error; warning if num_target_layers is present and the tensor shapes fit the default formula",
    meaning="No tap ids anywhere; several engines then silently use an evenly spaced default.",
    derived="A complete config without target_layer_ids (nested or top level), aux_hidden_state_layer_ids, "
    "eagle_aux_hidden_state_layer_ids, dspark_target_layer_ids or dflash.target_layers.",
    remedy="Add the ids that the drafter was trained with.",
    probe="Compare the length of the default list with the columns of fc.weight.",
    sources=("dflash-mlx model.py", "SGLang dflash_utils", "z-lab model.py"),
)
def target_layer_ids_missing(case: Case, earlier: frozenset[str]) -> Said:
    layout = layout_of(case)
    if not _is_complete_drafter(case, layout) or layout.taps is not None or layout.num_taps is not None:
        return
    depth, count = layout.integer("num_target_layers"), layout.integer("num_hidden_layers")
    width = layout.integer("target_hidden_size") or layout.integer("hidden_size")
    weight = tensors.shape(case, "fc.weight")
    fits = None not in (depth, count, width, weight) and weight[1] == count * width  # type: ignore[index,operator]
    assumed = f"; engines assume {list(default_taps(depth, count))}" if depth and count and depth > 4 else ""
    yield Finding(
        "TARGET_LAYER_IDS_MISSING",
        "warning" if fits else "error",
        CERTAIN,
        f"the config names no target layers{assumed}",
        (case.evidence("drafter.config", "no target_layer_ids and none of its other names"),),
    )


@rule(
    "TARGET_LAYER_ID_OUT_OF_RANGE",
    "FILES",
    "error",
    meaning="A tap id points past the last layer.",
    derived="z-lab layout: largest id ≥ num_target_layers (or the target's num_hidden_layers), or an id below 0; "
    "speculators layout and GGUF (hidden-states indices): largest id > n. Nothing while n is unknown.",
    remedy="Correct the ids, or declare the convention they are stored in.",
    probe="Ask whether ids are 0-based outputs or hidden-states indices; check for a tap on the final norm.",
    sources=("ROCmFPX#44", "speculators#705", "sglang#27924", "vllm#46973"),
)
def target_layer_id_out_of_range(case: Case, earlier: frozenset[str]) -> Said:
    layout = layout_of(case)
    top, depth = layout.max_tap, _depth(case, layout)
    if top is None:
        return
    taps = layout.taps
    lowest = min(taps.value) if taps is not None else top.value
    last = None if depth is None else depth if layout.ids_are_hidden_state_indices else depth - 1
    if depth is None and lowest >= 0:
        yield Question("how many layers the target has", "--target T")
        return
    if lowest >= 0 and (last is None or top.value <= last):
        return
    wrong = lowest if lowest < 0 else top.value
    unit = "hidden-states indices" if layout.ids_are_hidden_state_indices else "0-based layer outputs"
    allowed = f"0 to {last}" if last is not None else "0 and above"
    yield Finding(
        "TARGET_LAYER_ID_OUT_OF_RANGE",
        "error",
        CERTAIN,
        f"tap id {wrong} does not exist: {unit} of a target of {depth or 'unknown'} layers go from {allowed}",
        (case.evidence(f"drafter.config.{top.path}", f"ids {_listed(layout)}"),),
    )


@rule(
    "LAYER_ID_CONVENTION_UNCLEAR",
    "FILES",
    "info",
    meaning="The ids look as if stored in the other convention (off by one against the layout).",
    derived="speculators layout and ids equal to the default formula for n and the number of taps (no +1); or z-lab "
    "layout and ids equal to the formula + 1. Legal when the drafter was trained so.",
    remedy="None if acceptance is normal; otherwise convert once with the right shift.",
    probe="Shift all taps by -1 and +1 offline and compare the acceptance of the first position.",
    sources=("speculators#613", "speculators converter"),
)
def layer_id_convention_unclear(case: Case, earlier: frozenset[str]) -> Said:
    layout = layout_of(case)
    taps, depth = layout.taps, _depth(case, layout)
    if taps is None or depth is None or depth <= 4:
        return
    usual = default_taps(depth, len(taps.value))
    shift = 0 if layout.ids_are_hidden_state_indices else 1
    if tuple(sorted(taps.value)) != tuple(i + shift for i in usual) or layout.kind == "unknown":
        return
    stored, other = ("speculators", "z-lab's") if shift == 0 else ("z-lab", "speculators'")
    yield Finding(
        "LAYER_ID_CONVENTION_UNCLEAR",
        "info",
        LIKELY,
        f"ids {_listed(layout)} in the {stored} layout are the usual spread for {depth} layers as {other} layout "
        "would store it",
        (case.evidence(f"drafter.config.{taps.path}", f"ids {_listed(layout)}"),),
    )


def _is_complete_drafter(case: Case, layout: Layout) -> bool:
    """Only DFlash drafters need tap ids; EAGLE heads have defaults of their own."""
    return layout.complete and layout.kind != "gguf" and drafter_method(case) in DFLASH_FAMILY


def _depth(case: Case, layout: Layout) -> int | None:
    own = layout.integer("num_target_layers")
    return own if own is not None else target_integer(case, "num_hidden_layers")


def _listed(layout: Layout) -> str:
    taps = layout.taps
    return (
        show(list(taps.value), 120) if taps is not None else f"up to {layout.max_tap.value if layout.max_tap else '?'}"
    )
