"""The engine: a target, perhaps a drafter, a K/V pool, and requests that come and go.

``generate`` and ``stream`` are the ordinary way in; ``add_request``, ``step`` and ``abort`` are what a server
builds on. Everything that happens comes out as typed events.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, cast

import torch

from draftproof.drafters.base import Drafter
from draftproof.drafters.loading import load_drafter
from draftproof.engine.checks import check_constrained, check_request
from draftproof.engine.constraint import ConstraintMaker
from draftproof.engine.core import EngineCore
from draftproof.engine.detokenize import IncrementalDetokenizer
from draftproof.engine.options import DRAFTER_OPTIONS, EngineOptions, LengthPolicy
from draftproof.engine.policy import Costs
from draftproof.engine.request import Request
from draftproof.engine.rng import RequestRng
from draftproof.engine.sampling import TokenHistory, needs_processing
from draftproof.engine.sizes import engine_sizes
from draftproof.engine.types import Event, Method, RequestFinished, RequestOutput, SamplingParams
from draftproof.errors import CapabilityError, UsageError
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

    def with_method(
        self, method: Method, tree_budget: int | None = None, *, length_policy: LengthPolicy | None = None
    ) -> Engine:
        """Another engine on the same weights that decodes in another way, with a K/V pool of its own. Run the two
        one at a time."""
        options = replace(
            self.options,
            method=method,
            tree_budget=tree_budget or self.options.tree_budget,
            length_policy=length_policy or ("adaptive" if self.options.adaptive else "fixed"),
        )
        drafter = None if method == "none" else self.drafter
        names = self._names if drafter else self._names | {"drafter": "none"}
        opened = OpenedTarget(self.target, self.tokenizer, list(self._notes))
        _refuse_tree(self._names["target"], self.target, options)
        # A curve measured for chains is right for trees too: both are by rows.
        costs = self.core.costs if drafter and options.adaptive and self.options.adaptive else None
        return type(self)._of(opened, drafter, options, names, costs)

    def with_drafter(self, make: DrafterMaker, **changes: Any) -> Engine:
        """Another engine on the same target, with another drafter and the same options but for ``changes``."""
        return self.around(self.target, make(self.target), **changes)

    def around(self, target: Target, drafter: Drafter | None = None, **changes: Any) -> Engine:
        """Another engine on ``target`` (this one's, or one that stands in for it), with the same options but for
        ``changes``."""
        of_drafter = ("tree_budget", *(DRAFTER_OPTIONS if drafter is None else ()))
        given = {f.name: getattr(self.options, f.name) for f in fields(self.options) if f.name not in of_drafter}
        if drafter is not None and self.options.method == "tree":
            given["tree_budget"] = self.options.tree_budget
        if drafter is None:
            given["method"] = "none"
        options = EngineOptions.make(drafter.name if drafter else None, given | changes)
        opened = OpenedTarget(target, self.tokenizer, list(self._notes))
        _refuse_tree(self._names["target"], target, options)
        names = self._names | {"drafter": drafter.name if drafter else "none"}
        return type(self)._of(opened, drafter, options, names)

    @classmethod
    def _of(
        cls,
        opened: OpenedTarget,
        drafter: Drafter | None,
        options: EngineOptions,
        names: dict[str, str],
        costs: Costs | None = None,
    ) -> Engine:
        engine = cls.__new__(cls)
        engine._set_up(opened, drafter, options, names, costs)
        return engine

    def _set_up(
        self,
        opened: OpenedTarget,
        drafter: Drafter | None,
        options: EngineOptions,
        names: dict[str, str],
        costs: Costs | None = None,
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
        sizes = engine_sizes(self.target, drafter, options)
        self.max_model_len, self.tree_budget = sizes.max_model_len, sizes.tree_budget
        self._limited_by = sizes.limited_by
        if sizes.note:
            self._notes.append(sizes.note)
        self.core = EngineCore(self.target, drafter, self.method, options, sizes, costs)
        self.pool, self.scheduler = self.core.pool, self.core.scheduler
        self.prefix_cache = self.core.prefix_cache

    # -- requests -----------------------------------------------------------------------------------------

    def add_request(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        cache_salt: str | None = None,
        constraint: ConstraintMaker | None = None,
    ) -> str:
        """Queue a prompt (text or token ids); returns its id. Nothing runs until ``step``. From any thread.

        ``cache_salt``: prefixes are shared only among requests with the same salt. ``constraint`` makes the state
        that says which tokens may follow, one for each of ``n`` answers. Raises :class:`UsageError` for what could
        never run.
        """
        params = params or SamplingParams()
        ids = self.encode(prompt)
        check_request(
            ids,
            params,
            self.target.info.vocab_size,
            self.max_model_len,
            limited_by=self._limited_by,
            has_tokenizer=self.tokenizer is not None,
        )
        stop_ids = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self.eos_token_ids)
        if constraint is not None:
            check_constrained(params, stop_ids)
        request_id = request_id or self._new_id()
        requests = self._requests(request_id, ids, params, cache_salt, stop_ids)
        for request in requests:
            request.constraint = constraint() if constraint is not None else None
        self.core.submit(requests)
        return request_id

    def _requests(
        self, request_id: str, ids: list[int], params: SamplingParams, salt: str | None, stop_ids: frozenset[int]
    ) -> list[Request]:
        """``n`` requests, the others of which share the first one's prompt."""
        seed = params.seed if params.seed is not None else int.from_bytes(os.urandom(8), "little")
        requests: list[Request] = []
        for index in range(params.n):
            requests.append(
                Request(
                    request_id,
                    list(ids),
                    params,
                    limit=min(len(ids) + params.max_tokens, self.max_model_len),
                    stop_ids=stop_ids,
                    rng=RequestRng(seed + index),
                    history=TokenHistory(ids, self.target.info.vocab_size) if needs_processing(params) else None,
                    detokenizer=self._detokenizer(params),
                    index=index,
                    salt=salt,
                    parent=requests[0] if requests else None,
                )
            )
        return requests

    def _detokenizer(self, params: SamplingParams) -> IncrementalDetokenizer | None:
        if self.tokenizer is None:
            return None
        return IncrementalDetokenizer(self.tokenizer, params.stop, min_tokens=params.min_tokens)

    @property
    def has_work(self) -> bool:
        """Is there anything for ``step`` to do?"""
        return self.core.has_work

    def step(self) -> list[Event]:
        """Take in what arrived, then run one pass: a round of every running request and pieces of prompts. One
        thread at a time; others may add and abort requests meanwhile."""
        return self.core.step()

    def abort(self, request_id: str) -> bool:
        """End a request, from any thread, and free what it holds: at once, or after the pass that is running. Its
        last event comes out of the next ``step``. False if the id is unknown or has finished: nothing is left to
        do."""
        return self.core.abort(request_id)

    # -- the ordinary way in ------------------------------------------------------------------------------

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Run prompts (one or many; text or token ids) to their end, many at once. Outputs in prompt order,
        with ``n`` > 1 all answers to a prompt one after the other."""
        many = _as_list(prompts)
        each = list(params) if isinstance(params, Sequence) else [params or SamplingParams()] * len(many)
        if len(each) != len(many):
            raise UsageError(f"{len(many)} prompts but {len(each)} sampling parameters: give one for all or one each")
        outputs: list[list[RequestOutput]] = []
        try:
            for prompt, parameters in zip(many, each, strict=True):
                ids, name = self.encode(prompt), self._new_id()
                outputs.append([RequestOutput(name, list(ids), index=i) for i in range(parameters.n)])
                self._mail[name] = deque()
                self.add_request(ids, parameters, name)
            for answers in outputs:
                for event in self._delivered(answers[0].request_id, len(answers)):
                    answers[event.index].apply(event)
            return [answer for answers in outputs for answer in answers]
        finally:
            self._forget([answers[0].request_id for answers in outputs])

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        cache_salt: str | None = None,
        constraint: ConstraintMaker | None = None,
    ) -> Iterator[Event]:
        """Events of one request as they happen. Closing the iterator aborts the request. Several streams may be
        read in turn: each step serves all of them."""
        name = self._new_id()
        self._mail[name] = deque()
        try:
            self.add_request(prompt, params, name, cache_salt=cache_salt, constraint=constraint)
            yield from self._delivered(name, params.n if params else 1)
        finally:
            self._forget([name])

    def _new_id(self) -> str:
        return next(name for i in self._ids if not self.core.requests_of(name := f"request-{i}"))

    def _delivered(self, request_id: str, answers: int) -> Iterator[Event]:
        """This request's events to the last of each answer; steps the engine whenever none is at hand."""
        mail = self._mail[request_id]
        while answers:
            while mail:
                event = mail.popleft()
                answers -= isinstance(event, RequestFinished)
                yield event
            if answers:
                for event in self.step():
                    self._mail.get(event.request_id, deque()).append(event)

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
