"""From shell text to one engine's command: continuation lines, assignments, variables, images, wrappers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise

from draftproof.errors import UsageError
from draftproof.proof.launch.line import Argument, Command

MAX_TEXT = 1 << 20
_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)=(.*)$", re.DOTALL)
_VARIABLE = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}|\$(\w+)")
_IMAGES = {
    "vllm": re.compile(r"(?:^|/)vllm[\w.-]*/?(?:vllm-openai|vllm)[\w-]*:v?(\d[\w.]*)?"),
    "sglang": re.compile(r"(?:^|/)sglang[\w.-]*:v?(\d[\w.]*)?"),
    "llama.cpp": re.compile(r"(?:^|/)llama\.cpp:(?:[\w-]*?-)?(b\d+)?"),
}
_LLAMA = re.compile(r"^(?:.*/)?llama-(?:server|cli|speculative[\w-]*)(?:\.exe)?$")
_PREFIXES = ("VLLM_", "SGLANG_", "SGL_", "CUDA_", "HF_", "GGML_", "LLAMA_ARG_")
_NEGATIVE = re.compile(r"^-\.?\d")


def find_command(text: str) -> Command | None:
    """The first command of the text that starts a known engine, with the variables set before it."""
    if len(text) > MAX_TEXT:
        raise UsageError(f"a launch line of {len(text)} characters; the most that is read are {MAX_TEXT}")
    env: dict[str, str] = {}
    for words in _commands(text):
        words = [_expanded(word, env) for word in words]
        words = words[1:] if words and words[0] in ("export", "exec", "nohup", "sudo", "env", "time") else words
        own: dict[str, str] = {}
        while words and (found := _ASSIGNMENT.match(words[0])):
            own[found[1]] = found[2]
            words = words[1:]
        if not words:
            env |= own
            continue
        started = _started(words)
        if started is not None:
            engine, cut, version = started
            flags = dict(_passed_env(words[:cut]))
            named = {k: v for k, v in env.items() if k.startswith(_PREFIXES)}
            return Command(
                engine, {**named, **flags, **own}, tuple(words[:cut]), tuple(_arguments(words[cut:])), version
            )
    return None


def _commands(text: str) -> Iterator[list[str]]:
    """Logical lines as words; comments and the shell's operators end a command."""
    joined = re.sub(r"\\\r?\n", " ", text)
    lexer = shlex.shlex(joined, posix=True, punctuation_chars=";&|\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    try:
        for token in lexer:
            if token and set(token) <= set(";&|\n"):
                if words:
                    yield words
                words = []
            else:
                words.append(token)
    except ValueError as error:  # a quote that is never closed
        raise UsageError(f"the launch line cannot be split into words: {str(error).lower()}") from None
    if words:
        yield words


def _expanded(word: str, env: dict[str, str]) -> str:
    """Variables set in the same text are filled in; others stay as they are."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        return env.get(name, match[2] if match[2] is not None else match[0])

    return _VARIABLE.sub(value, word)


def _started(words: Sequence[str]) -> tuple[str, int, str | None] | None:
    """(engine, number of words that start it, version of an image) if these words start an engine."""
    for index, word in enumerate(words):
        rest = words[index + 1 :]
        name = word.rsplit("/", 1)[-1]
        if name == "vllm" and rest[:1] == ["serve"]:
            return "vllm", index + 2, _image_version(words[:index], "vllm")
        if word == "vllm.entrypoints.openai.api_server":
            return "vllm", index + 1, _image_version(words[:index], "vllm")
        if word in ("sglang.launch_server", "sglang_router.launch_server"):
            return "sglang", index + 1, _image_version(words[:index], "sglang")
        if name == "sglang" and rest[:1] == ["serve"]:
            return "sglang", index + 2, _image_version(words[:index], "sglang")
        if _LLAMA.match(word):
            return "llama.cpp", index + 1, _image_version(words[:index], "llama.cpp")
    return _image_only(words)


def _image_only(words: Sequence[str]) -> tuple[str, int, str | None] | None:
    """``docker run … vllm/vllm-openai:v0.20.1 --model …``: the image's entry point is the engine."""
    if not any(word.rsplit("/", 1)[-1] in ("docker", "podman", "nerdctl") for word in words[:3]):
        return None
    for engine, pattern in _IMAGES.items():
        for index, word in enumerate(words):
            found = pattern.search(word) if not word.startswith("-") else None
            if found:
                return engine, index + 1, found[1]
    return None


def _image_version(words: Sequence[str], engine: str) -> str | None:
    for word in words:
        found = _IMAGES[engine].search(word)
        if found and not word.startswith("-"):
            return found[1]
    return None


def _passed_env(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Variables handed into a container: -e NAME=VALUE."""
    for flag, value in pairwise(words):
        found = _ASSIGNMENT.match(value) if flag in ("-e", "--env") else None
        if found:
            yield found[1], found[2]


def _arguments(words: Sequence[str]) -> Iterator[Argument]:
    """Flags with what follows them up to the next flag; "--flag=value" is taken apart."""
    flag: str | None = None
    values: list[str] = []
    joined = False
    for word in words:
        if word.startswith("-") and len(word) > 1 and not _NEGATIVE.match(word):
            if flag is not None:
                yield Argument(flag, tuple(values), joined)
            flag, equals, value = word.partition("=")
            joined = bool(equals)
            values = [value] if equals else []
        elif flag is None:
            yield Argument(None, (word,))
        else:
            values.append(word)
    if flag is not None:
        yield Argument(flag, tuple(values), joined)
