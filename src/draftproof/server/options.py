"""How the server itself is set up; what the engine takes stands in ``EngineOptions``."""

from __future__ import annotations

from dataclasses import dataclass, field

from draftproof.errors import UsageError


@dataclass(frozen=True)
class ServerOptions:
    """``max_queue``: answers that may wait beside the running ones before 429. ``request_timeout_s``: longest life of
    a request, waiting included. ``drain_s``: what running requests get after SIGTERM. ``body_timeout_s``: longest
    time a body may take to arrive."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = field(default=None, repr=False)
    served_model_name: str | None = None
    max_queue: int = 256
    request_timeout_s: float = 600.0
    drain_s: float = 30.0
    max_body_mb: float = 4.0
    body_timeout_s: float = 20.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise UsageError(f"port={self.port} is out of range: it must be between 0 (any free one) and 65535")
        if self.max_queue < 0:
            raise UsageError(f"max_queue={self.max_queue} is out of range: it must be at least 0")
        for name in ("request_timeout_s", "drain_s", "max_body_mb", "body_timeout_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"{name}={getattr(self, name)!r} is out of range: it must be above 0")
        if self.api_key is not None and not self.api_key.strip():
            raise UsageError("api_key is empty: leave it out to serve without a key")

    @property
    def max_body_bytes(self) -> int:
        return int(self.max_body_mb * 2**20)
