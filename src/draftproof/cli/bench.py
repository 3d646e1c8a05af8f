"""``draftproof bench``: is the text exactly the target's (``exactness``), and how fast is it (``speed``)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from draftproof.cli.flags import given, with_flags
from draftproof.cli.opening import open_engine
from draftproof.cli.options import CommonFlags, JsonFlag, LoadFlags, Model
from draftproof.cli.params import check_loading
from draftproof.cli.sections import SectionedCommand
from draftproof.cli.terminal import note
from draftproof.errors import EXIT_FINDINGS, UsageError

if TYPE_CHECKING:
    from draftproof.bench.speed import Peer
    from draftproof.bench.workloads import Workload
    from draftproof.engine.engine import Engine

EXACTNESS_PROMPTS, EXACTNESS_TOKENS = 50, 128
SPEED_PROMPTS, SPEED_TOKENS = 8, 96
TREE_BUDGETS = (8, 16, 32)
REFERENCE_PROMPTS = 10

Limit = Annotated[int | None, typer.Option("--limit", metavar="N", help="Most prompts taken of each file.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Chooses which prompts, where there are more. [default: 0]")]
Speculative = Annotated[
    int | None, typer.Option("--num-speculative-tokens", metavar="N", help="Drafted tokens per round.")
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the result file goes.")]
PROMPTS_HELP = "JSON Lines with prompt, question, turns, messages or text; demo: the built-in ones."

app = typer.Typer(no_args_is_help=True, help="Measure: equal to the target alone? how fast? Results are saved.")


@app.command(cls=SectionedCommand)
@with_flags
def exactness(
    model: Model,
    load: LoadFlags,
    common: CommonFlags,
    num_speculative_tokens: Speculative = None,
    tree_budget: Annotated[int | None, typer.Option("--tree-budget", metavar="N", help="Nodes of the tree.")] = None,
    prompts: Annotated[str, typer.Option("--prompts", metavar="FILE", help=PROMPTS_HELP)] = "demo",
    limit: Limit = EXACTNESS_PROMPTS,
    seed: Seed = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", metavar="N", help="Per prompt.")] = EXACTNESS_TOKENS,
    reference: Annotated[
        int | None,
        typer.Option(
            "--reference",
            metavar="N",
            help="Prompts also run through transformers' own generate, in float32. [default: 10]",
        ),
    ] = None,
    out: Out = Path("results"),
    json_output: JsonFlag = False,
) -> None:
    """Compare chain and tree with the target alone, token for token and bit for bit.

    In float32 also with transformers' own greedy generate. Exits with 1 where a promise does not hold.
    """
    if load.drafter is None:
        raise UsageError("bench exactness compares drafting with the target alone: give a --drafter")
    if reference is not None and load.dtype != "float32":
        raise UsageError("--reference has no effect without --dtype float32: in 16 bits two engines round differently")
    workload = _workload(prompts, limit, seed)
    arguments: dict[str, Any] = {"num_speculative_tokens": num_speculative_tokens}
    arguments |= {"method": "tree", "tree_budget": tree_budget} if tree_budget is not None else {}
    engine = _open(model, load, common, arguments)
    document = _exactness(
        engine, workload, load, max_tokens, REFERENCE_PROMPTS if reference is None else reference, common
    )
    document["workload"] = workload.describe()
    _finish(document, out / f"exactness-{engine.describe()['dtype']}.json", workload.seed, common, json_output)
    if not document["passed"]:
        raise typer.Exit(EXIT_FINDINGS)


def _exactness(
    engine: Engine, workload: Workload, load: LoadFlags, max_tokens: int, reference: int, common: CommonFlags
) -> dict[str, Any]:
    from draftproof.bench.exactness import run_exactness
    from draftproof.bench.reference import TransformersReference
    from draftproof.bench.ways import ways_of
    from draftproof.bench.workloads import encode

    witness = None
    if load.dtype == "float32" and reference > 0:
        witness = TransformersReference.load(engine.describe()["target"], engine.options, engine.eos_token_ids)
    return run_exactness(
        ways_of(engine),
        [(p.name, encode(engine, p)) for p in workload.prompts],
        max_tokens=max_tokens,
        reference=witness,
        reference_prompts=reference,
        progress=partial(note, quiet=common.quiet),
    )


@app.command(cls=SectionedCommand)
@with_flags
def speed(
    model: Model,
    load: LoadFlags,
    common: CommonFlags,
    num_speculative_tokens: Speculative = None,
    tree_budget: Annotated[
        list[int] | None,
        typer.Option("--tree-budget", metavar="N", help="Nodes of the tree. Repeatable. [default: 8, 16, 32]"),
    ] = None,
    prompts: Annotated[
        list[str] | None,
        typer.Option("--prompts", metavar="FILE", help=f"{PROMPTS_HELP} Repeatable. [default: demo]"),
    ] = None,
    limit: Limit = SPEED_PROMPTS,
    seed: Seed = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", metavar="N", help="Per prompt.")] = SPEED_TOKENS,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", help="Runs of each prompt.")] = 3,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="Also measure transformers and llama.cpp.")] = True,
    gguf: Annotated[
        list[Path] | None,
        typer.Option("--gguf", metavar="FILE", help="Model for llama.cpp. Repeatable. Default: a GGUF target's own."),
    ] = None,
    out: Out = Path("results"),
    json_output: JsonFlag = False,
) -> None:
    """Measure one stream's speed: target alone, chain and trees, interleaved; peers beside them.

    Medians over prompts and repeats. Measure on a quiet machine; the load average is saved with the result.
    """
    if gguf and not peers:
        raise UsageError("--gguf has no effect with --no-peers")
    if tree_budget and load.drafter in (None, "ngram"):
        raise UsageError("--tree-budget has no effect without a drafter that has trees")
    for name, value in (("--repeats", repeats), *(("--tree-budget", n) for n in tree_budget or ())):
        if value < 1:
            raise UsageError(f"{name} {value} is out of range: it must be at least 1")
    from draftproof.bench.speed import run_speed
    from draftproof.bench.ways import ways_of
    from draftproof.bench.workloads import encode

    workloads = [_workload(source, limit, seed) for source in prompts or ["demo"]]
    engine = _open(model, load, common, {"num_speculative_tokens": num_speculative_tokens})
    encoded = {w.name: [(p.name, encode(engine, p)) for p in w.prompts] for w in workloads}
    if len(encoded) < len(workloads):
        raise UsageError("--prompts: two files have the same name, so their results could not be told apart")
    first = [ids for _, ids in encoded[workloads[0].name]]
    ways = ways_of(engine, tree_budget or TREE_BUDGETS)
    if tree_budget and not any(name.startswith("tree") for name in ways):
        raise UsageError(f"--tree-budget has no effect: {engine.target.capabilities.why_no_trees}")
    document = run_speed(
        ways,
        encoded,
        max_tokens=max_tokens,
        repeats=repeats,
        peers=_peers(engine, first, max_tokens, repeats, gguf or []) if peers else {},
        progress=partial(note, quiet=common.quiet),
    )
    document["workload_files"] = [w.describe() for w in workloads]
    _finish(document, out / "speed.json", workloads[0].seed, common, json_output)


def _peers(
    engine: Engine, prompts: list[list[int]], max_tokens: int, repeats: int, gguf: list[Path]
) -> dict[str, Peer]:
    """What to measure beside our own engine; each is called later and may then find that it cannot run."""
    from draftproof.bench.peers.llama_cpp import measure_llama_cpp
    from draftproof.bench.peers.transformers_generate import measure_transformers
    from draftproof.targets.source import resolve_model

    facts = engine.describe()
    shared = {"new_tokens": max_tokens, "threads": facts["threads"], "runs": repeats}
    found: dict[str, Peer] = {
        "transformers": partial(measure_transformers, facts["target"], prompts, dtype=facts["dtype"], **shared)
    }
    source = resolve_model(facts["target"], engine.options.revision)
    own = [Path(source.location) / str(source.gguf_file)] if source.kind == "gguf" else []
    for file in gguf or own:
        found[f"llama.cpp {file.stem}"] = partial(measure_llama_cpp, file, **shared)
    return found


def _workload(source: str, limit: int | None, seed: int | None) -> Workload:
    from draftproof.bench.workloads import load_workload

    return load_workload(source, limit=limit, seed=seed)


def _open(model: str, load: LoadFlags, common: CommonFlags, tuning: dict[str, Any]) -> Engine:
    """The engine with its drafter; the ways that are compared share its weights."""
    check_loading(model, load)
    arguments = {"target": model} | given(load) | {k: v for k, v in tuning.items() if v is not None}
    if load.drafter is None and len(arguments) > 1 + len(given(load)):
        raise UsageError("--num-speculative-tokens has no effect without a --drafter")
    return cast("Engine", open_engine(arguments, quiet=common.quiet, debug=common.debug))


def _finish(document: dict[str, Any], path: Path, seed: int | None, common: CommonFlags, as_json: bool) -> None:
    from draftproof.bench.provenance import provenance
    from draftproof.bench.results import to_text, write_result
    from draftproof.bench.tables import render

    document["provenance"] = provenance(seed)
    write_result(path, document)
    print(to_text(document, indent=None) if as_json else render(document), end="")
    note(f"wrote {path}", quiet=common.quiet)
