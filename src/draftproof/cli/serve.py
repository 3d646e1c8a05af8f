"""``draftproof serve``: an OpenAI-compatible server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from draftproof.cli.flags import given, with_flags
from draftproof.cli.opening import open_engine
from draftproof.cli.options import CommonFlags, JsonFlag, LoadFlags, Model, SpeculationFlags, _option
from draftproof.cli.params import check_loading, check_speculation
from draftproof.errors import UnavailableError

SCHEMA = "draftproof.serve/1"
_http = partial(_option, "Server")
_batch = partial(_option, "Batching")


@dataclass(frozen=True)
class ServerFlags:
    """Where and for whom."""

    host: Annotated[str | None, _http("--host", help="Address to listen on. [default: 127.0.0.1]")] = None
    port: Annotated[int | None, _http("--port", help="0 takes any free one. [default: 8000]", metavar="N")] = None
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            envvar="DRAFTPROOF_API_KEY",
            show_envvar=False,
            metavar="KEY",
            help="Ask clients for this key. Better given as DRAFTPROOF_API_KEY, which does not show in a process list.",
            rich_help_panel="Server",
        ),
    ] = None
    served_model_name: Annotated[
        str | None, _http("--served-model-name", metavar="NAME", help="The model's name in the API.")
    ] = None
    max_queue: Annotated[
        int | None, _http("--max-queue", metavar="N", help="Answers that may wait before 429. [default: 256]")
    ] = None
    request_timeout_s: Annotated[
        float | None, _http("--request-timeout-s", metavar="S", help="Longest life of a request. [default: 600]")
    ] = None
    drain_s: Annotated[
        float | None,
        _http("--drain-s", metavar="S", help="What running requests get after SIGTERM. [default: 30]"),
    ] = None
    max_body_mb: Annotated[
        float | None, _http("--max-body-mb", metavar="MB", help="Largest request body. [default: 4]")
    ] = None
    body_timeout_s: Annotated[
        float | None,
        _http("--body-timeout-s", metavar="S", help="Longest time a body may take to arrive. [default: 20]"),
    ] = None


@dataclass(frozen=True)
class BatchFlags:
    """How many requests at once, in how much memory."""

    max_num_seqs: Annotated[int | None, _batch("--max-num-seqs", metavar="N", help="Answers that run at once.")] = None
    kv_cache_gb: Annotated[float | None, _batch("--kv-cache-gb", metavar="GB", help="Memory of the K/V pool.")] = None
    max_num_batched_tokens: Annotated[
        int | None,
        _batch("--max-num-batched-tokens", metavar="N", help="Rows of a pass. Default: 256 on a CPU, else 2048."),
    ] = None
    enable_prefix_caching: Annotated[
        bool | None,
        _batch("--enable-prefix-caching/--no-enable-prefix-caching", help="Keep prompts' beginnings. Default: yes."),
    ] = None


@with_flags
def serve(
    model: Model,
    load: LoadFlags,
    speculation: SpeculationFlags,
    server: ServerFlags,
    batch: BatchFlags,
    common: CommonFlags,
    json_output: JsonFlag = False,
) -> None:
    """Serve the OpenAI API; Ctrl-C or SIGTERM lets running answers end."""
    check_loading(model, load)
    check_speculation(load, speculation, greedy=False)
    engine_arguments = {"target": model} | given(load) | given(speculation) | given(batch)
    options_type, bind, run = _server()
    options = options_type(**given(server))
    listening = bind(options)
    engine: Any = open_engine(engine_arguments, quiet=common.quiet, debug=common.debug)
    from draftproof.server.app import make_app  # after the threads are set: it imports torch

    app = make_app(engine, options)
    run(app, options, listening, partial(_say_ready, engine.describe(), app.state.service.name, json_output))


def _server() -> Any:
    """Options, bind and serve. Imported here: --help needs no web server."""
    try:
        from draftproof.server.options import ServerOptions
        from draftproof.server.serving import bind, serve
    except ModuleNotFoundError as error:
        raise UnavailableError(f"the server needs {error.name}: pip install 'draftproof[serve]'") from None
    return ServerOptions, bind, serve


def _say_ready(described: dict[str, Any], name: str, as_json: bool, url: str) -> None:
    if as_json:
        told = {"schema_version": SCHEMA, "url": url, "model": name, "engine": described}
        print(json.dumps(told), flush=True)
        return
    drafter = described["drafter"]
    with_drafter = "" if drafter == "none" else f" with {drafter}"
    print(f"ready: {url} serves {name}{with_drafter}", flush=True)
