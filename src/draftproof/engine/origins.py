"""Which characters of the answer came from drafted tokens and which from the target itself.

Text becomes final later than tokens do (half characters, possible stop strings), so origins are kept per
character and handed out as text arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from draftproof.engine.types import Event, RequestFinished, TokensCommitted

_UNFINISHED = "\ufffd"  # what a tokenizer prints for the first bytes of a character


class OriginTracker:
    """Splits the text of events into pieces of one origin: drafted (True) or the target's own (False)."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._settled = 0  # ids before this are decoded; they stay as the context a tokenizer needs
        self._window = 0  # where decoding starts
        self._origins: list[bool] = []

    def pieces(self, event: Event) -> Iterator[tuple[str, bool]]:
        if isinstance(event, TokensCommitted):
            for index, token in enumerate(event.token_ids):
                self._add(token, drafted=index < event.accepted)
        elif not isinstance(event, RequestFinished):
            return
        text = event.text
        origins = self._origins[: len(text)]
        del self._origins[: len(text)]
        origins += [False] * (len(text) - len(origins))
        start = 0
        for drafted, run in groupby(origins):
            end = start + len(list(run))
            yield text[start:end], drafted
            start = end

    def _add(self, token: int, *, drafted: bool) -> None:
        self._ids.append(token)
        before = self._decode(self._ids[self._window : self._settled])
        after = self._decode(self._ids[self._window :])
        if after.endswith(_UNFINISHED):
            return  # the character belongs to the token that completes it
        self._origins += [drafted] * max(len(after) - len(before), 0)
        self._window, self._settled = self._settled, len(self._ids)

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True)) if ids else ""
