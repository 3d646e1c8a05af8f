"""Lines of vLLM: "SpecDecoding metrics" of the V1 engine, "Speculative metrics" of V0, engine throughput, start-up.

Fields are found by name, in any order, since their set has changed over the releases.
"""

from __future__ import annotations

import re

from draftproof.proof.runtime.windows import Window, window_of

MARK = re.compile(r"Spec(?:Decoding|ulative) metrics:|SpecDecoding:")
_NUMBER = r"\s*:?\s*(-?(?:\d+(?:\.\d*)?|nan|inf))"
_FIELDS = {
    "length": re.compile(r"[Mm]ean acceptance length" + _NUMBER),
    "accepted": re.compile(r"(?<!of )\b(?:Accepted:|Number of accepted tokens:)\s*(-?\d+|nan)"),
    "drafted": re.compile(r"\b(?:Drafted:|Number of draft tokens:)\s*(-?\d+|nan)"),
    "k": re.compile(r"Number of speculative tokens:\s*(\d+)"),
}
_RATES = re.compile(r"Per-position acceptance rate:\s*((?:-?[\d.]+|nan)(?:,\s*(?:-?[\d.]+|nan))*)")
# What releases print today, in one search; whatever is written otherwise is looked for field by field.
_USUAL = re.compile(
    r"Mean acceptance length: (\d+\.?\d*), .{0,200}?Accepted: (\d+) tokens, Drafted: (\d+) tokens, "
    r"Per-position acceptance rate: (\d\.\d+(?:, \d\.\d+)*), "
)
_STAMP = re.compile(r"\b(\d{2}-\d{2} \d{2}:\d{2}:\d{2}|\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2})")
_REPLICA = re.compile(r"^\s*(?:([\w.-]+)\s*\|\s*)?(?:\((\w+) pid=(\d+)\))?")
_ENGINE = re.compile(r"\bEngine (\d{3}):")
_LOAD = re.compile(
    r"Avg generation throughput: (?P<tok_s>[\d.]+) tokens/s, Running: (?P<running>\d+) reqs.*?"
    r"GPU KV cache usage: (?P<kv>[\d.]+)%(?:.*?Prefix cache hit rate: (?P<hit>[\d.]+)%)?"
)


def replica(line: str) -> str:
    """Which of several processes writing to one log: compose service, process and engine index, as printed."""
    found = _REPLICA.match(line)
    service, name, pid = found.groups() if found else (None, None, None)
    engine = _ENGINE.search(line)
    process = f"{name}:{pid}" if name else None
    return " ".join(part for part in (service, process, engine and f"engine {engine.group(1)}") if part)


def windows(line: str) -> list[Window | str]:
    """Every window of a line (two processes may have glued theirs together), or why one is unusable."""
    starts = [found.start() for found in MARK.finditer(line)] if "Spec" in line else []
    if not starts and "Per-position acceptance rate" in line:
        starts = [0]  # the head of the line was lost
    ends = [*starts[1:], len(line)]
    head = {"replica": replica(line), "stamp": _stamp(line)}
    return [_window(line[a:b], head) for a, b in zip(starts, ends, strict=True)]


def _window(text: str, head: dict[str, str | None]) -> Window | str:
    if usual := _USUAL.search(text):
        length, accepted, drafted, rates = usual.groups()
        each = [float(rate) for rate in rates.split(", ")]
        return window_of(accepted=float(accepted), drafted=float(drafted), length=float(length), rates=each, **head)
    got = {name: float(found.group(1)) for name, pattern in _FIELDS.items() if (found := pattern.search(text))}
    if "accepted" not in got or "drafted" not in got:
        return "the line is cut: no accepted or drafted tokens"
    printed = _RATES.search(text)
    listed = [float(rate) for rate in printed.group(1).split(",")] if printed else None
    if listed is None and "k" in got:
        listed = []
    made = window_of(accepted=got["accepted"], drafted=got["drafted"], length=got.get("length"), rates=listed, **head)
    if isinstance(made, Window) and made.drafts is None and got.get("k"):
        return Window(**{**vars(made), "drafts": round(got["drafted"] / got["k"])})
    return made


def _stamp(line: str) -> str | None:
    found = _STAMP.search(line)
    return found.group(1) if found else None


def load(line: str) -> dict[str, float] | None:
    """Throughput, requests in flight, KV usage and prefix hit rate (shares) of the engine's own line."""
    found = _LOAD.search(line)
    if not found:
        return None
    shares = {"kv_cache_usage": found["kv"], "prefix_cache_hit_rate": found["hit"]}
    return {
        "tok_s": float(found["tok_s"]),
        "running": float(found["running"]),
        **{name: float(text) / 100 for name, text in shares.items() if text is not None},
    }
