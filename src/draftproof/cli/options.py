"""The flags that several commands share, named as vLLM and Hugging Face name them.

Defaults are not written here: a flag that was not given is not passed on, and the help text reads the
default from the dataclass that owns it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import typer

from draftproof.engine.options import EngineOptions, LengthPolicy
from draftproof.engine.types import SamplingParams

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
MethodName = Literal["none", "chain", "tree"]
DraftSampling = Literal["probabilistic", "greedy"]

_DEFAULTS = {f.name: f.default for owner in (EngineOptions, SamplingParams) for f in dataclasses.fields(owner)}


def _option(panel: str, *names: str, help: str, metavar: str | None = None) -> Any:
    """An option of a help section; the first name says whose default is shown."""
    field = names[0].split("/")[0].removeprefix("--").replace("-", "_")
    default = _DEFAULTS.get(field)
    if default is not None and default is not False and default != ():
        help = f"{help} [default: {default}]"
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, rich_help_panel=panel)


_load = partial(_option, "Loading")
_draft = partial(_option, "Speculation")
_sample = partial(_option, "Sampling")

TARGET_HELP = "Target: a Hugging Face folder, a hub id, a .gguf file, or bundled:smollm2."
Model = Annotated[str, typer.Option("--model", "-m", help=TARGET_HELP, metavar="TARGET")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]


@dataclass(frozen=True)
class LoadFlags:
    """Which models, and how they are held."""

    drafter: Annotated[
        str | None,
        _load(
            "--drafter",
            "-d",
            "--speculative-model",
            metavar="DRAFTER",
            help="Drafter: a folder or hub id (z-lab or speculators format), ngram, or random[:seed].",
        ),
    ] = None
    dtype: Annotated[Dtype | None, _load("--dtype", help="Number format of weights and activations.")] = None
    device: Annotated[str | None, _load("--device", help="auto, cpu, cuda, cuda:1, mps …")] = None
    max_model_len: Annotated[
        int | None, _load("--max-model-len", help="Longest prompt plus answer, in tokens.", metavar="N")
    ] = None
    threads: Annotated[int | None, _load("--threads", help="CPU threads.", metavar="N")] = None
    invariant: Annotated[
        bool | None,
        _load(
            "--invariant/--no-invariant",
            help="All methods give the same bits. Compiled kernels do so anyway; others then run passes of one shape.",
        ),
    ] = None
    native: Annotated[
        bool | None, _load("--native/--no-native", help="Use the compiled CPU kernels, or plain PyTorch.")
    ] = None
    revision: Annotated[
        str | None, _load("--revision", help="Branch, tag or commit of a hub repository.", metavar="REV")
    ] = None
    trust_remote_code: Annotated[
        bool | None, _load("--trust-remote-code", help="Allow Python code that comes with a checkpoint.")
    ] = None


@dataclass(frozen=True)
class SpeculationFlags:
    """How tokens are drafted and verified."""

    method: Annotated[
        MethodName | None,
        _draft("--method", help="chain: one drafted sequence; tree: a DDTree; none."),
    ] = None
    length_policy: Annotated[
        LengthPolicy | None,
        _draft(
            "--length-policy",
            help="adaptive: draft as much as pays, down to nothing; fixed: always all. Default: adaptive, or fixed "
            "where a number is given.",
        ),
    ] = None
    num_speculative_tokens: Annotated[
        int | None,
        _draft("--num-speculative-tokens", metavar="N", help="Drafted tokens per round (block size - 1)."),
    ] = None
    tree_budget: Annotated[
        int | None, _draft("--tree-budget", metavar="N", help="Nodes of the draft tree, with --method tree.")
    ] = None
    draft_sample_method: Annotated[
        DraftSampling | None,
        _draft("--draft-sample-method", help="How the drafter picks its tokens at a temperature above 0."),
    ] = None


@dataclass(frozen=True)
class SamplingFlags:
    """How the target picks its tokens; field for field those of SamplingParams, before parsing."""

    max_tokens: Annotated[int | None, _sample("--max-tokens", help="Longest answer, in tokens.")] = None
    min_tokens: Annotated[int | None, _sample("--min-tokens", help="No end of text before this many.")] = None
    temperature: Annotated[float | None, _sample("--temperature", help="0 is greedy.")] = None
    top_k: Annotated[int | None, _sample("--top-k", help="Keep the k likeliest tokens; 0 or -1: all.")] = None
    top_p: Annotated[float | None, _sample("--top-p", help="Keep the likeliest tokens up to this mass.")] = None
    min_p: Annotated[
        float | None, _sample("--min-p", help="Keep tokens at least this likely relative to the best.")
    ] = None
    repetition_penalty: Annotated[
        float | None, _sample("--repetition-penalty", help="Above 1 discourages tokens seen before.")
    ] = None
    presence_penalty: Annotated[
        float | None,
        _sample("--presence-penalty", help="Taken off the logit of each token already answered."),
    ] = None
    frequency_penalty: Annotated[
        float | None, _sample("--frequency-penalty", help="The same, times how often it was answered.")
    ] = None
    logit_bias: Annotated[
        str | None, _sample("--logit-bias", help="""JSON: '{"token id": bias}'.""", metavar="JSON")
    ] = None
    seed: Annotated[int | None, _sample("--seed", help="Seed of this request's random numbers.")] = None
    stop: Annotated[list[str] | None, _sample("--stop", help="Stop before this text. Repeatable.", metavar="TEXT")] = (
        None
    )
    stop_token_ids: Annotated[
        list[str] | None,
        _sample("--stop-token-ids", help="Stop at these ids: 1,2 or repeated.", metavar="IDS"),
    ] = None
    ignore_eos: Annotated[bool | None, _sample("--ignore-eos", help="Go on past the end.")] = None
    logprobs: Annotated[
        int | None, _sample("--logprobs", help="Alternatives per token in --json (0: only the chosen one's).")
    ] = None


@dataclass(frozen=True)
class CommonFlags:
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors and warnings.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks, and the libraries' own messages.")] = False
