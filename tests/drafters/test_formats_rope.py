"""Where the RoPE base comes from, in old and new files."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.drafters.formats import read_spec
from draftproof.errors import SpecError

from .spec_samples import ABSENT, SMALL, SMALL_SPECULATORS, changed

BASE = {"rope_theta": 1e4}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}


@pytest.mark.parametrize(
    ("changes", "theta", "kind", "warning"),
    [
        ({}, 1e4, "default", None),
        ({"rope_theta": 500000}, 5e5, "default", None),
        ({"rope_parameters": {"rope_theta": 1e7}, "rope_theta": ABSENT}, 1e7, "default", None),
        ({"rope_parameters": {"rope_theta": 1e4}}, 1e4, "default", None),
        ({"rope_parameters": {"rope_theta": 1e7}}, 1e7, "default", "the flat rope_theta=10000 disagrees"),
        ({"rope_parameters": {"rope_type": "default"}}, 1e4, "default", None),
        ({"rope_scaling": {"rope_theta": 1e7}, "rope_theta": ABSENT}, 1e7, "default", None),
        ({"rope_scaling": None}, 1e4, "default", None),
        ({"rope_theta": ABSENT}, 1e6, "default", "no rope_theta in the config: 1e+06 is assumed"),
        ({"rope_scaling": YARN}, 1e4, "yarn", None),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, 1e4, "linear", None),
        ({"rope_parameters": YARN, "rope_scaling": YARN}, 1e4, "yarn", None),
        ({"rope_parameters": YARN, "rope_scaling": {"factor": 2}}, 1e4, "yarn", "rope_scaling disagrees"),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}}, 1e4, "default", "M-RoPE"),
        ({"rope_parameters": {"mrope_section": [2, 1, 1]}}, 1e4, "default", "M-RoPE"),
        (
            {"rope_parameters": {"full_attention": BASE, "sliding_attention": BASE}},
            1e4,
            "default",
            None,
        ),
    ],
)
def test_base_and_type(changes: dict[str, Any], theta: float, kind: str, warning: str | None) -> None:
    spec = read_spec(changed(SMALL, **changes))
    assert (spec.rope.theta, spec.rope.rope_type) == (theta, kind)
    assert len(spec.warnings) == (0 if warning is None else 1)
    assert warning is None or warning in spec.warnings[0]


def test_scaling_settings_are_kept_as_given() -> None:
    rope = read_spec(changed(SMALL, rope_parameters={**YARN, "rope_theta": 1e4, "truncate": False})).rope
    assert rope.scaling == {"factor": 4.0, "original_max_position_embeddings": 128, "truncate": False}


@pytest.mark.parametrize(
    ("changes", "factor"),
    [
        ({}, 1.0),
        ({"partial_rotary_factor": 0.5}, 0.5),
        ({"dflash_config__partial_rotary_factor": 0.25}, 0.25),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, 0.5),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}, "partial_rotary_factor": 0.25}, 0.25),
    ],
)
def test_partial_rotary_factor(changes: dict[str, Any], factor: float) -> None:
    assert read_spec(changed(SMALL, **changes)).rope.partial_rotary_factor == factor


def test_speculators_keep_rope_with_their_layers() -> None:
    config = changed(
        SMALL_SPECULATORS,
        transformer_layer_config__rope_parameters={"rope_theta": 1e7},
        transformer_layer_config__rope_theta=ABSENT,
    )
    assert read_spec(config).rope.theta == 1e7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_theta": "1e4"}, "rope_theta='1e4' must be a finite number"),
        ({"rope_theta": float("nan")}, "rope_theta=nan"),
        ({"rope_theta": True}, "rope_theta=True"),
        ({"rope_theta": 10**400}, "rope_theta="),
        ({"rope_parameters": {"rope_theta": -1}}, "rope_parameters.rope_theta=-1"),
        ({"rope_parameters": [1]}, "rope_parameters=\\[1\\] must be an object"),
        ({"rope_scaling": {"rope_type": "spiral"}}, "rope_type='spiral' is unknown"),
        ({"rope_scaling": {"rope_type": 3}}, "rope_scaling.rope_type=3 must be text"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "needs factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "2"}}, "rope_scaling.factor='2'"),
        (
            {"rope_scaling": {"rope_type": "longrope", "long_factor": 1, "short_factor": [1]}},
            "list of numbers",
        ),
        (
            {"rope_scaling": {"rope_type": "longrope", "long_factor": [0], "short_factor": [1]}},
            "long_factor.0.=0",
        ),
        ({"partial_rotary_factor": 2}, "partial_rotary_factor=2 is out of range"),
        (
            {
                "rope_parameters": {
                    "full_attention": {"rope_theta": 1},
                    "sliding_attention": {"rope_theta": 2},
                }
            },
            "differs between attention types",
        ),
        ({"rope_parameters": {"full_attention": 3}}, "one object per attention type"),
    ],
)
def test_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read_spec(changed(SMALL, **changes))
