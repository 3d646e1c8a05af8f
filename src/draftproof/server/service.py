"""What the endpoints share: the engine's runner, texts, grammars, metrics, and the checks before anything is queued."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from draftproof.engine.constraint import ConstraintMaker
from draftproof.engine.engine import Engine
from draftproof.engine.types import Event, SamplingParams
from draftproof.errors import UsageError
from draftproof.server.errors import ApiError
from draftproof.server.grammar import Grammars, grammar_of
from draftproof.server.job import Ask, Deadline, Job
from draftproof.server.live import Live
from draftproof.server.metrics import Metrics
from draftproof.server.options import ServerOptions
from draftproof.server.prompting import Prompts
from draftproof.server.responses import TokenTexts
from draftproof.server.runner import EngineRunner
from draftproof.server.schema_common import SamplingBody


class Service:
    def __init__(self, engine: Engine, options: ServerOptions) -> None:
        if engine.tokenizer is None:
            raise UsageError("the target has no tokenizer: a server needs one")
        self.engine, self.options = engine, options
        self.name = options.served_model_name or str(engine.describe()["target"])
        self.prompts = Prompts(engine)
        self.grammars = Grammars(engine)
        self.text_of = TokenTexts(engine.tokenizer, self.grammars.tokens)
        self.metrics = Metrics(engine, self.name)
        self.live = Live(engine)
        self.runner = EngineRunner(engine, self._on_step)
        self.draining = False

    def _on_step(self, events: Sequence[Event], seconds: float) -> None:
        self.metrics.on_step(events, seconds)
        self.live.on_step(events, seconds)

    @property
    def ready(self) -> bool:
        return self.runner.alive and not self.draining

    # -- before a request is queued -----------------------------------------------------------------------

    def check_model(self, name: str | None) -> None:
        if name is not None and name != self.name:
            raise ApiError(
                404,
                f"model {name[:200]!r} is not served here: use {self.name!r}",
                param="model",
                code="model_not_found",
            )

    def check_room(self, answers: int) -> None:
        """429 when as many answers wait as may."""
        limit = self.engine.options.max_num_seqs + self.options.max_queue
        if answers > limit:
            raise ApiError(400, f"{answers} answers at once: this server takes up to {limit}", param="n")
        if self.runner.answers + answers > limit:
            seconds = self.metrics.mean_request_s * self.runner.answers / self.engine.options.max_num_seqs
            raise ApiError(
                429,
                f"{self.runner.answers} answers are waiting or running, of {limit} that may: try again later",
                code="queue_full",
                retry_after=min(max(math.ceil(seconds), 1), 60),
            )

    def check_prompt(self, ids: Sequence[int], limit: int | None) -> None:
        most = self.engine.max_model_len
        if len(ids) >= most or (limit is not None and len(ids) + limit > most):
            answer = "" if limit is None else f" and up to {limit} are to be generated"
            raise ApiError(
                400,
                f"the prompt has {len(ids)} tokens{answer}, but prompt and answer together may have {most}",
                param="messages" if limit is None else None,
                code="context_length_exceeded",
            )

    def params(self, body: SamplingBody, prompt_length: int, limit: int | None, logprobs: int | None) -> SamplingParams:
        """As the engine takes them; OpenAI's defaults where nothing is given."""
        given: dict[str, Any] = {
            name: value
            for name in (
                "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "seed",
                "min_tokens", "ignore_eos", "n",
            )
            if (value := getattr(body, name)) is not None
        }  # fmt: skip
        try:
            return SamplingParams(
                temperature=1.0 if body.temperature is None else body.temperature,
                logit_bias={int(t): b for t, b in body.logit_bias.items()} if body.logit_bias else None,
                stop=tuple(body.stops),
                stop_token_ids=tuple(body.stop_token_ids or ()),
                max_tokens=limit or self.most_tokens(prompt_length),
                logprobs=logprobs,
                **given,
            )
        except UsageError as error:
            raise _refused(error) from None

    def most_tokens(self, prompt_length: int) -> int:
        """As many as context and pool have room for."""
        pool = self.engine.pool
        return max(min(self.engine.max_model_len, pool.num_blocks * pool.block_size) - prompt_length, 1)

    async def constraint(self, body: SamplingBody, calls: str | None = None) -> ConstraintMaker | None:
        """``calls``: the grammar of the tool calls that must be kept to."""
        wanted = body.response_format is not None and body.response_format.type != "text"
        if wanted and calls is not None:
            raise ApiError(400, "response_format cannot be kept to together with this tool_choice or strict tools",
                           param="response_format", code="unsupported")  # fmt: skip
        if calls is not None:
            return await self.prompts.work(self.grammars.maker, calls, "tools")
        if not wanted:
            return None
        grammar = await self.prompts.work(grammar_of, body.response_format)
        return await self.prompts.work(self.grammars.maker, grammar, "response_format")

    def start(self, ask: Ask) -> Job:
        """Queue it; raises :class:`ApiError` for what the engine refuses."""
        self.check_room(len(ask.prompts) * ask.params.n)
        if self.draining or not self.runner.alive:
            raise ApiError(503, "the server is shutting down", code="draining", retry_after=5)
        try:
            return Job(self.runner, ask, self.metrics)
        except UsageError as error:
            raise _refused(error) from None

    def deadline(self, body: SamplingBody) -> Deadline:
        if body.timeout_s is not None and body.timeout_s < self.options.request_timeout_s:
            return Deadline(body.timeout_s, asked=True)
        return Deadline(self.options.request_timeout_s)


def _refused(error: UsageError) -> ApiError:
    """The engine's refusals begin with the parameter they are about."""
    first = str(error).split("=")[0].split(":")[0].strip()
    return ApiError(400, str(error), param=first if first.isidentifier() else None, code="invalid_value")
