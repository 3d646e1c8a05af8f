"""Token ids to text while they arrive: never half a character, never the start of a stop string.

The reference is the decode of all ids at once; deltas must add up to exactly that. Decoding token by token does
not: a character may span tokens, and some decoders treat the first token differently (a leading space is
dropped). So a short window is decoded, whose first tokens are already out and serve as context only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_BROKEN = "\N{REPLACEMENT CHARACTER}"
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
# A run of undecided tokens this long is garbage or a script spelled in byte tokens: it is settled early so that
# cost stays linear and text keeps flowing. An unfinished character spans 3 tokens at most, hence the slack.
_MAX_UNDECIDED = 64
_SLACK = 4


@dataclass(frozen=True)
class Delta:
    """Result of one push. ``text``: newly final text; ``tokens_used``: how many of the pushed tokens belong to
    the answer (all, unless a stop string completed); ``stopped``: that stop string, if any.
    """

    text: str
    tokens_used: int
    stopped: str | None = None


class IncrementalDetokenizer:
    """Streams one answer. All decisions are taken token by token, so the grouping of pushes does not matter.

    An answer ends with the first token after which the decoded text contains a stop string; it is cut before
    the leftmost one. Text is final once no further token can change it: not while a character is unfinished,
    nor inside a run of byte-fallback tokens (``<0xE2>``), which decoders judge as a whole. Stop strings are
    looked for in provisional text too. Runs of more than 64 undecided tokens are settled early; only then, and
    only around invalid bytes, the sum of deltas may differ from the one-shot decode.

    ``tokenizer``: a ``transformers`` tokenizer or a ``tokenizers.Tokenizer``; its clean-up of spaces before
    punctuation is turned off, since that rewrites text already sent. ``min_tokens``: stop strings that complete
    within that many tokens are ignored, as in vLLM.
    """

    def __init__(
        self, tokenizer: Any, stop: Sequence[str] = (), skip_special_tokens: bool = True, min_tokens: int = 0
    ) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._options: dict[str, bool] = {"skip_special_tokens": skip_special_tokens}
        if hasattr(tokenizer, "clean_up_tokenization_spaces"):
            self._options["clean_up_tokenization_spaces"] = False
        self._to_token = getattr(tokenizer, "convert_ids_to_tokens", None) or tokenizer.id_to_token
        self._min_tokens = min_tokens
        self._seen = 0
        self._window: list[int] = []  # context tokens, then undecided ones
        self._context = 0  # how many of the window's tokens are context
        self._base = ""  # the context's own text
        self._tail = ""  # undecided text after it
        self._in_bytes = False  # the last token with text is a byte-fallback token
        self._held = ""  # final, but possibly the start of a stop string
        self._stopped: str | None = None

    @property
    def stopped(self) -> str | None:
        return self._stopped

    def push(self, token_ids: Sequence[int]) -> Delta:
        """Take the next tokens of the answer. After a stop nothing more is taken or emitted."""
        if self._stopped is not None:
            return Delta("", 0, self._stopped)
        text: list[str] = []
        for used, token in enumerate(token_ids, start=1):
            text.append(self._step(token))
            if self._stopped is not None:
                return Delta("".join(text), used, self._stopped)
        return Delta("".join(text), len(token_ids))

    def flush(self) -> str:
        """The rest of the text at the end of an answer: held back and unfinished. Empty after a stop."""
        rest = "" if self._stopped is not None else self._held + self._tail
        self._held = self._tail = ""
        return rest

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, **self._options)
        return text

    def _step(self, token: int) -> str:
        self._seen += 1
        self._window.append(token)
        tail = self._decode(self._window)[len(self._base) :]
        if tail == self._tail and self._context + 1 < len(self._window) or not tail and not self._tail:
            return self._without_text()
        self._tail = tail
        self._in_bytes = _BYTE_TOKEN.fullmatch(self._to_token(token) or "") is not None
        cut = self._find_stop()
        if cut is not None:
            return cut
        self._settle()
        return self._release()

    def _without_text(self) -> str:
        """The token changed nothing (a skipped special token): forget it, whatever was undecided stays so."""
        return ""

    def _find_stop(self) -> str | None:
        return None

    def _settle(self) -> None: ...

    def _release(self) -> str:
        return ""
