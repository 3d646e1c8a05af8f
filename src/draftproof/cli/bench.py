"""``draftproof bench``: is the text exactly the target's (``exactness``), how fast is one stream (``speed``), and how
fast are many (``engine``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import zip_longest
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
    from draftproof.bench.reference import TransformersReference
    from draftproof.bench.speed import Peer
    from draftproof.bench.workloads import Workload
    from draftproof.engine.engine import Engine

EXACTNESS_PROMPTS, EXACTNESS_TOKENS = 50, 128
SPEED_PROMPTS, SPEED_TOKENS = 8, 96
ENGINE_PROMPTS, ENGINE_TOKENS = 256, 128
DEFAULT_STREAMS = (1, 2, 4, 8, 16, 32, 64)
PEER_STREAMS = 16  # peers on a CPU take minutes beyond
TREE_BUDGETS = (8, 16, 32)
REFERENCE_PROMPTS = 10

_PROMPTS_HELP = (
    "JSON Lines with prompt, question, turns, messages or text; demo: the built-in ones. Repeatable. [default: demo]"
)
_SEED_HELP = "Chooses which prompts, where there are more. [default: 0]"
_REFERENCE_HELP = "Prompts also run through transformers' own generate, in float32. [default: 10]"
_GGUF_HELP = "Model for llama.cpp. Repeatable. Default: a GGUF target's own."
Prompts = Annotated[list[str] | None, typer.Option("--prompts", metavar="FILE", help=_PROMPTS_HELP)]
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="Most prompts taken of each file.")]
Seed = Annotated[int | None, typer.Option("--seed", help=_SEED_HELP)]
Tokens = Annotated[int, typer.Option("--max-tokens", metavar="N", help="Per prompt.")]
Speculative = Annotated[
    int | None, typer.Option("--num-speculative-tokens", metavar="N", help="Drafted tokens per round.")
]
TreeBudget = Annotated[int | None, typer.Option("--tree-budget", metavar="N", help="Nodes of the tree.")]
TreeBudgets = Annotated[
    list[int] | None,
    typer.Option("--tree-budget", metavar="N", help="Nodes of the tree. Repeatable. [default: 8, 16, 32]"),
]
Reference = Annotated[int | None, typer.Option("--reference", metavar="N", help=_REFERENCE_HELP)]
Repeats = Annotated[int, typer.Option("--repeats", metavar="N", help="Runs of each prompt.")]
Peers = Annotated[bool, typer.Option("--peers/--no-peers", help="Also measure transformers and llama.cpp.")]
Gguf = Annotated[list[Path] | None, typer.Option("--gguf", metavar="FILE", help=_GGUF_HELP)]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the result file goes.")]

NamedIds = list[tuple[str, list[int]]]

_UNIFORM_HELP = "Drafter whose layers are all alike, for vLLM beside it. Default: vLLM without one."
Uniform = Annotated[Path | None, typer.Option("--uniform-drafter", metavar="DIR", help=_UNIFORM_HELP)]
_STREAMS_HELP = "Requests at once. Repeatable. [default: 1, 2, 4, 8, 16, 32, 64]"
Streams = Annotated[list[int] | None, typer.Option("--streams", metavar="N", help=_STREAMS_HELP)]

app = typer.Typer(no_args_is_help=True, help="Measure: equal to the target alone? how fast? Results are saved.")


@app.command(cls=SectionedCommand)
@with_flags
def exactness(
    model: Model,
    load: LoadFlags,
    common: CommonFlags,
    num_speculative_tokens: Speculative = None,
    tree_budget: TreeBudget = None,
    prompts: Prompts = None,
    limit: Limit = EXACTNESS_PROMPTS,
    seed: Seed = None,
    max_tokens: Tokens = EXACTNESS_TOKENS,
    reference: Reference = None,
    out: Out = Path("results"),
    json_output: JsonFlag = False,
) -> None:
    """Compare chain and tree with the target alone, token for token and bit for bit.

    In float32 also with transformers' own greedy generate. Exits with 1 where a promise does not hold.
    """
    if load.drafter is None:
        raise UsageError("bench exactness compares drafting with the target alone: give a --drafter")
    workloads = _workloads(prompts, limit, seed)
    tuning: dict[str, Any] = {"num_speculative_tokens": num_speculative_tokens, "tree_budget": tree_budget}
    engine = _open(model, load, common, tuning | ({"method": "tree"} if tree_budget is not None else {}))
    from draftproof.bench.exactness import run_exactness
    from draftproof.bench.ways import ways_of

    count = REFERENCE_PROMPTS if reference is None else reference
    document = run_exactness(
        ways_of(engine),
        _in_turn(_encoded(engine, workloads)),
        max_tokens=max_tokens,
        reference=_reference(engine, count, asked=reference is not None),
        reference_prompts=count,
        progress=partial(note, quiet=common.quiet),
    )
    dtype = document["engine"]["dtype"]
    _finish(document, workloads, out / f"exactness-{dtype}.json", common, as_json=json_output)
    if not document["passed"]:
        raise typer.Exit(EXIT_FINDINGS)


@app.command(cls=SectionedCommand)
@with_flags
def speed(
    model: Model,
    load: LoadFlags,
    common: CommonFlags,
    num_speculative_tokens: Speculative = None,
    tree_budget: TreeBudgets = None,
    prompts: Prompts = None,
    limit: Limit = SPEED_PROMPTS,
    seed: Seed = None,
    max_tokens: Tokens = SPEED_TOKENS,
    repeats: Repeats = 3,
    peers: Peers = True,
    gguf: Gguf = None,
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
    workloads = _workloads(prompts, limit, seed)
    engine = _open(model, load, common, {"num_speculative_tokens": num_speculative_tokens})
    from draftproof.bench.speed import run_speed
    from draftproof.bench.ways import policy_ways, ways_of

    ways = ways_of(engine, tree_budget or TREE_BUDGETS)
    if num_speculative_tokens is None:
        ways |= policy_ways(engine)
    if tree_budget and not any(name.startswith("tree") for name in ways):
        raise UsageError(f"--tree-budget has no effect: {engine.target.capabilities.why_no_trees}")
    encoded = _encoded(engine, workloads)
    first = [ids for _, ids in encoded[workloads[0].name]]
    document = run_speed(
        ways,
        encoded,
        max_tokens=max_tokens,
        repeats=repeats,
        peers=_peers(engine, first, max_tokens, repeats, gguf or []) if peers else {},
        progress=partial(note, quiet=common.quiet),
    )
    _finish(document, workloads, out / "speed.json", common, as_json=json_output)


@app.command(cls=SectionedCommand)
@with_flags
def engine(
    model: Model,
    load: LoadFlags,
    common: CommonFlags,
    streams: Streams = None,
    prompts: Prompts = None,
    limit: Limit = ENGINE_PROMPTS,
    seed: Seed = None,
    max_tokens: Tokens = ENGINE_TOKENS,
    repeats: Repeats = 3,
    peers: Peers = True,
    uniform_drafter: Uniform = None,
    out: Out = Path("results"),
    json_output: JsonFlag = False,
) -> None:
    """Measure many streams at once: throughput, host time, the prefix cache; peers beside them.

    The drafter runs under the length policy; beside it one that costs as much and is never right.
    """
    if uniform_drafter and not peers:
        raise UsageError("--uniform-drafter has no effect with --no-peers")
    if repeats < 1 or any(n < 1 for n in streams or ()):
        raise UsageError("--repeats and --streams must be at least 1")
    counts = streams or list(DEFAULT_STREAMS)
    workloads = _workloads(prompts, limit, seed)
    running = _open(model, load, common, {"max_num_seqs": max(16, *counts)})
    from draftproof.bench.engine_load import run_engine_load

    encoded = [ids for _, ids in _in_turn(_encoded(running, workloads))]
    document = run_engine_load(
        running,
        encoded,
        streams=counts,
        max_tokens=max_tokens,
        repeats=repeats,
        peers=_stream_peers(running, encoded, counts, max_tokens, uniform_drafter) if peers else {},
        progress=partial(note, quiet=common.quiet),
    )
    _finish(document, workloads, out / "engine.json", common, as_json=json_output)


def _workloads(sources: list[str] | None, limit: int, seed: int | None) -> list[Workload]:
    from draftproof.bench.workloads import load_workload

    loaded = [load_workload(source, limit=limit, seed=seed or 0) for source in sources or ["demo"]]
    if seed is not None and all(workload.seed is None for workload in loaded):
        raise UsageError(f"--seed has no effect: --limit {limit} takes every prompt")
    names = [workload.name for workload in loaded]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--prompts: two files are called {name!r}, so their results could not be told apart")
    return loaded


def _open(model: str, load: LoadFlags, common: CommonFlags, tuning: dict[str, Any]) -> Engine:
    """The engine with its drafter; the ways that are compared share its weights."""
    check_loading(model, load)
    chosen = {name: value for name, value in tuning.items() if value is not None}
    if load.drafter is None and chosen.get("num_speculative_tokens"):
        raise UsageError("--num-speculative-tokens has no effect without a --drafter")
    arguments = {"target": model} | given(load) | chosen
    return cast("Engine", open_engine(arguments, quiet=common.quiet, debug=common.debug))


def _encoded(engine: Engine, workloads: list[Workload]) -> dict[str, NamedIds]:
    from draftproof.bench.workloads import encode

    return {w.name: [(p.name, encode(engine, p)) for p in w.prompts] for w in workloads}


def _in_turn(encoded: dict[str, NamedIds]) -> NamedIds:
    """All prompts, of each file one in turn, so that the first ones (the reference's) are of every file."""
    if len(encoded) == 1:
        return next(iter(encoded.values()))
    named = [[(f"{file} {name}", ids) for name, ids in prompts] for file, prompts in encoded.items()]
    return [prompt for row in zip_longest(*named) for prompt in row if prompt is not None]


def _reference(engine: Engine, count: int, *, asked: bool) -> TransformersReference | None:
    """The outside witness, where it can be held to every token."""
    import torch

    from draftproof.bench.reference import TransformersReference

    if engine.target.info.dtype != torch.float32:
        if asked:
            raise UsageError("--reference has no effect in 16 bits, where two engines may round apart")
        return None
    if count < 1:
        return None
    return TransformersReference.load(engine.describe()["target"], engine.options, engine.eos_token_ids)


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


def _stream_peers(
    engine: Engine, prompts: list[list[int]], streams: list[int], max_tokens: int, uniform: Path | None
) -> dict[str, Callable[[], Mapping[str, Any]]]:
    """Peers with many streams. vLLM runs in float32, where its drafts are verified exactly; both engines of a pair
    get the same prompts."""
    from draftproof.bench.peers.streams import stream_peers

    facts = engine.describe()
    few = [n for n in streams if n <= PEER_STREAMS]
    shared: dict[str, Any] = {"max_tokens": max_tokens, "dtype": facts["dtype"], "threads": facts["threads"]}
    return stream_peers(facts["target"], prompts, few, uniform=uniform, **shared)


def _finish(
    document: dict[str, Any], workloads: list[Workload], path: Path, common: CommonFlags, *, as_json: bool
) -> None:
    from draftproof.bench.provenance import provenance
    from draftproof.bench.results import to_text, write_result
    from draftproof.bench.tables import render

    document["workload_files"] = [workload.describe() for workload in workloads]
    seeds = [workload.seed for workload in workloads if workload.seed is not None]
    document["provenance"] = provenance(seeds[0] if seeds else None)
    write_result(path, document)
    print(to_text(document, indent=None) if as_json else render(document), end="")
    note(f"wrote {path}", quiet=common.quiet)
