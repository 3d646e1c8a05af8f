"""Drafters with more than a block: sequential heads and quantised weights are recognised, not run."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.drafters.formats import read_spec

from .spec_samples import ABSENT, SMALL, SMALL_SPECULATORS, changed


@pytest.mark.parametrize(
    ("config", "projector", "from_anchor"),
    [
        (changed(SMALL, dflash_config__projector_type="domino"), "domino", False),
        (changed(SMALL, dflash_config__projector_type="dspark"), "dspark", True),
        (changed(SMALL, dflash_config__projector_type="dflash"), None, False),
        (changed(SMALL, dflash_config__shift_label=True), "domino", False),
        (changed(SMALL, dflash_config__shift_label=False), None, False),
        (changed(SMALL, dflash_config__markov_rank=0), None, False),
        (changed(SMALL, architectures=["Qwen3DSparkModel"]), "dspark", True),
        (changed(SMALL, model_type="domino"), "domino", False),
        (changed(SMALL_SPECULATORS, speculators_model_type="dspark"), "dspark", False),
        (
            changed(SMALL_SPECULATORS, speculators_model_type="dspark", sample_from_anchor=ABSENT),
            "dspark",
            True,
        ),
        (changed(SMALL_SPECULATORS, projector_type="domino"), "domino", False),
    ],
)
def test_sequential_heads_are_recognised(config: dict[str, Any], projector: str | None, from_anchor: bool) -> None:
    spec = read_spec(config)
    assert (spec.projector, spec.sample_from_anchor) == (projector, from_anchor)
    assert bool(spec.unsupported()) == (projector is not None)


def test_dspark_spelling_of_the_common_fields() -> None:
    config = changed(
        SMALL,
        architectures=["Qwen3DSparkModel"],
        dflash_config=ABSENT,
        block_size=ABSENT,
        dspark_block_size=8,
        dspark_noise_token_id=99,
        dspark_target_layer_ids=[1, 5, 9],
    )
    spec = read_spec(config)
    assert (spec.block_size, spec.mask_token_id, spec.tap_layers) == (8, 99, (2, 6, 10))
    assert spec.unsupported()


def test_quantised_weights_are_recognised() -> None:
    spec = read_spec(changed(SMALL, quantization_config={"quant_method": "fp8", "bits": 8}))
    assert spec.quantization == "fp8"
    assert "fp8" in spec.unsupported()[0]
