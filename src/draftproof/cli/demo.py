"""``draftproof demo``: the target alone, a DFlash chain and a DDTree on the same prompts, on one card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.bench.provenance import provenance
from draftproof.cli.demo_progress import DemoProgress
from draftproof.cli.demo_run import PLAIN, Way, reports, run_ways
from draftproof.cli.demo_view import Card, as_json, print_card
from draftproof.cli.flags import given, with_flags
from draftproof.cli.opening import open_engine, ways_on
from draftproof.cli.options import TARGET_HELP, CommonFlags, JsonFlag, LoadFlags
from draftproof.cli.params import check_loading
from draftproof.cli.prompts import NamedPrompt, demo_prompts
from draftproof.cli.protocol import TextEngine
from draftproof.cli.terminal import out_console
from draftproof.engine.types import SamplingParams
from draftproof.errors import EXIT_FINDINGS, UsageError

DRAFTING = ("chain", "tree")


@with_flags
def demo(
    load: LoadFlags,
    common: CommonFlags,
    model: Annotated[str, typer.Option("--model", "-m", help=TARGET_HELP, metavar="TARGET")] = "bundled:smollm2",
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
    asked = parse_ways(method)
    check_loading(model, load)
    if tree_budget is not None and "tree" not in asked:
        raise UsageError("--tree-budget has no effect without --method tree")
    if tree_budget is not None and tree_budget < 1:
        raise UsageError(f"--tree-budget {tree_budget} is out of range: it must be at least 1")
    params = SamplingParams(max_tokens=max_tokens)
    texts = demo_prompts(prompts)
    arguments = {"target": model, "drafter": "random"} | given(load)
    if num_speculative_tokens is not None:
        arguments["num_speculative_tokens"] = num_speculative_tokens
    engine = open_engine(arguments, quiet=common.quiet, debug=common.debug)
    engines = choose(ways_on(engine, tree_budget), asked, explicit=bool(method or tree_budget))
    done = measure(engines, texts, params, quiet=common.quiet)
    facts = list(engines.values())[-1].describe()
    card = Card(facts, len(texts), max_tokens, reports(done, texts), provenance())
    if not json_output:
        print_card(card, out_console())
    print(as_json(card))
    if card.failed:
        raise typer.Exit(EXIT_FINDINGS)


def parse_ways(texts: list[str] | None) -> list[str]:
    """The drafting ways asked for, in the demo's own order."""
    if not texts:
        return list(DRAFTING)
    wanted = [part.strip() for text in texts for part in text.split(",")]
    for name in wanted:
        if name not in DRAFTING:
            raise UsageError(f"--method {name!r} is not a way of the demo: it must be chain, tree or both")
    return [name for name in DRAFTING if name in wanted]


def choose(had: dict[str, TextEngine], asked: list[str], *, explicit: bool) -> dict[str, TextEngine]:
    """The target alone and the ways asked for. Trees cannot always be had: an error if asked for by name."""
    missing = [name for name in asked if name not in had]
    if missing and explicit:
        raise UsageError(f"{missing[0]}: this target or drafter cannot have it; use --method chain")
    return {name: had[name] for name in (PLAIN, *asked) if name in had}


def measure(
    engines: dict[str, TextEngine], asked: list[NamedPrompt], params: SamplingParams, *, quiet: bool
) -> list[Way]:
    with DemoProgress(len(asked), len(engines), quiet=quiet) as progress:
        return run_ways(engines, asked, params, progress.advance)
