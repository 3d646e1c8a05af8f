"""The engine: a target, perhaps a drafter, a K/V pool, and requests that come and go.

``generate`` and ``stream`` are the ordinary way in; ``add_request``, ``step`` and ``abort`` are what a server
builds on. Everything that happens comes out as typed events.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch

from draftproof.drafters.base import Drafter
from draftproof.drafters.loading import load_drafter
from draftproof.engine.checks import check_request
from draftproof.engine.detokenize import IncrementalDetokenizer
from draftproof.engine.options import EngineOptions
from draftproof.engine.pool import KVPool
from draftproof.engine.request import Request
from draftproof.engine.rng import RequestRng
from draftproof.engine.rounds import RoundLoop
from draftproof.engine.sampling import TokenHistory, needs_processing
from draftproof.engine.scheduler import Scheduler
from draftproof.engine.types import Event, Method, RequestFinished, RequestOutput, SamplingParams
from draftproof.errors import CapabilityError, DraftproofError, UsageError
from draftproof.targets.base import Target
from draftproof.targets.open import OpenedTarget, open_target, wrap_model

Prompt = str | Sequence[int]
DrafterMaker = Callable[[Target], Drafter]


class Engine:
    """Decodes with ``target``, sped up by ``drafter``, with the text the target alone would have written.

    ``target``: Hugging Face folder, hub id, ``.gguf`` file or ``bundled:smollm2``. ``drafter``: folder or hub id
    (z-lab, speculators or modelopt format), ``ngram``, ``random[:seed]`` or None. ``options`` are the fields of
    :class:`EngineOptions`. Raises :class:`draftproof.errors.DraftproofError` with a one-line remedy.
    """

    def __init__(self, target: str, drafter: str | None = None, **options: Any) -> None:
        chosen = EngineOptions.make(drafter, options)
        opened = open_target(target, chosen)
        _refuse_tree(target, opened.target, chosen)
        loaded = load_drafter(drafter, opened.target, chosen, opened.notes) if drafter else None
        self._set_up(opened, loaded, chosen, {"target": target, "drafter": drafter or "none"})

    @classmethod
    def from_model(
        cls, model: Any, tokenizer: Any = None, drafter: DrafterMaker | None = None, **options: Any
    ) -> Engine:
        """An engine around a loaded transformers model (which it takes over). ``drafter`` makes the drafter from
        the wrapped target, so that it can borrow its embeddings and head."""
        useless = sorted({"threads", "device", "dtype", "revision", "trust_remote_code"} & set(options))
        if useless:
            raise UsageError(f"{useless[0]} has no effect on a model that is loaded already")
        chosen = EngineOptions.make("given" if drafter else None, options)
        notes: list[str] = []
        opened = OpenedTarget(wrap_model(model, chosen, notes), tokenizer, notes)
        _refuse_tree(type(model).__name__, opened.target, chosen)
        made = drafter(opened.target) if drafter else None
        names = {"target": type(model).__name__, "drafter": made.name if made else "none"}
        return cls._of(opened, made, chosen, names)

    def with_method(self, method: Method, tree_budget: int | None = None) -> Engine:
        """Another engine on the same weights that decodes in another way, with a K/V pool of its own. Run the two
        one at a time."""
        options = replace(self.options, method=method, tree_budget=tree_budget or self.options.tree_budget)
        drafter = None if method == "none" else self.drafter
        names = self._names if drafter else self._names | {"drafter": "none"}
        opened = OpenedTarget(self.target, self.tokenizer, list(self._notes))
        _refuse_tree(self._names["target"], self.target, options)
        return type(self)._of(opened, drafter, options, names)

    @classmethod
    def _of(
        cls, opened: OpenedTarget, drafter: Drafter | None, options: EngineOptions, names: dict[str, str]
    ) -> Engine:
        engine = cls.__new__(cls)
        engine._set_up(opened, drafter, options, names)
        return engine

    def _set_up(
        self, opened: OpenedTarget, drafter: Drafter | None, options: EngineOptions, names: dict[str, str]
    ) -> None:
        self.options = options
        self.target, self.tokenizer, self._notes = opened.target, opened.tokenizer, opened.notes
        self.drafter = drafter
        self.method: Method = options.method if drafter else "none"
        if drafter is not None and drafter.name == "ngram" and self.method == "tree":
            raise CapabilityError("drafter 'ngram' proposes one chain, so method='tree' has no effect; use 'chain'")
        self._names = names
        self.eos_token_ids = frozenset(self.target.info.eos_token_ids)
        self._ids = itertools.count()
        self._mail: dict[str, deque[Event]] = {}  # events of streams not read yet
        self._build()

    def _build(self) -> None:
        """Pool, loop and scheduler, sized by the options."""
        wanted = self.options.max_model_len or self.target.info.max_position
        if wanted > self.target.info.max_position:
            raise UsageError(f"max_model_len={wanted} exceeds the target's {self.target.info.max_position} positions")
        drafted = self.drafter.num_draft_tokens if self.drafter else 0
        self.tree_budget = self.options.tree_budget or max(drafted, 1)
        ahead = 1 + max(self.tree_budget, drafted)
        drafter_shapes = self.drafter.kv_shapes if self.drafter else ()
        per_token = sum(s.bytes_per_token(self.target.info.dtype) for s in [*self.target.kv_shapes, *drafter_shapes])
        block = self.options.block_size
        affordable = int(self.options.kv_cache_gb * 2**30) // max(per_token * block, 1)
        self.max_model_len = min(wanted, affordable * block - ahead)
        if self.max_model_len < 2:
            raise UsageError(
                f"kv_cache_gb={self.options.kv_cache_gb} holds {max(affordable, 0)} blocks of {block} tokens "
                f"({per_token} bytes a token): too small for one request"
            )
        if self.max_model_len < wanted:
            self._notes.append(
                f"context limited to {self.max_model_len} tokens by kv_cache_gb={self.options.kv_cache_gb}"
            )
        most = -(-(self.max_model_len + ahead) // block) * self.options.max_num_seqs
        self.pool = KVPool(
            self.target.kv_shapes,
            drafter_shapes,
            num_blocks=min(affordable, most),
            block_size=block,
            max_seqs=self.options.max_num_seqs,
            max_len=self.max_model_len + ahead,
            dtype=self.target.info.dtype,
            device=self.target.info.device,
        )
        self.loop = RoundLoop(
            self.target,
            self.drafter,
            self.pool,
            method=self.method,
            tree_budget=self.tree_budget,
            draft_method=self.options.draft_sample_method,
        )
        self.scheduler = Scheduler(self.pool, self.loop.slots_ahead())

    # -- requests -----------------------------------------------------------------------------------------

    def add_request(self, prompt: Prompt, params: SamplingParams | None = None, request_id: str | None = None) -> str:
        """Queue a prompt (text or token ids); returns its id. Nothing runs until ``step``."""
        params = params or SamplingParams()
        request_id = request_id or f"request-{next(self._ids)}"
        if self.scheduler.knows(request_id):
            raise UsageError(f"request id {request_id!r} is already in use")
        ids = self.encode(prompt)
        check_request(
            ids, params, self.target.info.vocab_size, self.max_model_len, has_tokenizer=self.tokenizer is not None
        )
        stop_ids = set(params.stop_token_ids) | (set() if params.ignore_eos else self.eos_token_ids)
        seed = params.seed if params.seed is not None else int.from_bytes(os.urandom(8), "little")
        self.scheduler.add(
            Request(
                request_id,
                ids,
                params,
                limit=min(len(ids) + params.max_tokens, self.max_model_len),
                stop_ids=frozenset(stop_ids),
                rng=RequestRng(seed),
                history=TokenHistory(ids, self.target.info.vocab_size) if needs_processing(params) else None,
                detokenizer=self._detokenizer(params),
            )
        )
        return request_id

    def _detokenizer(self, params: SamplingParams) -> IncrementalDetokenizer | None:
        if self.tokenizer is None:
            return None
        return IncrementalDetokenizer(self.tokenizer, params.stop, min_tokens=params.min_tokens)

    def step(self) -> list[Event]:
        """Admit and prefill what fits, then run one round over all running requests."""
        events: list[Event] = []
        while (request := self.scheduler.admit()) is not None:
            events += self._guarded([request], partial(self.loop.prefill, request))
        if self.scheduler.running:
            batch = list(self.scheduler.running)
            events += self._guarded(batch, partial(self.loop.round, batch))
        return events

    def _guarded(self, batch: Sequence[Request], work: Callable[[], list[Event]]) -> list[Event]:
        """Run a piece of work for ``batch``; if it fails half-way its requests end, since their state is unknown.
        What has a remedy becomes an error event of theirs, anything else is raised with the engine left clean."""
        try:
            events = work()
        except (DraftproofError, MemoryError, torch.OutOfMemoryError) as error:
            detail = str(error) if isinstance(error, DraftproofError) else "out of memory: lower kv_cache_gb"
            events = [RequestFinished(r.request_id, "error", detail=detail) for r in batch]
        except BaseException:
            self._retire([RequestFinished(r.request_id, "error") for r in batch])
            raise
        self._retire(events)
        return events

    def abort(self, request_id: str) -> list[Event]:
        """End a request now and free what it holds. Unknown or finished ids are no error: nothing is left to do."""
        request = self.scheduler.remove(request_id)
        if request is None:
            return []
        self.target.release(request.seq)
        return [RequestFinished(request_id, "abort")]

    def _retire(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, RequestFinished):
                request = self.scheduler.remove(event.request_id)
                if request is not None:
                    self.target.release(request.seq)

    # -- the ordinary way in ------------------------------------------------------------------------------

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Run prompts (one or many; text or token ids) to their end, many at once. Outputs in prompt order."""
        many = _as_list(prompts)
        each = list(params) if isinstance(params, Sequence) else [params or SamplingParams()] * len(many)
        if len(each) != len(many):
            raise UsageError(f"{len(many)} prompts but {len(each)} sampling parameters: give one for all or one each")
        ids: list[str] = []
        try:
            for prompt, parameters in zip(many, each, strict=True):
                ids.append(self.add_request(prompt, parameters))
                self._mail[ids[-1]] = deque()
            outputs = [RequestOutput(r.request_id, list(r.token_ids)) for r in self.scheduler.requests(ids)]
            for output in outputs:
                for event in self._delivered(output.request_id):
                    output.apply(event)
            return outputs
        finally:
            self._forget(ids)

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[Event]:
        """Events of one request as they happen. Closing the iterator aborts the request. Several streams may be
        read in turn: each step serves all of them."""
        request_id = self.add_request(prompt, params)
        self._mail[request_id] = deque()
        try:
            yield from self._delivered(request_id)
        finally:
            self._forget([request_id])

    def _delivered(self, request_id: str) -> Iterator[Event]:
        """This request's events to its last; steps the engine whenever none is at hand."""
        mail = self._mail[request_id]
        while True:
            while mail:
                event = mail.popleft()
                yield event
                if isinstance(event, RequestFinished):
                    return
            for event in self.step():
                if event.request_id in self._mail:
                    self._mail[event.request_id].append(event)

    def _forget(self, request_ids: Sequence[str]) -> None:
        for request_id in request_ids:
            self.abort(request_id)
            self._mail.pop(request_id, None)

    # -- text ---------------------------------------------------------------------------------------------

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt as they will be run. Text gets the tokenizer's own special tokens."""
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise CapabilityError("the target has no tokenizer: give token ids instead of text")
            return list(self.tokenizer(prompt)["input_ids"])
        return [int(i) for i in prompt]

    def apply_chat_template(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Token ids of a conversation under the tokenizer's own template, ready for the assistant's answer."""
        if self.tokenizer is None or not getattr(self.tokenizer, "chat_template", None):
            raise CapabilityError("the target's tokenizer has no chat template; use --raw or give plain prompts")
        out = self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=True)
        return list(out["input_ids"])

    def describe(self) -> dict[str, Any]:
        """What is running and how, for a card or a log."""
        info = self.target.info
        return self._names | {
            "family": info.family,
            "backend": self.target.backend,
            "method": self.method,
            "device": str(info.device),
            "dtype": str(info.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "native": self.target.backend == "native",
            "invariant": self.target.invariant,
            "num_speculative_tokens": self.drafter.num_draft_tokens if self.drafter else 0,
            "tree_budget": self.tree_budget if self.method == "tree" else 0,
            "max_model_len": self.max_model_len,
            "notes": list(self._notes),
        }


def _refuse_tree(name: str, target: Target, options: EngineOptions) -> None:
    if options.method == "tree" and not target.capabilities.trees:
        raise CapabilityError(
            f"{name}: trees are not possible for {target.info.family} targets: "
            f"{target.capabilities.why_no_trees}; use method='chain'"
        )


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int)):
        return [cast(Prompt, prompts)]
    return list(cast(Sequence[Prompt], prompts))
