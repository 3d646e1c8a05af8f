"""Yes-or-no questions about a case that facts of the version matrix depend on ("slides", "runner_v1" …).

Each is answered True, False or None (the case does not say). The data files in ``proof.engines`` name them in
``when``; "not NAME" turns an answer round, and names may take one argument ("theta_not 1000000").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from draftproof.proof import tensors
from draftproof.proof.case import Case
from draftproof.proof.layouts import Layout, layout_of, target_integer, target_text
from draftproof.proof.versions import patch, runner_of

Answer = bool | None
Trait = Callable[[Case], Answer]


def holds(case: Case, when: Iterable[str]) -> Answer:
    """All of ``when``: False if one is false, else None if one is unknown, else True."""
    answers = [answer(case, name) for name in when]
    if False in answers:
        return False
    return None if None in answers else True


def answer(case: Case, name: str) -> Answer:
    if name.startswith("not "):
        found = answer(case, name[4:])
        return None if found is None else not found
    head, _, argument = name.partition(" ")
    if argument:
        return WITH_ARGUMENT[head](case, argument)
    return TRAITS[head](case)


def _of_layout(question: Callable[[Layout], Answer]) -> Trait:
    """Unknown while there is no config at all."""

    def asked(case: Case) -> Answer:
        layout = layout_of(case)
        return question(layout) if layout.config else None

    return asked


def _slides(layout: Layout) -> Answer:
    if layout.layer_types is not None or layout.slides:
        return layout.slides
    return False if layout.layers_complete else None


def _full_layers(layout: Layout) -> Answer:
    return layout.has_full_layer


def _flag(layout: Layout, causal: bool) -> Answer:
    if layout.is_causal is not None:
        return layout.is_causal.value is causal
    return False if layout.complete else None


def _nested(layout: Layout, causal: bool) -> Answer:
    """By dflash_config.causal alone: a top-level is_causal wins over it."""
    if layout.is_causal is not None or layout.nested_causal is None:
        return False
    return layout.nested_causal.value is causal


def _causality_unsaid(layout: Layout) -> Answer:
    if layout.is_causal is not None or layout.nested_causal is not None:
        return False
    return True if layout.complete else None  # what an excerpt leaves out may still be in the file


def _window_forgotten(layout: Layout) -> Answer:
    """Hugging Face drops sliding_window unless use_sliding_window is true; speculators configs keep it."""
    if layout.kind != "z-lab" or not layout.slides or layout.use_swa or layout.find("swa_window_size"):
        return False
    stated = layout.decoder[1].get("use_sliding_window")
    if stated is True:
        return False
    return True if stated is False or layout.complete else None


def _unsorted(layout: Layout) -> Answer:
    taps = layout.taps
    return None if taps is None else list(taps.value) != sorted(taps.value)


def _unless_one(layout: Layout, *keys: str) -> bool:
    return any(layout.number(key) not in (None, 1.0) for key in keys)


def _target_width(case: Case) -> Answer:
    own, other = layout_of(case).integer("hidden_size"), layout_of(case).integer("target_hidden_size")
    target = target_integer(case, "hidden_size")
    width = other if other is not None else target
    # Unless something else is said, a drafter is as wide as its target.
    return None if own is None else width is not None and own != width


def _last_layer(case: Case) -> Answer:
    taps = layout_of(case).hidden_state_taps
    depth = layout_of(case).integer("num_target_layers") or target_integer(case, "num_hidden_layers")
    return None if taps is None else depth is not None and depth in taps


def _vocab_differs(case: Case) -> Answer:
    own, target = layout_of(case).vocab_size, target_integer(case, "vocab_size")
    return None if own is None or target is None else own != target


def _no_own_head(case: Case) -> Answer:
    if tensors.absent(case, "lm_head.weight"):
        return True
    return False if "lm_head.weight" in tensors.names(case) else None


def _wrapper(case: Case) -> Answer:
    names = (case.target.config or {}).get("architectures")
    if not isinstance(names, list | tuple) or not names:
        return None
    return any(str(name).endswith("ForConditionalGeneration") for name in names)


def gemma_target(case: Case) -> Answer:
    """By model_type, architecture or, where there is no config, by the names of target and drafter."""
    text, config = target_text(case), case.target.config or {}
    kinds = [text.get("model_type"), config.get("model_type"), *_texts(config.get("architectures"))]
    if any(isinstance(kind, str) and kind.lower().startswith("gemma") for kind in kinds):
        return True
    if any(isinstance(kind, str) for kind in kinds):
        return False
    names = [name.lower() for name in (case.target.name, case.drafter.name) if name]
    return any("gemma" in name for name in names) if names else None


def _sampled(case: Case) -> Answer:
    value = case.workload.get("temperature")
    return value > 0 if isinstance(value, int | float) and not isinstance(value, bool) else None


def drafts_greedily(case: Case) -> Answer:
    """By a given speculative_config; None without one."""
    given = case.engine.options.get("speculative_config")
    if not isinstance(given, dict):
        return None
    return given.get("draft_sample_method", "greedy") == "greedy"


def _mask_sidecar(case: Case) -> Answer:
    files = case.drafter.files
    return None if files is None else any(name.endswith("mask_embedding.pt") for name in files)


def p_min_unset(case: Case) -> Answer:
    """llama.cpp's --spec-draft-p-min: not given, as far as launch line, options and log show it."""
    option = case.engine.options.get("spec_draft_p_min")
    if option is not None:
        return option in ("default", 0, 0.0)
    if any("p_min=0.00" in line for seen in case.observations[:1] for line in seen.log):
        return True
    launch = case.engine.launch
    return None if not launch else not any(flag in launch for flag in ("--spec-draft-p-min", "--draft-p-min"))


