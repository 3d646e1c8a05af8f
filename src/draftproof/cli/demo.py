"""``draftproof demo``: the target alone, a DFlash chain and a DDTree on the same prompts, on one card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli.demo_progress import DemoProgress
from draftproof.cli.demo_run import PLAIN, Way, reports, run_ways
from draftproof.cli.demo_view import Card, as_json, print_card
from draftproof.cli.flags import given, with_flags
from draftproof.cli.opening import open_engine
from draftproof.cli.options import TARGET_HELP, CommonFlags, JsonFlag, LoadFlags
from draftproof.cli.params import check_loading
from draftproof.cli.prompts import NamedPrompt, demo_prompts
from draftproof.cli.protocol import TextEngine
from draftproof.cli.provenance import provenance
from draftproof.cli.terminal import out_console
from draftproof.engine.types import SamplingParams
from draftproof.errors import EXIT_FINDINGS, UsageError

DRAFTING = ("chain", "tree")


@with_flags
def demo(
    load: LoadFlags,
    common: CommonFlags,
    model: Annotated[
        str, typer.Option("--model", "-m", help=TARGET_HELP, metavar="TARGET")
    ] = "bundled:smollm2",
    method: Annotated[
        list[str] | None,
        typer.Option("--method", metavar="LIST", help="Ways beside the target alone: chain,tree."),
    ] = None,
    num_speculative_tokens: Annotated[
        int | None, typer.Option("--num-speculative-tokens", metavar="N", help="Drafted tokens per round.")
    ] = None,
    tree_budget: Annotated[
        int | None, typer.Option("--tree-budget", metavar="N", help="Nodes of the draft tree.")
    ] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", metavar="N", help="Per prompt.")] = 96,
    prompts: Annotated[
        Path | None, typer.Option("--prompts", metavar="FILE", help='JSON Lines with "prompt" and "name".')
    ] = None,
    json_output: JsonFlag = False,
) -> None:
    """Compare target alone, DFlash chain and DDTree on one card.

    The same prompts go through all of them, interleaved. The last line on stdout is JSON.
    """
    ways = parse_ways(method, load.drafter)
    check_loading(model, load)
    if tree_budget is not None and "tree" not in ways:
        raise UsageError("--tree-budget has no effect without --method tree")
    params = SamplingParams(max_tokens=max_tokens)
    asked = demo_prompts(prompts)
    tuning = {"num_speculative_tokens": num_speculative_tokens}
    engines = open_ways(model, load, ways, common, tuning, {"tree_budget": tree_budget})
    done = measure(engines, asked, params, quiet=common.quiet)
    card = Card(engines[ways[0]].describe(), len(asked), max_tokens, reports(done, asked), provenance())
    if not json_output:
        print_card(card, out_console())
    print(as_json(card))
    if card.invariant and not card.identical:
        raise typer.Exit(EXIT_FINDINGS)


def parse_ways(texts: list[str] | None, drafter: str | None = None) -> list[str]:
    """The drafting ways asked for, in the demo's own order. An n-gram drafter has no tree to offer."""
    if not texts:
        return ["chain"] if drafter == "ngram" else list(DRAFTING)
    wanted = [part.strip() for text in texts for part in text.split(",")]
    for name in wanted:
        if name not in DRAFTING:
            raise UsageError(f"--method {name!r} is not a way of the demo: it must be chain, tree or both")
    return [name for name in DRAFTING if name in wanted]


def open_ways(
    model: str,
    load: LoadFlags,
    ways: list[str],
    common: CommonFlags,
    tuning: dict[str, int | None],
    tree_tuning: dict[str, int | None],
) -> dict[str, TextEngine]:
    """One engine per way. Without a drafter the demo takes a random one and says so on its card."""
    shared = {"target": model} | given(load)
    drafter = shared.pop("drafter", "random")
    engines: dict[str, TextEngine] = {}
    for name in (PLAIN, *ways):
        arguments = dict(shared)
        if name != PLAIN:
            arguments |= {"drafter": drafter, "method": name}
            chosen = tuning | (tree_tuning if name == "tree" else {})
            arguments |= {key: value for key, value in chosen.items() if value is not None}
        quiet = common.quiet or bool(engines)  # the threads line once is enough
        engines[name] = open_engine(arguments, quiet=quiet, debug=common.debug)
    return engines


def measure(
    engines: dict[str, TextEngine], asked: list[NamedPrompt], params: SamplingParams, *, quiet: bool
) -> list[Way]:
    with DemoProgress(len(asked), len(engines), quiet=quiet) as progress:
        return run_ways(engines, asked, params, progress.advance)
