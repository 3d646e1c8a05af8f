"""TRAINING: what the drafter's training says about what is seen in serving."""

from __future__ import annotations

from draftproof.proof.case import Case, Observation
from draftproof.proof.comparing import comparisons
from draftproof.proof.findings import Finding
from draftproof.proof.quantities import acceptance, number
from draftproof.proof.rules.registry import Said, rule
from draftproof.proof.rules.saying import PUBLISHED, WORDS, both, confidence, figure, named, seen

_SMALL = ("small", "short", "test", "debug", "toy", "smoke")
_FEW_SAMPLES = 50_000  # published drafters saw several hundred thousand answers
_FEW_EPOCHS = 3  # … six to twenty times


def _training(case: Case) -> list[tuple[int, Observation]]:
    return [(i, o) for i, o in enumerate(case.observations) if o.conditions.get("phase") == "training"]


@rule(
    "TRAIN_SERVE_GAP",
    "TRAINING",
    "warning",
    meaning="Training metrics are good, serving is not: the metric leaks or the two sides differ.",
    derived="train_accuracy >= 0.6 and (AL < 2 or rate <= 0.15); or validation normal and serving much_lower",
    remedy="Newer trainer (mask leak, tied head, positions); check hidden-state extraction and rope.",
    probe="Evaluate the checkpoint with the reference code on the same prompts.",
    sources=(
        "SpecForge#455",
        "SpecForge#473",
        "z-lab#12",
        "SpecForge#533",
        "speculators#613",
    ),
)
def train_serve_gap(case: Case, earlier: frozenset[str]) -> Said:
    it = acceptance(case)
    if case.primary is None or case.primary.conditions.get("phase") == "training" or "TOO_FEW_SAMPLES" in earlier:
        return
    short = it.length is not None and it.length < 2 and (it.k_sure or it.rate is None)
    poor = short or (it.rate is not None and it.rate <= 0.15 and not (it.k_sure and (it.length or 0) >= 2))
    for index, training in _training(case):
        accuracy = number(training.metrics, "train_accuracy")
        place = f"observations.{index}.metrics"
        if accuracy is not None and accuracy >= 0.6 and poor:
            says = f"Training accuracy is {accuracy:.0%}, serving shows {figure(it)}: a leak, or two different sides."
            evidence = (case.evidence(f"{place}.train_accuracy", f"train_accuracy = {accuracy}"), *seen(case))
            yield Finding("TRAIN_SERVE_GAP", "warning", confidence(it), says, evidence)
            return
        if training.metrics.get("acceptance_reported") == "normal" and (it.said in ("much_lower", "near_zero") or poor):
            says = f"Validation is normal, serving shows {figure(it)}."
            evidence = (case.evidence(f"{place}.acceptance_reported", "normal"), *seen(case))
            yield Finding("TRAIN_SERVE_GAP", "warning", WORDS, says, evidence)
            return


@rule(
    "DRAFTER_CHECKPOINT_WEAK",
    "TRAINING",
    "warning",
    meaning="The checkpoint itself is the limit: too short a training, or past its best epoch.",
    derived=(
        "ACCEPTANCE_TAIL_STEEP with p_1 >= 0.7 and a small or short training run in the record; or a later epoch "
        "with an AL lower by more than 0.05 than an earlier one"
    ),
    remedy="Train longer, or pick the checkpoint by accept length, not by loss.",
    probe="AL of several checkpoints.",
    sources=(
        "speculators#523",
        "vllm#38300",
        "DeepSpec#84",
    ),
    stage=2,
)
def drafter_checkpoint_weak(case: Case, earlier: frozenset[str]) -> Said:
    it = acceptance(case)
    run = next((found for found in map(_small_run, case.observations) if found), None)
    if "ACCEPTANCE_TAIL_STEEP" in earlier and it.first is not None and it.first >= 0.7 and run:
        says = f"The first token is good ({it.first:.0%}), the tail is not, and the training was short ({run})."
        yield Finding("DRAFTER_CHECKPOINT_WEAK", "warning", PUBLISHED, says, seen(case))
        return
    epoch = number(case.primary.conditions, "epoch") if case.primary is not None else None
    for one in comparisons(case):
        before = number(one.other.conditions, "epoch")
        if epoch is None or before is None or not one.only("training") or before >= epoch:
            continue
        if one.mine.length is not None and one.its.length is not None and one.its.length - one.mine.length > 0.05:
            says = f"Epoch {epoch:g}: {figure(one.mine)}; {named(one)}, epoch {before:g}: {figure(one.its)}."
            yield Finding("DRAFTER_CHECKPOINT_WEAK", "warning", PUBLISHED, says, both(case, one))
            return


def _small_run(observation: Observation) -> str | None:
    """What says that a training run was small or short."""
    conditions = observation.conditions
    run = conditions.get("run")
    if isinstance(run, str) and any(word in run.lower().split() for word in _SMALL):
        return run
    samples, epochs = number(conditions, "samples"), number(conditions, "epochs")
    if samples is not None and samples < _FEW_SAMPLES:
        return f"{samples:g} samples"
    if epochs is not None and epochs < _FEW_EPOCHS and conditions.get("phase") == "training":
        return f"{epochs:g} epochs"
    return None