def _pipeline(case: Case) -> Answer:
    value = case.engine.options.get("pipeline_parallel_size")
    return type(value) is int and value > 1


def _theta_not(case: Case, value: str) -> Answer:
    found = layout_of(case).nested_theta
    return None if found is None else float(found.value) != float(value)


def _lacks(case: Case, change: str) -> Answer:
    contains = patch(case, change)
    return None if contains is None else not contains


def _texts(value: object) -> list[str]:
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list | tuple) else []


TRAITS: dict[str, Trait] = {
    "zlab": _of_layout(lambda layout: layout.kind == "z-lab"),
    "speculators": _of_layout(lambda layout: layout.kind == "speculators"),
    "gguf": _of_layout(lambda layout: layout.kind == "gguf"),
    "slides": _of_layout(_slides),
    "mixed": _of_layout(lambda layout: layout.mixed if layout.layer_types or layout.complete else None),
    "full_layers": _of_layout(_full_layers),
    "use_swa": _of_layout(lambda layout: layout.use_swa),
    "window_forgotten": _of_layout(_window_forgotten),
    "is_causal_true": _of_layout(lambda layout: _flag(layout, True)),
    "is_causal_false": _of_layout(lambda layout: _flag(layout, False)),
    "nested_causal_true": _of_layout(lambda layout: _nested(layout, True)),
    "nested_causal_false": _of_layout(lambda layout: _nested(layout, False)),
    "asks_causal": _of_layout(lambda layout: _flag(layout, True) or _nested(layout, True)),
    "causality_unsaid": _of_layout(_causality_unsaid),
    "states_causal_sliding": _of_layout(lambda layout: layout.config.get("sliding_window_non_causal") is False),
    "sample_from_anchor": _of_layout(lambda layout: layout.samples_from_anchor),
    "taps_unsorted": _of_layout(_unsorted),
    "nested_theta_only": _of_layout(lambda layout: layout.nested_theta is not None and layout.flat_theta is None),
    "scales_logits": _of_layout(
        lambda layout: layout.number("final_logit_softcapping") is not None or _unless_one(layout, "output_multiplier")
    ),
    "scales_embeddings": _of_layout(lambda layout: _unless_one(layout, "input_embedding_scale")),
    "states_bonus_anchor": _of_layout(lambda layout: layout.config.get("sample_from_anchor") is False),
    "attention_sinks": _of_layout(lambda layout: bool(layout.find("attention_sink_bias"))),
    "quantized": _of_layout(lambda layout: isinstance(layout.config.get("quantization_config"), dict)),
    "reduced_vocabulary": _of_layout(lambda layout: layout.reduced_vocabulary),
    "runner_v1": lambda case: None if runner_of(case) is None else runner_of(case) == "V1",
    "runner_v2": lambda case: None if runner_of(case) is None else runner_of(case) == "V2",
    "target_width_differs": _target_width,
    "taps_last_layer": _last_layer,
    "vocab_differs": _vocab_differs,
    "no_own_head": _no_own_head,
    "wrapper_target": _wrapper,
    "gemma_target": gemma_target,
    "mask_sidecar": _mask_sidecar,
    "sampled": _sampled,
    "drafts_greedily": drafts_greedily,
    "p_min_unset": p_min_unset,
    "pipeline_parallel": _pipeline,
}
WITH_ARGUMENT: dict[str, Callable[[Case, str], Answer]] = {"theta_not": _theta_not, "lacks": _lacks}
