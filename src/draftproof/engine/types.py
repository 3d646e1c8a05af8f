"""What goes into the engine and what comes out: sampling parameters, requests, typed events, outputs.

Only events leave the engine; whoever listens (command line, benchmark) renders them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from draftproof.errors import UsageError

Method = Literal["none", "chain", "tree"]
FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True)
class SamplingParams:
    """How one request picks its tokens. Names and meanings are vLLM's and Hugging Face's.

    ``temperature`` 0 is greedy. ``top_k`` 0 or -1 and ``top_p`` 1 mean "off". ``repetition_penalty`` divides
    positive and multiplies negative logits of tokens seen in prompt or output; ``presence_penalty`` and
    ``frequency_penalty`` subtract, counting output tokens only. ``logprobs`` is the number of alternatives
    reported per token (0: only the chosen token's). ``stop`` strings are not part of the text returned. ``n``
    answers are given to one prompt, the i-th with ``seed`` + i.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    max_tokens: int = 256
    min_tokens: int = 0
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    n: int = 1

    def __post_init__(self) -> None:
        rules: list[tuple[bool, str, object, str]] = [
            (0.0 <= self.temperature < float("inf"), "temperature", self.temperature, "0 (greedy) or more"),
            (self.top_k >= -1, "top_k", self.top_k, "-1 or 0 (off) or a positive number"),
            (0.0 < self.top_p <= 1.0, "top_p", self.top_p, "above 0 and at most 1"),
            (0.0 <= self.min_p <= 1.0, "min_p", self.min_p, "between 0 and 1"),
            (
                0.0 < self.repetition_penalty < float("inf"),
                "repetition_penalty",
                self.repetition_penalty,
                "above 0",
            ),
            (
                -2.0 <= self.presence_penalty <= 2.0,
                "presence_penalty",
                self.presence_penalty,
                "between -2 and 2",
            ),
            (
                -2.0 <= self.frequency_penalty <= 2.0,
                "frequency_penalty",
                self.frequency_penalty,
                "between -2 and 2",
            ),
            (self.max_tokens >= 1, "max_tokens", self.max_tokens, "at least 1"),
            (self.n >= 1, "n", self.n, "at least 1"),
            (
                0 <= self.min_tokens <= self.max_tokens,
                "min_tokens",
                self.min_tokens,
                "between 0 and max_tokens",
            ),
            (
                self.logprobs is None or 0 <= self.logprobs <= 20,
                "logprobs",
                self.logprobs,
                "between 0 and 20",
            ),
        ]
        for good, name, value, allowed in rules:
            if not good:
                raise UsageError(f"{name}={value!r} is out of range: it must be {allowed}")
        for token, bias in (self.logit_bias or {}).items():
            if not bias < float("inf"):  # NaN and +inf; -inf bans a token
                raise UsageError(f"logit_bias: {bias!r} for token {token} must be a finite number or -inf")
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        if any(not isinstance(s, str) or not s for s in self.stop):
            raise UsageError(f"stop={list(self.stop)!r}: every stop string must be non-empty text")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def penalised(self) -> bool:
        """True when a token's logit depends on the tokens before it (so tree and chain rows differ)."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


@dataclass(frozen=True)
class TokenLogprob:
    """Log-probability of a committed token under the target's raw distribution, with the top alternatives."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class RoundStats:
    """One draft → verify → commit round of one request. Times in seconds, wall clock, of the whole batch's round.

    ``drafted``: tokens proposed (tree: nodes without the root); ``depth``: longest proposed continuation;
    ``accepted``: drafted tokens the target agreed with; ``produced``: tokens committed, bonus included (less
    than accepted + 1 only where a stop or a limit cut the round). ``verify_s``: the target's pass with the largest
    logit of its rows, and taking rows back; ``draft_s``: the drafter's passes and its context; ``host_s``: all else.
    """

    drafted: int
    depth: int
    accepted: int
    produced: int
    draft_s: float
    verify_s: float
    host_s: float


@dataclass(frozen=True)
class TokensCommitted:
    """Tokens that are now part of the answer, with the text that became final by them.

    ``accepted`` says how many of the leading ``token_ids`` were drafted (the rest is the target's own bonus).
    ``text`` never holds half a character nor the start of a possible stop string.
    """

    request_id: str
    token_ids: tuple[int, ...]
    text: str
    accepted: int
    logprobs: tuple[TokenLogprob, ...] | None = None
    index: int = 0  # which of the request's ``n`` answers; so in every event


@dataclass(frozen=True)
class RoundFinished:
    request_id: str
    stats: RoundStats
    index: int = 0


@dataclass(frozen=True)
class PrefillFinished:
    """The prompt is read. ``cached_tokens`` of it were found in the pool and not computed again; ``seconds`` is
    wall clock since the request's first pass began."""

    request_id: str
    prompt_tokens: int
    seconds: float
    cached_tokens: int = 0
    index: int = 0


@dataclass(frozen=True)
class LengthChosen:
    """The policy drafts another number of tokens for this request from now on, and why."""

    request_id: str
    length: int
    reason: str
    index: int = 0


@dataclass(frozen=True)
class RequestPreempted:
    """The pool was full: ``computed`` tokens will be computed again. Nothing of the answer changes."""

    request_id: str
    computed: int
    index: int = 0


@dataclass(frozen=True)
class DraftingStopped:
    """A warning: the drafter failed for this request, which goes on without drafts. The text is not affected."""

    request_id: str
    detail: str
    index: int = 0


@dataclass(frozen=True)
class RequestFinished:
    """The last event of an answer. ``text`` is text held back until now (may be empty)."""

    request_id: str
    reason: FinishReason
    text: str = ""
    detail: str = ""  # the stop string or id that ended it, or the error
    index: int = 0


Event = (
    PrefillFinished
    | TokensCommitted
    | RoundFinished
    | LengthChosen
    | RequestPreempted
    | DraftingStopped
    | RequestFinished
)


@dataclass
class RequestOutput:
    """One answer to one request; filled from its events. ``index`` counts the answers to one prompt (n > 1)."""

    request_id: str
    prompt_token_ids: list[int]
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: FinishReason | None = None
    finish_detail: str = ""
    rounds: list[RoundStats] = field(default_factory=list)
    logprobs: list[TokenLogprob] | None = None
    prefill_s: float = 0.0
    cached_tokens: int = 0
    preemptions: int = 0
    warnings: list[str] = field(default_factory=list)
    index: int = 0

    def apply(self, event: Event) -> None:
        """Take one event of this request into account."""
        match event:
            case PrefillFinished():
                self.prefill_s = event.seconds
                self.cached_tokens = event.cached_tokens
            case RequestPreempted():
                self.preemptions += 1
            case DraftingStopped():
                self.warnings.append(event.detail)
            case TokensCommitted():
                self.token_ids.extend(event.token_ids)
                self.text += event.text
                if event.logprobs is not None:
                    self.logprobs = (self.logprobs or []) + list(event.logprobs)
            case RoundFinished():
                self.rounds.append(event.stats)
            case RequestFinished():
                self.text += event.text
                self.finish_reason = event.reason
                self.finish_detail = event.detail
