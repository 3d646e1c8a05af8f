"""Summaries that benchmarks and offline examples print, one field per line: "Drafts: 20312", "num_drafts: 4816"."""

from __future__ import annotations

import math
import re

from draftproof.proof.runtime.windows import Window

_FIELDS = {
    "drafts": ("drafts", "num_drafts", "spec_decode_num_drafts_total"),
    "drafted": ("draft tokens", "num_draft_tokens", "n_drafted"),
    "accepted": ("accepted tokens", "num_accepted_tokens", "n_accept"),
    "length": ("acceptance length", "mean acceptance length"),
}
_NAMES = {name: field for field, names in _FIELDS.items() for name in names}
_LINE = re.compile(r"(?:^|[\s\]])(" + "|".join(sorted(map(re.escape, _NAMES), key=len, reverse=True)) + r")\s*[:=]\s*")
_VALUE = re.compile(r"(-?[\d,]+(?:\.\d+)?)\s*$")
_POSITION = re.compile(r"(?:acceptance at token|position)\s*(\d+)\s*(?:\(%\))?:\s*([\d.]+)\s*(%?)")


class Summary:
    """Collects fields until a window is complete: drafted and accepted tokens, the number of drafts if it is there."""

    def __init__(self) -> None:
        self._got: dict[str, float] = {}
        self._rates: dict[int, float] = {}

    def line(self, text: str) -> Window | None:
        """A new field may complete a window; the same field again starts the next one."""
        lowered = text.lower()
        if position := _POSITION.search(lowered):
            self._rates[int(position.group(1))] = float(position.group(2)) / (100.0 if position.group(3) else 1.0)
            return None
        name = _LINE.search(lowered)
        value = _VALUE.search(lowered[name.end() :]) if name else None
        if not name or not value:
            return None
        field, number = _NAMES[name.group(1)], float(value.group(1).replace(",", ""))
        if not math.isfinite(number) or number < 0:
            return None
        done = self.flush() if field in self._got else None
        self._got[field] = number
        return done

    def flush(self) -> Window | None:
        got, self._got = self._got, {}
        rates, self._rates = [rate for _, rate in sorted(self._rates.items())], {}
        if "accepted" not in got or "drafted" not in got or got["accepted"] > got["drafted"]:
            return None
        drafts = got.get("drafts")
        if drafts is None and got.get("length", 0) > 1:
            drafts = float(round(got["accepted"] / (got["length"] - 1.0)))
        hits = tuple(round(rate * drafts) for rate in rates) if drafts and rates and max(rates) <= 1.0 else None
        return Window(drafts, got["drafted"], got["accepted"], hits, length=got.get("length"))
