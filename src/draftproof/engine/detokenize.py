"""Token ids to text while they arrive: never half a character, never the start of a stop string.

The reference is the decode of all ids at once; deltas must add up to exactly that. Decoding token by token
does not: a character may span tokens, and some decoders treat the first token differently (a leading space is
dropped). So a short window is decoded, whose first tokens are already out and serve as context only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from draftproof import compat

_BROKEN = "\N{REPLACEMENT CHARACTER}"
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_MAX_BROKEN = 64  # tokens; no character is that long, so what is undecided for longer is garbage
_CHAR_TOKENS = 4  # tokens an unfinished character can span, and one to spare


@dataclass(frozen=True)
class Delta:
    """Result of one push.

    ``text``: newly final text; ``tokens_used``: how many of the pushed tokens belong to the answer (all,
    unless a stop string completed); ``stopped``: that stop string, if any.
    """

    text: str
    tokens_used: int
    stopped: str | None = None


class IncrementalDetokenizer:
    """Streams one answer. All decisions are taken token by token, so the grouping of pushes does not matter.

    An answer ends with the first token after which its decoded text contains a stop string, and is cut before
    the leftmost one. Text is final once no further token can change it: not while a character is unfinished,
    nor inside a run of byte-fallback tokens (``<0xE2>``), since their decoder rejects or accepts a run as a
    whole. Stop strings are looked for in complete characters that are not final yet, too.

    Cost is linear in the answer: each token decodes a window of a few tokens. Only runs of byte-fallback
    tokens make the window as long as the run.

    ``tokenizer``: a ``transformers`` tokenizer or a ``tokenizers.Tokenizer``; its clean-up of spaces before
    punctuation is turned off, since that rewrites text already sent. ``min_tokens``: stop strings are not
    looked for until more tokens than that have come, as in vLLM.
    """

    def __init__(
        self, tokenizer: Any, stop: Sequence[str] = (), skip_special_tokens: bool = True, min_tokens: int = 0
    ) -> None:
        self._stop = tuple(stop)
        self._skip = skip_special_tokens
        self._extra = (
            {"clean_up_tokenization_spaces": False} if hasattr(tokenizer, "clean_up_tokenization_spaces") else {}
        )
        bare = compat.bare_decode(tokenizer)
        if bare is not None:
            self._decoder, self._extra = bare, {}
        else:
            self._decoder = tokenizer.decode
        self._alone, self._bytes = _known_of(tokenizer)
        self._to_token = getattr(tokenizer, "convert_ids_to_tokens", None) or tokenizer.id_to_token
        self._min_tokens = min_tokens
        self._seen = 0
        self._window: list[int] = []  # context tokens, whose text is settled, then undecided ones
        self._context = 0  # how many of them are context
        self._base = ""  # the context's text when decoded by itself
        self._tail = ""  # the undecided tokens' text
        self._held = ""  # settled text that may be the start of a stop string
        self._stopped: str | None = None

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the answer, if one did."""
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
        """The rest of the text at the end of an answer, unfinished characters too. Empty after a stop."""
        rest = self._held + self._tail
        self._held = self._tail = ""
        self._window, self._context, self._base = [], 0, ""
        return rest

    def _decode(self, ids: list[int], skip: bool | None = None) -> str:
        skip = self._skip if skip is None else skip
        if len(ids) == 1:  # every other time: the context of a window is nearly always one token
            known = self._alone.get((ids[0], skip))
            if known is not None:
                return known
        text: str = self._decoder(ids, skip_special_tokens=skip, **self._extra)
        if len(ids) == 1:
            self._alone[ids[0], skip] = text
        return text

    def _step(self, token: int) -> str:
        """Take one token; return the text that became final."""
        self._seen += 1
        tail = self._decode([*self._window, token])[len(self._base) :]
        if tail == self._tail and self._is_skipped(token):
            return ""  # the decoder never sees it: what was undecided stays so
        self._window.append(token)
        self._tail = tail
        if self._stop and self._seen > self._min_tokens:
            cut = self._cut_at_stop()
            if cut is not None:
                return cut
        if tail.endswith(_BROKEN):
            if len(self._window) - self._context > _MAX_BROKEN and not self._is_byte(token):
                self._settle_garbage()
        elif tail and not self._is_byte(token):
            self._settle(len(self._window))
            self._tail = ""
        return self._release()

    def _is_skipped(self, token: int) -> bool:
        return self._skip and self._decode([token]) == "" and self._decode([token], skip=False) != ""

    def _is_byte(self, token: int) -> bool:
        known = self._bytes.get(token)
        if known is None:
            known = self._bytes[token] = _BYTE_TOKEN.fullmatch(self._to_token(token) or "") is not None
        return known

    def _cut_at_stop(self) -> str | None:
        """If a stop string is complete, end here and return the text before the leftmost; else None."""
        text = self._held + self._tail.rstrip(_BROKEN)
        found = [(at, s) for s in self._stop if (at := text.find(s)) >= 0]
        if not found:
            return None
        at, self._stopped = min(found, key=lambda hit: hit[0])
        self._held = self._tail = ""
        return text[:at]

    def _settle(self, end: int) -> None:
        """Make the window's tokens up to ``end`` context and their text final; forget older context.

        Context must have text of its own: only then is what decoders do to the first token (drop its leading
        space) done to the context and not to what follows.
        """
        whole = end == len(self._window)
        text = self._tail if whole else self._decode(self._window[:end])[len(self._base) :]
        start = self._context
        self._base = self._decode(self._window[start:end])
        while not self._base and start > 0:
            start -= 1
            self._base = self._decode(self._window[start:end])
        self._held += text
        self._window = self._window[start:]
        self._context = end - start

    def _settle_garbage(self) -> None:
        """Many undecided tokens without byte fallback: invalid bytes. Settle all but the last few.

        Safe where both sides decode by themselves to what they decode to together: no character spans the
        cut.
        """
        end = len(self._window) - _CHAR_TOKENS
        head = self._decode(self._window[:end])[len(self._base) :]
        rest = self._decode(self._window[end:])
        if head + rest == self._tail:
            self._settle(end)
            self._tail = rest

    def _release(self) -> str:
        """Settled text without the longest suffix that begins a stop string."""
        keep = 0
        for stop in self._stop:
            longest = min(len(stop) - 1, len(self._held))
            keep = max(keep, next((n for n in range(longest, keep, -1) if self._held.endswith(stop[:n])), 0))
        text, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return text


_Known = tuple[dict[tuple[int, bool], str], dict[int, bool]]
_KNOWN: WeakKeyDictionary[Any, _Known] = WeakKeyDictionary()


def _known_of(tokenizer: Any) -> _Known:
    """What was found out about a tokenizer's tokens: their text alone by (id, skip), and which are single bytes."""
    try:
        return _KNOWN.setdefault(tokenizer, ({}, {}))
    except TypeError:  # a kind that cannot be referred to weakly, or be a key
        return {}, {}
