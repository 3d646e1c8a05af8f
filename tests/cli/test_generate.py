"""generate: what reaches the engine, what reaches stdout and stderr."""

from __future__ import annotations

import json

from draftproof.engine.types import SamplingParams

from .fakes import ANSWER


def test_streams_text_and_nothing_else_to_stdout(shell):
    assert shell("generate", "-m", "fake", "-d", "random", "hello") == 0
    assert shell.out == ANSWER + "\n"
    assert shell.err == "threads: as the fake says\n"
    assert "\x1b" not in shell.out + shell.err


def test_quiet_leaves_stderr_empty(shell):
    shell("generate", "-m", "fake", "--quiet", "hello")
    assert shell.err == ""


def test_defaults_stay_with_their_owners(shell):
    shell("generate", "-m", "fake", "hello")
    assert shell.arguments == [{"target": "fake"}]
    [(_, params)] = shell.engines[0].requests
    assert params == SamplingParams()


def test_every_sampling_flag_arrives(shell):
    words = "--max-tokens 9 --min-tokens 1 --temperature 0.7 --top-k 5 --top-p 0.9 --min-p 0.05"
    words += " --repetition-penalty 1.1 --presence-penalty 0.2 --frequency-penalty 0.3 --seed 4"
    words += " --stop-token-ids 7,8 --stop-token-ids 9 --ignore-eos --stop END --stop FIN"
    bias = ["--logit-bias", '{"42": -100}', "--logprobs", "0", "--json"]
    assert shell("generate", "-m", "fake", *words.split(), *bias, "hello") == 0
    [(_, params)] = shell.engines[0].requests
    assert params == SamplingParams(
        max_tokens=9,
        min_tokens=1,
        temperature=0.7,
        top_k=5,
        top_p=0.9,
        min_p=0.05,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        seed=4,
        stop=("END", "FIN"),
        stop_token_ids=(7, 8, 9),
        ignore_eos=True,
        logit_bias={42: -100.0},
        logprobs=0,
    )


def test_every_engine_flag_arrives(shell):
    words = "-d d --method tree --tree-budget 8 --num-speculative-tokens 4 --dtype bfloat16 --device cpu"
    words += " --max-model-len 512 --threads 2 --no-invariant --no-native --revision main --trust-remote-code"
    assert shell("generate", "-m", "org/name", *words.split(), "hello") == 0
    assert shell.arguments == [
        {
            "target": "org/name",
            "drafter": "d",
            "method": "tree",
            "tree_budget": 8,
            "num_speculative_tokens": 4,
            "dtype": "bfloat16",
            "device": "cpu",
            "max_model_len": 512,
            "threads": 2,
            "invariant": False,
            "native": False,
            "revision": "main",
            "trust_remote_code": True,
        }
    ]


def test_speculative_model_is_the_drafter(shell):
    shell("generate", "--model", "fake", "--speculative-model", "random:3", "hello")
    assert shell.arguments[0]["drafter"] == "random:3"


def test_json_is_one_object(shell):
    assert shell("generate", "-m", "fake", "-d", "random", "--json", "--logprobs", "1", "hello") == 0
    result = json.loads(shell.out)
    assert result["schema_version"] == "draftproof.generate/1"
    assert result["text"] == ANSWER
    assert bytes(result["token_ids"]).decode() == ANSWER
    assert result["finish_reason"] == "stop"
    assert result["usage"]["total_tokens"] == result["usage"]["prompt_tokens"] + len(ANSWER.encode())
    assert result["stats"]["acceptance"]["tau"] > 1
    assert len(result["stats"]["acceptance"]["per_position"]) >= 5
    assert result["stats"]["tokens_per_s"] > 0
    assert len(result["logprobs"]) == len(result["token_ids"])


def test_no_drafter_has_no_acceptance(shell):
    shell("generate", "-m", "fake", "--json", "hello")
    assert json.loads(shell.out)["stats"]["acceptance"] is None


def test_stats_go_to_stderr(shell):
    shell("generate", "-m", "fake", "-d", "random", "--stats", "hello")
    assert shell.out == ANSWER + "\n"
    assert "tok/s" in shell.err and "accepted ≥ k" in shell.err


def test_prompt_from_stdin(shell, typed):
    typed("from a pipe")
    shell("generate", "-m", "fake", "--raw", "-")
    assert shell.engines[0].requests[0][0] == "from a pipe"


def test_chat_template_is_the_default_where_there_is_one(shell):
    shell("generate", "-m", "fake", "--system", "Be brief.", "hello")
    assert shell.engines[0].requests[0][0] == "<system>Be brief.\n<user>hello\n"


def test_chat_without_a_template_is_an_error(shell):
    from .fakes import ByteTokenizer

    plain = ByteTokenizer()
    plain.chat_template = None
    shell.settings = {"tokenizer": plain}
    assert shell("generate", "-m", "fake", "--chat", "hello") == 2
    assert "no chat template" in shell.err
    assert shell("generate", "-m", "fake", "hello") == 0
    assert shell.engines[1].requests[0][0] == "hello"


def test_interrupt_ends_the_line_and_closes_the_request(shell):
    shell.settings = {"interrupt_after": 2}
    assert shell("generate", "-m", "fake", "-d", "random", "hello") == 130
    assert shell.out.endswith("\n") and "Gr" in shell.out
    assert shell.engines[0].closed == 1


def test_an_error_inside_the_engine_is_internal(shell):
    shell.settings = {"fail_with": "numbers are not finite"}
    assert shell("generate", "-m", "fake", "hello") == 70
    assert "numbers are not finite" in shell.err
