"""Launch lines of vLLM, SGLang and llama.cpp, parsed as those engines parse them. Nothing is ever executed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from draftproof.errors import UsageError
from draftproof.proof.launch import config_file, llama_cpp, sglang, vllm
from draftproof.proof.launch.line import Command, Parsed
from draftproof.proof.launch.words import find_command

_READERS: dict[str, Callable[[Command], Parsed]] = {
    "vllm": vllm.parse,
    "sglang": sglang.parse,
    "llama.cpp": llama_cpp.parse,
}

__all__ = ["Command", "Parsed", "parse"]


def parse(text: str) -> Parsed:
    """What a command line or a start script asks for. Raises UsageError where no known engine is started."""
    command = find_command(text)
    if command is None:
        first = " ".join(text.split())[:60]
        raise UsageError(
            f"no engine is started in {first!r}: vllm serve, python -m sglang.launch_server and llama-server are known"
        )
    command, problems, unread = config_file.written_out(command)
    parsed = _READERS[command.engine](command.redacted())
    return replace(parsed, problems=(*problems, *parsed.problems), unread=unread)
