"""Runs the application: sockets, signals, the ready line and the way down."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from draftproof.errors import UnavailableError
from draftproof.runtime import allow_many_connections
from draftproof.server.options import ServerOptions

logger = logging.getLogger("draftproof.server")
_BACKLOG = 4096
_SWITCH_S = 0.0005  # the engine's thread must not wait 5 ms for the event loop to let go of the interpreter


class DrainingServer(uvicorn.Server):
    """Tells when it listens; on SIGTERM or Ctrl-C takes nothing new, lets running requests end and then goes. A second
    signal does not wait."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = app.state.service
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
            return
        logger.info("%s: %d answers are still running", signal.Signals(sig).name, self._service.runner.answers)
        self._service.draining = True
        self.should_exit = True


def bind(options: ServerOptions) -> socket.socket:
    """Listens at once, so that a port in use is an error before anything is loaded."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((options.host, options.port))
    except OSError as error:
        made.close()
        raise UnavailableError(
            f"cannot listen on {options.host}:{options.port}: {error.strerror or error}; choose another --port"
        ) from None
    return made


def url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def serve(app: FastAPI, options: ServerOptions, listening: socket.socket, on_ready: Callable[[str], None]) -> None:
    """Blocks until a signal has ended it."""
    allow_many_connections()
    sys.setswitchinterval(_SWITCH_S)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        backlog=_BACKLOG,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(int(options.drain_s), 1),
    )
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    DrainingServer(config, app, lambda: on_ready(url_of(listening))).run([listening])
