"""Structured output: from a ``response_format`` or a tool choice to masks for the engine, by llguidance.

A grammar is compiled once per request and copied per answer. The matcher can take back tokens exactly, which is what
asking about drafted tokens needs — except the end-of-sequence token, which therefore never reaches it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import llguidance
import llguidance.hf
import numpy as np
import torch
from torch import Tensor

from draftproof.engine.constraint import ConstraintMaker
from draftproof.engine.engine import Engine
from draftproof.errors import DraftproofError
from draftproof.server.errors import ApiError
from draftproof.server.schema_common import ResponseFormat

# One blank, or one line break and an indent: what models write, and no room to go on with blanks for ever.
WHITESPACE = r" ?\n {0,32}| "
MAX_NESTING = 100  # brackets of a regex or grammar: the compiler is recursive
_LIMITS = {"step_lexer_fuel": 2_000_000, "verbose_errors": False}


class GrammarConstraint:
    """A :class:`draftproof.engine.constraint.Constraint`. ``matcher`` stands after the committed tokens and those of
    ``_ahead``, which are moved along and taken back as paths are asked about. ``ends``: end-of-sequence ids."""

    def __init__(self, matcher: Any, vocab_size: int, ends: frozenset[int]) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._ends = ends
        self._ahead: list[int] = []

    def allowed(self, path: Sequence[int]) -> Tensor:
        self._move(path)
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._check()
        mask = np.unpackbits(bits, bitorder="little", count=self._vocab_size)
        return torch.from_numpy(mask.view(np.bool_))

    def accepts(self, path: Sequence[int], token: int) -> bool:
        self._move(path)
        if token in self._ends:  # which validate_tokens refuses where nothing else may come
            return bool(self._matcher.is_accepting())
        return bool(self._matcher.validate_tokens([token]))

    def advance(self, token: int) -> None:
        self._move([token])
        self._ahead = []

    def _move(self, path: Sequence[int]) -> None:
        same = next((i for i, (a, b) in enumerate(zip(self._ahead, path, strict=False)) if a != b), None)
        same = min(len(self._ahead), len(path)) if same is None else same
        if len(self._ahead) > same:
            self._matcher.rollback(len(self._ahead) - same)
            del self._ahead[same:]
        rest = list(path[same:])
        if rest:
            taken = self._matcher.try_consume_tokens(rest)
            self._ahead += rest[:taken]
            if taken < len(rest):
                self._check()
                raise DraftproofError(f"token {rest[taken]} does not fit the grammar after {len(self._ahead)} others")

    def _check(self) -> None:
        if self._matcher.is_error():
            raise DraftproofError(f"the grammar cannot be followed any further: {_one_line(self._matcher.get_error())}")


class Grammars:
    """Compiles for one target. Making the tokenizer's table takes about a second, once."""

    def __init__(self, engine: Engine) -> None:
        self._vocab_size = engine.target.info.vocab_size
        self._ends = engine.eos_token_ids
        try:
            self.tokens = llguidance.hf.from_tokenizer(
                engine.tokenizer, n_vocab=self._vocab_size, eos_token=sorted(engine.eos_token_ids) or None
            )
            self.why_not = "" if engine.eos_token_ids else "the target has no end-of-sequence token"
        except ValueError as error:
            self.tokens, self.why_not = None, f"the target's tokenizer cannot be read: {_one_line(str(error))}"

    def maker(self, grammar: str, param: str) -> ConstraintMaker:
        """Raises :class:`ApiError` for what cannot be compiled. Takes a while for large grammars: not for the event
        loop."""
        if self.why_not:
            raise ApiError(400, f"{param} is not possible here: {self.why_not}", param=param, code="unsupported")
        matcher = llguidance.LLMatcher(
            self.tokens,
            grammar,
            log_level=0,
            limits=llguidance.LLParserLimits(**_LIMITS),  # type: ignore[arg-type]
        )
        if not matcher.is_error():
            matcher.compute_bitmask()  # shows what compiles but can never be matched
        if matcher.is_error():
            reason = matcher.get_error()
            reason = "nothing can match it" if reason.startswith("NoExtension") else _one_line(reason)
            raise ApiError(400, f"{param}: {reason}", param=param, code="invalid_value")
        return lambda: GrammarConstraint(matcher.deep_copy(), self._vocab_size, self._ends)


def grammar_of(format: ResponseFormat) -> str | None:
    """The grammar for a ``response_format``; None for plain text."""
    match format.type:
        case "text":
            return None
        case "json_object":
            return json_grammar({"type": "object"})
        case "json_schema":
            assert format.json_schema is not None
            return json_grammar(format.json_schema.schema_)
        case "regex":
            return _guarded("regex", format.pattern or "")
        case _:
            return _guarded("gbnf", format.grammar or "")


def json_grammar(schema: dict[str, Any]) -> str:
    try:
        grammar: str = llguidance.LLMatcher.grammar_from_json_schema(
            schema, overrides={"whitespace_pattern": WHITESPACE, "whitespace_flexible": True}
        )
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"response_format: {_one_line(str(error))}", param="response_format") from None
    return grammar


def lark_json(schema: dict[str, Any]) -> str:
    """A schema as part of a Lark grammar."""
    inner = dict(schema) | {"x-guidance": {"whitespace_pattern": WHITESPACE, "whitespace_flexible": True}}
    return f"%json {json.dumps(inner)}"


def _guarded(kind: Any, text: str) -> str:
    deepest = depth = 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING:
        raise ApiError(400, f"response_format: nested more than {MAX_NESTING} deep", param="response_format")
    try:
        return llguidance.grammar_from(kind, text)
    except ValueError as error:
        raise ApiError(400, f"response_format: {_one_line(str(error))}", param="response_format") from None


def _one_line(text: str, most: int = 300) -> str:
    return " ".join(text.split())[:most] or "no reason given"
